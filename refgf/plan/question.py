"""What is asked: this step on so many ranks of this network; its flat allreduce and its inputs."""

from dataclasses import dataclass, replace
from math import ceil, inf, log2

from refgf.papers.scaling.collectives import LINES
from refgf.plan.fabric import CHOSEN, LEAST, Fabric, wider
from refgf.plan.measurements import MOST, BeyondSizes, Times, gaps
from refgf.plan.nccl import Nccl
from refgf.plan.step_times import StepTimes
from refgf.predict.cost import Line, Link
from refgf.predict.timeline import CallTime

LEAST_OVERLAP = 0.7  # of its speed, by default: sums take processors and memory's rate (chosen)
FLOAT32 = 4
NCCL = "nccl"  # --allreduce: NCCL's own choice, in nccl.py
FEWER = 0.5  # of a link's costs may be contention that fewer nodes do not have (chosen)
PACE = {True: (0.97, 1.03), False: (0.9, 1.1)}  # of measured ready times, and of others (chosen)


@dataclass(frozen=True)
class Slowest:
    """T(bytes) of a ring over two links, neither of which is the faster one for all messages."""

    one: Line
    other: Line

    @property
    def a_s(self) -> float:
        return max(self.one.a_s, self.other.a_s)

    def __call__(self, nbytes: float) -> float:
        return max(self.one(nbytes), self.other(nbytes))


def slowest(*links: Link) -> Link:
    """The largest of each of their costs."""
    return Link(*(max(costs) for costs in zip(*(vars(link).values() for link in links))))


