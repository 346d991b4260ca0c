"""refgf's own algorithms as plans: the schedules of refgf.comm and refgf.papers.jia, lowered.

    msccl-xml        a message is added or copied where it arrives; a thread block for each peer
    mscclpp-json     put into the peer's scratch and signal; wait, then add or copy
    chakra           send and receive nodes, then a computing node that adds or copies

Each rank's steps follow one another, as in refgf. Rounding to a wire type is left out, because none
of the formats knows it. Sums in rank order (direct.py) are formed in scratch memory.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

from refgf.comm import direct, ring, tree
from refgf.comm.schedule import Algorithm, Step
from refgf.comm.slices import length
from refgf.oracle.schedules.form import Plan, PlanStep, Port, Span
from refgf.oracle.schedules.mscclpp_threads import Threads
from refgf.papers.jia import doubling, hierarchical

Nodes = list[list[int]]
OWN: dict[str, Callable[[Nodes], Algorithm]] = {
    "ring": lambda nodes: ring.allreduce,
    "direct": lambda nodes: direct.allreduce,
    "tree": lambda nodes: tree.allreduce,
    "recursive-doubling": lambda nodes: doubling.recursive_doubling,
    "halving-doubling": lambda nodes: doubling.halving_doubling,
    "three-phase": hierarchical.three_phase,
    "two-level": hierarchical.two_level_ring,
    "log-phases": hierarchical.log_phases,
}


def own_plan(name: str, size: int, form: str, chunks: int, ranks_per_node: int = 2) -> Plan:
    """The plan of one of OWN over `size` ranks and a vector of `chunks` chunks."""
    algorithm = OWN[name](hierarchical.consecutive_nodes(size, ranks_per_node))
    schedules = [algorithm(rank, size, chunks) for rank in range(size)]
    slots, scratch = scratch_slots(schedules)
    build = AddedOnArrival if form == "msccl-xml" else StoredOnArrival
    longest = -(-chunks // size)
    ranks = []
    for rank, schedule in enumerate(schedules):
        lowered = build(rank, form, longest, slots)
        for step in schedule:
            lowered.take(step, size)
        order = by_threads if form == "mscclpp-json" else by_lane
        ranks.append(order(rank, lowered.steps))
    if form == "msccl-xml":
        scratch = [longest * size * (name == "direct")] * size
    sizes = tuple((chunks, chunks, scratch[rank]) for rank in range(size))
    return Plan(form, f"refgf {name}", "allreduce", True, sizes, tuple(ranks))


def scratch_slots(schedules: list[list[Step]]) -> tuple[dict[tuple[int, int], list], list[int]]:
    """({(source, dest): where each message lies in dest's scratch}, chunks of each scratch)."""
    slots, used = defaultdict(list), [0] * len(schedules)
    for rank, schedule in enumerate(schedules):
        for step in schedule:
            if step.receive_from is not None and length(step.receive):
                slots[step.receive_from, rank].append(used[rank])
                used[rank] += length(step.receive)
    return slots, used


def by_lane(rank: int, steps: list[PlanStep]) -> tuple[PlanStep, ...]:
    """In the order of a file: one thread block (or node) after the other."""
    order = sorted(range(len(steps)), key=lambda i: (steps[i].lane, steps[i].number))
    new, found = {old: i for i, old in enumerate(order)}, []
    for i, old in enumerate(order):
        step = steps[old]
        before = [(rank, i - 1)] * (i > 0 and steps[order[i - 1]].lane == step.lane)
        before += [(rank, new[old - 1])] if old else []
        found.append(replace(step, after=tuple(dict.fromkeys(before))))
    return tuple(found)


def by_threads(rank: int, steps: list[PlanStep]) -> tuple[PlanStep, ...]:
    """The steps of one thread block of MSCCL++."""
    threads = Threads(rank)
    return tuple(threads.add(index, step) for index, step in enumerate(steps))


class Lowered:
    """One rank's steps in the order in which they run."""

    def __init__(self, rank: int, form: str, longest: int, slots: dict) -> None:
        self.rank, self.form, self.longest = rank, form, longest
        self.slots, self.next = slots, defaultdict(int)
        self.steps, self.lanes, self.stored = [], {}, {}
        self.length = defaultdict(int)  # steps of each lane

    def span(self, part: slice) -> Span:
        return Span(self.rank, "i", part.start, length(part))

    def slot(self, source: int, dest: int, count: int) -> Span:
        """Where the next message of this pair lies."""
        number = self.next[source, dest]
        self.next[source, dest] += 1
        return Span(dest, "s", self.slots[source, dest][number], count)

    def append(self, lane: object, op: str, **what: object) -> None:
        if self.form == "chakra":
            place = len(self.steps), 0
        else:
            number = self.lanes.setdefault(lane, len(self.lanes))
            place = number, self.length[number]
            self.length[number] += 1
        self.steps.append(PlanStep(*place, op, **what))

    def take(self, step: Step, size: int) -> None:
        """Translate one step of refgf: first its message out, then its message in."""
        if step.send_to is not None and length(step.send):
            self.send(step.send_to, self.span(step.send))
        if step.receive_from is not None and length(step.receive):
            self.receive(step.receive_from, self.span(step.receive), step.op)
        if step.op == "reduce" and length(step.receive):
            own = self.span(step.receive)
            terms = [self.stored.get(rank, own) for rank in range(size)]
            for term in terms[1:]:
                self.local("re", term, terms[0])
            if terms[0] != own:
                self.local("copy", terms[0], own)

    def local(self, op: str, source: Span, dest: Span) -> None:
        """dest += source, or dest = source."""
        if self.form == "chakra":
            op_name = "COMP_NODE"
        else:
            op_name = "cpy" if op == "copy" and self.form == "msccl-xml" else op
        pair = (source, dest) if self.form == "msccl-xml" else (dest, source)
        reads = pair if op == "re" else (source,)
        self.append("local", op_name, reads=reads, writes=(dest,))


class AddedOnArrival(Lowered):
    """Messages are added or copied where they arrive."""

    def send(self, to: int, part: Span) -> None:
        ports = (Port(to, 0),)
        self.append(("to", to), "s", reads=(part,), sends=ports, chunks=part.count)

    def receive(self, sender: int, part: Span, op: str) -> None:
        place = part
        if op == "buffer":
            place = Span(self.rank, "s", sender * self.longest, part.count)
            self.stored[sender] = place
        name, reads = ("rrc", (part,)) if op == "add" else ("r", ())
        what = {"reads": reads, "writes": (place,), "receives": (Port(sender, 0),)}
        self.append(("from", sender), name, **what, chunks=part.count)


class StoredOnArrival(Lowered):
    """Every message has a place of its own in the receiver's scratch."""

    def send(self, to: int, part: Span) -> None:
        ports, slot = (Port(to, 0),), self.slot(self.rank, to, part.count)
        if self.form == "chakra":
            self.append(None, "COMM_SEND_NODE", reads=(part,), sends=ports, chunks=part.count)
            return
        self.append("all", "put", reads=(part,), writes=(slot,))
        self.append("all", "nop")
        self.append("all", "signal", sends=ports)

    def receive(self, sender: int, part: Span, op: str) -> None:
        ports, slot = (Port(sender, 0),), self.slot(sender, self.rank, part.count)
        if self.form == "chakra":
            name = "COMM_RECV_NODE"
            self.append(None, name, writes=(slot,), receives=ports, chunks=part.count)
        else:
            self.append("all", "wait", receives=ports)
            self.append("all", "nop")
        if op == "buffer":
            self.stored[sender] = slot
        else:
            self.local("re" if op == "add" else "copy", slot, part)

    def append(self, lane: object, op: str, **what: object) -> None:
        super().append("all", op, **what)
        if op in ("re", "copy"):
            super().append("all", "nop")
