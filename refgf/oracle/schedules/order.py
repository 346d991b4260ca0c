"""The order of a plan's steps: which message meets which receive, what deadlocks, what races.

Two accesses to one chunk of which one writes it are a race unless a path of dependencies and
messages leads from one to the other (happens-before). That is a property of the plan, not of one
run. Each step has a vector clock with one entry for each chain of steps that follow each other.
"""

from array import array
from collections import defaultdict, deque

from refgf.oracle.judge.untrusted import BadFile
from refgf.oracle.schedules.form import Finding, Plan, PlanStep, Port
from refgf.oracle.schedules.layout import Layout

LARGEST_CLOCKS = 1 << 26  # entries of all clocks together
SHOWN = 8


class Graph:
    """All steps as nodes 0, 1, ...; before[v]: (node, does the edge order memory accesses?)."""

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
        self.found, self.sender, self.queue = [], {}, {}
        self._match()
        self.order = self._sort()

    def place(self, node: int) -> str:
        rank, step = self.nodes[node]
        return f"rank {rank}, {self.plan.place(step)}"

    def finding(self, kind: str, node: int, text: str) -> Finding:
        rank, step = self.nodes[node]
        return Finding(kind, rank, self.plan.place(step), text)

    def _match(self) -> None:
        """The i-th send on a channel meets its i-th receive."""
        sent, received = defaultdict(list), defaultdict(list)
        for node, (rank, step) in enumerate(self.nodes):
            for port in step.sends:
                sent[rank, port.peer, port.channel].append((node, port))
            for port in step.receives:
                received[port.peer, rank, port.channel].append((node, port))
        for wire in sorted({*sent, *received}):
            ends = sent[wire], received[wire]
            self.queue[wire] = [[node for node, _ in end] for end in ends]
            for (a, out), (b, into) in zip(*ends):
                self._pair(a, b, out, into)
            self._alone(wire, *ends)

    def _pair(self, a: int, b: int, out: Port, into: Port) -> None:
        got, wanted = self.nodes[a][1].chunks, self.nodes[b][1].chunks
        if got != wanted:
            text = f"sends {got} {self.plan.unit} to {self.place(b)}, which takes {wanted}"
            self.found.append(self.finding("unmatched", a, text))
        self.before[b].append((a, out.ordered and into.ordered))
        self.sender[b] = a

    def _alone(self, wire: tuple, sent: list, received: list) -> None:
        source, dest, channel = wire
        on = f"on channel {channel}"
        for node, _ in sent[len(received) :][:SHOWN]:
            text = f"sends to rank {dest} {on}, which takes {len(received)} of {len(sent)} there"
            self.found.append(self.finding("unmatched", node, text))
        for node, _ in received[len(sent) :][:SHOWN]:
            text = f"waits for rank {source} {on}, which sends {len(sent)} of {len(received)} there"
            self.found.append(self.finding("unmatched", node, text))

    def _sort(self) -> list[int]:
        """The nodes in an order in which they may run; without those that wait for ever."""
        self.behind = [[] for _ in self.nodes]
        waits = [len(before) for before in self.before]
        for node, before in enumerate(self.before):
            for other, _ in before:
                self.behind[other].append(node)
        ready, order = deque(node for node, count in enumerate(waits) if not count), []
        while ready:
            node = ready.popleft()
            order.append(node)
            for other in self.behind[node]:
                waits[other] -= 1
                if not waits[other]:
                    ready.append(other)
        return order

    def deadlock(self) -> list[Finding]:
        """The steps of one circle in which each waits for the next."""
        if len(self.order) == len(self.nodes):
            return []
        done = set(self.order)
        node, path = next(v for v in range(len(self.nodes)) if v not in done), {}
        while node not in path:
            path[node] = len(path)
            node = next(other for other, _ in self.before[node] if other not in done)
        circle = list(path)[path[node] :]
        pairs = zip(circle, [*circle[1:], circle[0]])
        found = [self.finding("deadlock", v, f"waits for {self.place(w)}") for v, w in pairs]
        return found if len(found) <= SHOWN else [*found[: SHOWN - 1], found[-1]]

    def chains(self) -> tuple[list[tuple[int, int]], int]:
        """[(chain, place in it, from 1)] of each node, and the number of chains."""
        place, last, count = [(0, 0)] * len(self.nodes), [], 0
        for node in self.order:
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
        self.number = {}  # (wire, end, node) -> how many came before it
        for wire, ends in graph.queue.items():
            for end, nodes in enumerate(ends):
                self.number |= {(wire, end, node): i for i, node in enumerate(nodes)}

    def all(self) -> list[Finding]:
        """The first races in the order of the steps."""
        for node in self.graph.order:
            clock = self._clock(node)
            rank, step = self.graph.nodes[node]
            self._accesses(node, step, clock)
            self._queues(node, rank, step, clock)
            if len(self.found) >= SHOWN:
                break
        return self.found

    def _clock(self, node: int) -> array:
        clock = None
        for other, ordered in reversed(self.graph.before[node]):  # often the last knows all
            if ordered and clock is None:
                clock = self.clocks[other][:]
            elif ordered and not self._before(other, clock):
                clock = array("i", map(max, clock, self.clocks[other]))
            self.uses[other] -= 1
            if not self.uses[other]:
                del self.clocks[other]
        clock = clock or array("i", [0]) * self.count
        chain, number = self.place[node]
        clock[chain] = number
        if self.uses[node]:
            self.clocks[node] = clock
        return clock

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

    def _queues(self, node: int, rank: int, step: PlanStep, clock: array) -> None:
        """Steps that use one end of a channel must follow each other, or their messages mix."""
        wires = [(0, (rank, port.peer, port.channel)) for port in step.sends]
        wires += [(1, (port.peer, rank, port.channel)) for port in step.receives]
        for end, wire in wires:
            number = self.number[wire, end, node]
            other = self.graph.queue[wire][end][number - 1] if number else None
            if other is not None and other != node and not self._before(other, clock):
                what = f"{('sends', 'receives')[end]} on the channel of {self.graph.place(other)}"
                text = f"{what}; nothing orders the two"
                self.found.append(self.graph.finding("race", node, text))