@dataclass(frozen=True)
class Unmodelled:
    """What no formula has, as inputs of their own.

    factor, most     what a step takes of the predicted one: the middle, and at most; at least 1
    least_overlap    the least share of its speed that backward keeps during a call
    tcp              (lowest, highest factor) of the time per byte between nodes
    notes            where these numbers are from, a sentence each
    """

    factor: float = 1.0
    most: float = 1.0
    least_overlap: float = LEAST_OVERLAP
    tcp: tuple[float, float] = (1.0, 1.0)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Question:
    """How long does this step take on `size` ranks of this network, k of them on a node?

    overlap     share of its speed that backward keeps while a call is in flight
    allreduce   the flat allreduce: a name of LINES, or NCCL
    groups      the calls of the one system that is asked for; None: its best ones
    unmodelled  none by default: the formulas alone
    """

    step: StepTimes
    fabric: Fabric
    size: int
    ranks_per_node: int = 1
    overlap: float = 1.0
    allreduce: str = "ring"
    groups: list[range] | None = None
    unmodelled: Unmodelled = Unmodelled()

    def __post_init__(self) -> None:
        problem, correct = None, "correct it, or leave it out"
        if self.size < 1 or self.ranks_per_node < 1:
            problem = f"{self.size} ranks, {self.ranks_per_node} a node; wanted 1 or more"
        elif self.size > self.ranks_per_node and self.size % self.ranks_per_node:
            problem = f"{self.size} ranks, {self.ranks_per_node} a node; wanted full nodes"
            full = self.size // self.ranks_per_node * self.ranks_per_node
            correct = f"--ranks {full} or {full + self.ranks_per_node}"
        elif not 0 <= self.overlap <= 1:
            problem = f"--overlap {self.overlap}; wanted 0 to 1, the share of its speed"
        elif self.allreduce not in (NCCL, *LINES):
            problem = f"--allreduce {self.allreduce}; wanted one of {', '.join((*LINES, NCCL))}"
        elif self.allreduce not in ("ring", NCCL) and self.ranks_per_node > 1:
            problem = f"--allreduce {self.allreduce}, {self.ranks_per_node} ranks on a node"
            problem += "; wanted one rank on each, because several would share its link"
            correct = f"--allreduce ring, or {NCCL}, which has trees over nodes"
        if problem:
            raise ValueError(f"plan: got {problem}; next: {correct}")

    @property
    def nodes(self) -> int:
        return max(1, self.size // self.ranks_per_node)

    @property
    def per_node(self) -> int:
        return min(self.size, self.ranks_per_node)

    @property
    def two_levels(self) -> bool:
        """Are there nodes, and ranks that share them?"""
        return self.per_node > 1 and self.nodes > 1

    @property
    def inside(self) -> Link:
        return self.fabric.inside or self.fabric.ring_hop or self.fabric.between

    @property
    def lacks_inside(self) -> bool:
        """Is this one node, of whose link nothing is known?"""
        return self.nodes == 1 < self.size and self.fabric.inside is None

    def require_inside(self) -> None:
        """ValueError if `lacks_inside`."""
        if self.lacks_inside:
            raise ValueError(
                f"plan: got {self.size} ranks of one node, and {self.fabric.name}, which says "
                "nothing of the link inside a node; wanted that link; next: add --inside 5us "
                "800gbit, or run all_reduce_perf on one host: passed as --machine, its refusal "
                "names the link"
            )

    @property
    def text_notes(self) -> list[str]:
        """The fabric's. A warning of other ranks is none on those that were measured."""
        held = self.fabric.elsewhere if self.measured else ()
        plain = {said: said.removeprefix("WARNING: ") for said in held}
        plain = {said: note[0].upper() + note[1:] for said, note in plain.items()}
        return [plain.get(said, said) for said in self.fabric.notes]

    @property
    def links(self) -> tuple[Link, ...]:
        """The hops of a flat ring of consecutive ranks, without one that is never the slower.

        One rank of a node sends to the next node, so it has the whole link between them.
        """
        used = (self.nodes > 1, self.fabric.between), (self.per_node > 1, self.inside)
        found = [link for is_used, link in used if is_used]
        worst = slowest(*found)
        return (worst,) if worst in found else tuple(found)

    @property
    def mean_alpha_s(self) -> float:
        """The mean latency of the hops of a flat ring. NCCL's ring pays it in each step."""
        k, inside_s, between_s = self.per_node, self.inside.alpha_s, self.fabric.between.alpha_s
        return inside_s if self.nodes == 1 else ((k - 1) * inside_s + between_s) / k

    @property
    def hops(self) -> tuple[Link, ...]:
        """The slowest decides a step of a flat ring. A measured ring pays a mean latency."""
        measured, share = self.fabric.ring_hop, self.fabric.ring_share
        if measured is None or self.nodes == 1:
            return tuple(replace(link, alpha_s=share * link.alpha_s) for link in self.links)
        if self.per_node == self.fabric.lines_per_node:
            return (measured,)
        return (replace(slowest(*self.links), alpha_s=self.mean_alpha_s),)

    @property
    def mean_share(self) -> float:
        """The mean latency of a flat ring's hops, as a share of that of its slowest hop."""
        most_s = slowest(*self.links).alpha_s if self.size > 1 else 0.0
        return self.mean_alpha_s / most_s if most_s else 1.0

    @property
    def pays_slowest_hop(self) -> bool:
        """Do links of unequal latency decide the flat ring, and no ring over them was measured?"""
        asked = self.fabric.ring_hop is None and not self.measured and self.allreduce != NCCL
        return asked and self.mean_share < 1 - LEAST

    @property
    def measured(self) -> bool:
        """Was the flat allreduce measured on these ranks, placed as they are?"""
        placed = self.fabric.lines_per_node in (0, self.per_node)
        named = self.allreduce in ("ring", NCCL)
        return placed and self.size in self.fabric.lines and named

    @property
    def extrapolated(self) -> bool:
        """Is a link used that was fitted to allreduces of other ranks, or placed otherwise?"""
        return bool(self.fabric.lines) and self.size > 1 and not self.measured

    @property
    def planned_nccl(self) -> bool:
        """Is NCCL's model used on other ranks than those of a text, by which it was fitted?"""
        return self.extrapolated and self.allreduce == NCCL and self.fabric.nccl_times is not None

    @property
    def elsewhere(self) -> dict[str, tuple[float, float]]:
        """{cost of a link fitted to other ranks of a text: (least, most) times of it here}.

        Fewer nodes may have less contention; more ranks a node have more adapters, fewer have
        fewer. Where NCCL or MPI chose steps that grow with log2 of the nodes, a ring's grow too
        fast.
        """
        size, k = max(self.fabric.lines), self.fabric.lines_per_node
        if not k:
            return {}
        fewer = FEWER if self.nodes < size // k else 1.0
        adapters = k / self.per_node if self.nodes > 1 else 1.0
        found = {"alpha": (fewer, 1.0), "beta": (fewer * min(1.0, adapters), max(1.0, adapters))}
        if self.fabric.doubles and self.allreduce == "ring":
            more = doubled(self.nodes, self.per_node) / doubled(size // k, k)
            found["alpha"] = fewer * min(1.0, more * (size - 1) / (self.size - 1)), 1.0
        return found

    def as_far_as_known(self, call: CallTime) -> CallTime:
        """T(bytes) for sizes, too, that the text of an allreduce does not have."""
        return BeyondSizes(call, self.sizes, self.fabric.bend) if self.sizes else call

    @property
    def sizes(self) -> tuple[float, ...] | None:
        """Rising bytes of the allreduces to which the links that are used were fitted."""
        other = self.nodes == 1 and self.fabric.inside is not None
        return None if other or self.size == 1 else self.fabric.sizes

    @property
    def smallest(self) -> int:
        """Bytes of the smallest gradient that is sent."""
        return FLOAT32 * min(elements for _, elements in self.step.ready if elements)

    @property
    def outside(self) -> tuple[int, ...]:
        """Bytes of the smallest call, of one gradient, and of all, if not within the measured."""
        least, *_, most = self.sizes or (0.0, inf)
        few = (self.smallest,) * (self.smallest < least)
        return few + (FLOAT32 * self.step.elements,) * (FLOAT32 * self.step.elements > most)

    @property
    def gaps(self) -> list[tuple[float, float, int, int]]:
        """(low, high, least, most) bytes: no size between low and high, calls of least to most."""
        few = self.smallest
        many = FLOAT32 * self.step.elements
        found = (
            (*both, max(few, int(both[0]) + 1), min(many, int(both[1]) - 1))
            for both in gaps(self.sizes or ())
        )
        return [each for each in found if each[2] <= each[3]]

    @property
    def flat(self) -> CallTime:
        """T(bytes) of the flat allreduce. In one node it uses the link inside."""
        return self.as_far_as_known(self.flat_as_known)

    @property
    def flat_as_known(self) -> Line | Times | Slowest | Nccl:
        if self.size == 1:
            return Line(0.0, 0.0)
        if self.measured:
            return self.fabric.lines[self.size]
        if self.planned_nccl:
            return replace(self.fabric.nccl, nodes=self.nodes, per_node=self.per_node)
        if self.allreduce == NCCL:
            return Nccl(self.nodes, self.per_node, self.inside, self.fabric.between)
        lines = [LINES[self.allreduce](self.size, hop) for hop in self.hops]
        return lines[0] if len(lines) == 1 else Slowest(*lines)


def in_gap(low: float, high: float, few: int, many: int) -> str:
    """A sentence of one of `Question.gaps`."""
    calls = f"{few:,} bytes." if few == many else f"{few:,} to {many:,}."
    return f" No size between {low:,.0f} and {high:,.0f} bytes was measured. Calls may have {calls}"


def doubled(nodes: int, k: int) -> int:
    """Hops of a tree over nodes with a chain of k ranks in each, one way."""
    return k - 1 + ceil(log2(nodes))


def ranges(question: Question) -> dict[str, tuple[float, float]]:
    """{input: (lowest, highest factor)}; extrapolated ones are at least as wide as CHOSEN.

    The pace is at least as wide as the scatter of the measured steps.
    """
    found = dict(question.fabric.ranges)
    if question.measured:
        found = wider(found, question.fabric.line_ranges)
    if question.extrapolated:
        off = question.fabric.nccl_error if question.planned_nccl else (1.0, 1.0)
        for name, both in CHOSEN.items():
            (low, high), (least, most) = found[name], question.elsewhere.get(name, (1.0, 1.0))
            low, high = min(low, both[0] * off[0]), max(high, both[1] * off[1])
            found[name] = least * low, most * high
    if unknown := (*question.outside, *(n for both in question.gaps for n in both[2:])):
        call = question.flat
        shares = [end / call(each) for each in unknown for end in call.ends(each)]
        found["sizes"] = min(1.0, *shares), max(1.0, *shares)
    if question.two_levels and question.fabric.inside is None:
        found["inside"] = 1 / MOST, 1.0  # a measured ring is not faster than the links inside
    if question.pays_slowest_hop:
        found["ring"] = question.mean_share, 1.0
    given = question.unmodelled
    if question.size > 1 and given.most > 1:
        found["missed"] = 1 / given.factor, given.most / given.factor
    if question.nodes > 1 and given.tcp != (1.0, 1.0):
        found["tcp"] = given.tcp
    if question.size > 1 and given.least_overlap < question.overlap:
        found["overlap"] = 1.0, given.least_overlap / question.overlap
    (low, high), (least, most) = PACE[question.step.measured], question.step.scatter
    return found | {"pace": (min(low, least), max(high, most))}


def varied(
    question: Question,
    pace: float = 1.0,
    missed: float = 1.0,
    overlap: float = 1.0,
    **factors: float,
) -> Question:
    """factors: of alpha, beta, hops, ring, tcp, sizes and inside."""
    given = question.unmodelled
    changed = {"step": question.step.scaled(pace), "fabric": question.fabric.scaled(**factors)}
    changed |= {"unmodelled": replace(given, factor=missed * given.factor)}
    return replace(question, overlap=overlap * question.overlap, **changed)
