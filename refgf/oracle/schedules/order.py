"""The order of a plan's steps: which message meets which receive, what deadlocks, what races.

Two accesses to one chunk of which one writes it are a race unless a path of dependencies and
messages leads from one to the other (happens-before). That is a property of the plan, not of one
run. Each step has a vector clock with one entry for each chain of steps that follow each other.
"""

from array import array
from collections import defaultdict, deque

from refgf.oracle.foreign.untrusted import BadFile
from refgf.oracle.schedules.form import Finding, Plan, PlanStep, Port
from refgf.oracle.schedules.layout import Layout

LARGEST_CLOCKS = 1 << 26  # entries of all clocks together
SHOWN = 8
Wire = tuple[int, int, int]  # (source, dest, channel)


def wires(rank: int, step: PlanStep) -> list[tuple[int, Wire, Port]]:
    """(end, wire, port) of each message of a step. end: 0 it sends, 1 it receives."""
    sent = [(0, (rank, port.peer, port.channel), port) for port in step.sends]
    return sent + [(1, (port.peer, rank, port.channel), port) for port in step.receives]


class Graph:
    """All steps as nodes 0, 1, ...; before[v]: (node, does the edge order memory accesses?).

    The steps run once, here, and each receive takes the oldest message of its channel. So which
    message meets which receive follows from what the steps wait for, as on a real channel, and not
    from their places in the file. If nothing orders two steps at one end of a channel, another run
    may pair their messages differently, which `Races` finds.

    found: sends and receives that have no partner. unequal: messages of another length than their
    receive. order: an order in which the steps may run, without those that wait for ever; waiting:
    of these the ones that only lack a message.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan, self.nodes = plan, [(rank, step) for rank, _, step in plan.steps()]
        first, start = [], 0
        for steps in plan.ranks:
            first.append(start)
            start += len(steps)
        self.before = [
            [(first[r] + i, True) for r, i in step.after]
            + [(first[r] + i, False) for r, i in step.follows]
            for _, step in self.nodes
        ]
        self.behind = [[] for _ in self.nodes]
        for node, before in enumerate(self.before):
            for other, _ in before:
                self.behind[other].append(node)
        self.unequal, self.sender, self.order = [], {}, []
        self.taken = [0] * len(self.nodes)  # messages that a step has received
        self.found = self._alone()
        self._run()

    def place(self, node: int) -> str:
        rank, step = self.nodes[node]
        return f"rank {rank}, {self.plan.place(step)}"

    def finding(self, kind: str, node: int, text: str) -> Finding:
        rank, step = self.nodes[node]
        return Finding(kind, rank, self.plan.place(step), text)

    def _alone(self) -> list[Finding]:
        """Of a channel with more messages at one end than at the other: the last ones."""
        ends, found = defaultdict(lambda: ([], [])), []
        for node, (rank, step) in enumerate(self.nodes):
            for end, wire, _ in wires(rank, step):
                ends[wire][end].append(node)
        for wire, (sent, received) in sorted(ends.items()):
            source, dest, channel = wire
            of = f"{len(received)} of {len(sent)} there"
            for node in sent[len(received) :][:SHOWN]:
                text = f"sends to rank {dest} on channel {channel}, which takes {of}"
                found.append(self.finding("unmatched", node, text))
            of = f"{len(sent)} of {len(received)} there"
            for node in received[len(sent) :][:SHOWN]:
                text = f"waits for rank {source} on channel {channel}, which sends {of}"
                found.append(self.finding("unmatched", node, text))
        return found

    def _run(self) -> None:
        """A step that lacks a message sleeps until one is sent on that channel."""
        waits = [len(before) for before in self.before]
        ready = deque(node for node, count in enumerate(waits) if not count)
        messages, blocked = defaultdict(deque), defaultdict(deque)
        while ready:
            node = ready.popleft()
            missing = self._receive(node, messages)
            if missing:
                blocked[missing].append(node)
                continue
            self.order.append(node)
            for end, wire, port in wires(*self.nodes[node]):
                if end == 0:
                    messages[wire].append((node, port))
                    ready += [blocked[wire].popleft()] if blocked[wire] else []
            for other in self.behind[node]:
                waits[other] -= 1
                if not waits[other]:
                    ready.append(other)
        self.waiting = [node for nodes in blocked.values() for node in nodes]
        for node, before in enumerate(self.before):
            for other, _ in before[len(before) - self.taken[node] :]:
                self.behind[other].append(node)

    def _receive(self, node: int, messages: dict[Wire, deque]) -> Wire | None:
        """Take the oldest message of each channel; the channel that has none, if there is one."""
        rank, step = self.nodes[node]
        for into in step.receives[self.taken[node] :]:
            wire = into.peer, rank, into.channel
            if not messages[wire]:
                return wire
            other, out = messages[wire].popleft()
            got, wanted = self.nodes[other][1].chunks, step.chunks
            if got != wanted:
                what = f"sends {got} {self.plan.unit} to {self.place(node)}, which takes {wanted}"
                self.unequal.append(self.finding("unmatched", other, what))
            self.before[node].append((other, out.ordered and into.ordered))
            self.sender[node] = other
            self.taken[node] += 1
        return None

    def deadlock(self) -> list[Finding]:
        """The steps of one circle in which each waits for the next."""
        if len(self.order) == len(self.nodes):
            return []
        done = set(self.order)
        node, path = next(v for v in range(len(self.nodes)) if v not in done), {}
        while node not in path:
            path[node] = len(path)
            node = self._waits_for(node, done)
        circle = list(path)[path[node] :]
        pairs = zip(circle, [*circle[1:], circle[0]])
        found = [self.finding("deadlock", v, f"waits for {self.place(w)}") for v, w in pairs]
        return found if len(found) <= SHOWN else [*found[: SHOWN - 1], found[-1]]

    def _waits_for(self, node: int, done: set[int]) -> int:
        """A step that has to end before this one, or one that sends on the channel it waits at."""
        first = next((other for other, _ in self.before[node] if other not in done), None)
        if first is not None:
            return first
        rank, step = self.nodes[node]
        into = step.receives[self.taken[node]]
        wire = 0, (into.peer, rank, into.channel)
        nodes = (v for v in range(len(self.nodes)) if v not in done)
        return next(v for v in nodes if wire in {w[:2] for w in wires(*self.nodes[v])})

    def chains(self) -> tuple[list[tuple[int, int]], int]:
        """[(chain, place in it, from 1)] of each node, and the number of chains."""
        place, last, count = [(0, 0)] * len(self.nodes), [], 0
        for node in (*self.order, *self.waiting):
            for other, ordered in self.before[node]:
                chain, length = place[other]
                if ordered and last[chain] == other:
                    place[node] = chain, length + 1
                    break
            else:
                place[node], count = (count, 1), count + 1
                last.append(node)
            last[place[node][0]] = node
        if count * len(self.nodes) > LARGEST_CLOCKS:
            raise BadFile(
                f"schedule {self.plan.name[:40]!r}: got {len(self.nodes)} steps of which {count} "
                f"run side by side; wanted at most {LARGEST_CLOCKS} as their product; next: judge "
                "a smaller schedule"
            )
        return place, count


class Races:
    """Follows the steps in order with their clocks, and notes accesses that nothing orders."""

    def __init__(self, graph: Graph, where: Layout) -> None:
        self.graph, self.where, self.found = graph, where, []
        self.place, self.count = graph.chains()
        self.clocks, self.uses = {}, [len(behind) for behind in graph.behind]
        self.written, self.read = {}, defaultdict(dict)
        self.users, self.ends = {}, []  # of the ends of channels: the last step, and the races
        self.ended = [array("i", [0]) * self.count for _ in graph.plan.ranks]  # the ranks' clocks
        self.inner = {  # steps that a later one of their rank comes after
            other
            for node, before in enumerate(graph.before)
            for other, ordered in before
            if ordered and graph.nodes[other][0] == graph.nodes[node][0]
        }

    def all(self) -> list[Finding]:
        """The first races in the order of the steps."""
        for node in self.graph.order:
            if len(self.found) >= SHOWN and (self.ends or not self.graph.waiting):
                return self.found
            rank, step = self.graph.nodes[node]
            own = len(self.graph.before[node]) - self.graph.taken[node]
            clock = self._clock(self.graph.before[node][:own])
            self._channels(node, 1, clock)  # a receive takes what is there: its message is no order
            clock = self._clock(self.graph.before[node][own:], clock)
            chain, number = self.place[node]
            clock[chain] = number
            self._channels(node, 0, clock)
            self._accesses(node, step, clock)
            if node not in self.inner:
                self.ended[rank] = array("i", map(max, clock, self.ended[rank]))
            if self.uses[node]:
                self.clocks[node] = clock
        users = self.users
        for node in self.graph.waiting:  # for a message that another step has taken, perhaps
            self.users = dict(users)
            self._channels(node, 1, self._clock(self.graph.before[node]))
        self._arrivals()
        return self.found

    def _arrivals(self) -> None:
        """A rank must not end before what another rank puts into its result has arrived."""
        for rank, clock in enumerate(self.ended):
            for cell, _, _ in self.where.wanted(rank):
                node = self.written.get(cell)
                if node is not None and not self._before(node, clock):
                    text = f"writes chunk {cell[2]} of buffer {cell[1]} of rank {rank}, which may "
                    text += "end before that; no step there waits for it"
                    self.found.append(self.graph.finding("race", node, text))

    def _clock(self, before: list[tuple[int, bool]], clock: array | None = None) -> array:
        """The clock of a step that runs after these."""
        for other, ordered in reversed(before):  # often the last knows all
            if ordered and clock is None:
                clock = self.clocks[other][:]
            elif ordered and not self._before(other, clock):
                clock = array("i", map(max, clock, self.clocks[other]))
            self.uses[other] -= 1
            if not self.uses[other]:
                del self.clocks[other]
        return clock or array("i", [0]) * self.count

    def _before(self, other: int, clock: array) -> bool:
        chain, number = self.place[other]
        return clock[chain] >= number

    def _accesses(self, node: int, step: PlanStep, clock: array) -> None:
        for span in step.reads:
            for cell in self.where.cells(span):
                self._require(node, self.written.get(cell), cell, "reads", "writes", clock)
                self.read[cell][self.place[node][0]] = node
        for span in step.writes:
            for cell in self.where.cells(span):
                self._require(node, self.written.get(cell), cell, "writes", "writes", clock)
                for other in self.read.pop(cell, {}).values():
                    self._require(node, other, cell, "writes", "reads", clock)
                self.written[cell] = node

    def _require(
        self, node: int, other: int | None, cell: tuple, own: str, theirs: str, clock: array
    ) -> None:
        if other is None or other == node or self._before(other, clock):
            return
        rank, buffer, chunk = cell
        what = f"{own} chunk {chunk} of buffer {buffer} of rank {rank}"
        text = f"{what}, which {self.graph.place(other)} {theirs}; nothing orders the two"
        self.found.append(self.graph.finding("race", node, text))

    def _channels(self, node: int, end: int, clock: array) -> None:
        """Steps that use one end of a channel must follow each other, or their messages mix."""
        for at, wire, _ in wires(*self.graph.nodes[node]):
            other = self.users.get((end, wire))
            if at != end or other == node:
                continue
            self.users[end, wire] = node
            if other is not None and not self._before(other, clock):
                what = f"{('sends', 'receives')[end]} on the channel of {self.graph.place(other)}"
                text = f"{what}; nothing orders the two"
                self.ends.append(self.graph.finding("race", node, text))
                self.found.append(self.ends[-1])
