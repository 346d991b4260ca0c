"""NCCL's own model of its allreduce: ring and double binary tree, in three protocols.

NCCL predicts the time of each pair and runs the fastest one. So does this form, with the constants
of its source (verified: NVIDIA/nccl 5067397 of 2026-06-11, src/graph/tuning.cc):

    ring   2 (p-1) steps, of which 2 (m-1) are between the m nodes; 2 (p-1)/p n bytes on each link
    tree   a chain of the k ranks of a node, double binary trees between nodes: 2 (k-1) steps inside
           and 2 log2 m between; 2 n bytes on a node's link, but n bytes between two nodes only
    Simple, LL128 and LL send whole chunks, 120 of 128 bytes, and 4 of 8 bytes with their flags

A link's latency is that of a step of the ring in the Simple protocol; the others keep NCCL's ratios
to it. NCCL finds out channels and paths on the machine itself: here each link has its whole rate,
and the limits of a channel are left out. NVLS, CollNet and PAT need other switches: left out, too.
"""

from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from math import exp, inf, log, log2

from refgf.plan.measurements import LEAST_ALPHA_S
from refgf.predict.cost import Link

US, GB = 1e-6, 1e9
RING, TREE = ALGORITHMS = ("ring", "tree")
LL, LL128, SIMPLE = PROTOCOLS = ("LL", "LL128", "Simple")
BASE = {RING: (6.6, 14.0, 8.4), TREE: (6.8, 14.0, 8.4)}  # us a call; LL, LL128, Simple
STEP = {  # us a step
    "NVLink": {RING: (0.6, 1.9, 3.4), TREE: (0.6, 1.25, 4.0)},
    "PCIe": {RING: (1.0, 2.5, 5.7), TREE: (1.0, 1.9, 4.0)},
    "network": {RING: (2.7, 4.0, 14.0), TREE: (5.0, 8.5, 14.0)},
}
OVERHEAD = (1.0, 1.0, 3.0)  # us: least latency of a step inside, with several nodes (Intel)
MOST_LL = {1: 39.0, 2: 39.0}, 20.4  # GB/s on 1, 2 and more nodes (Volta, Intel)
RATES = {RING: (0.5, 0.92, 1.0), TREE: (0.92 / 3.8, 0.92 * 120 / 128, 0.92)}  # of a link's
TREE_LL128_ALONE = 0.92 * 7 / 9  # on one node
PLATEAU = 1.4  # of the ring's latency with long messages on several nodes (Ampere; Volta: 1.9)
PLATEAU_BYTES = 64 * 8  # a rank, on 8 channels (chosen)
TURNS = 9  # of the fit of latency and rate: its last steps are 0.4 % (chosen)
NVLINK = 16 * GB  # bytes/s: a faster link inside a node is no PCIe 3.0 (AMD's counts 16)
CORRECTION = {  # of a tree's rate, from 64 bytes on, for each power of two
    LL: "1 1 1 1 .9 .8 .7 .7 .7 .7 .6 .5 .4 .4 .5 .6 .7 .8 .9 1 1 1 1 1",
    LL128: "1 1 1 1 1 .9 .8 .8 .8 .7 .6 .6 .6 .6 .6 .6 .8 .9 .9 .9 .9 1 1 1",
    SIMPLE: ".9 .9 .9 .9 .9 .9 .9 .8 .7 .6 .6 .5 .5 .5 .5 .6 .7 .8 .7 .7 .8 .9 .9 .9",
}
FACTORS = {name: tuple(map(float, text.split())) for name, text in CORRECTION.items()}


@dataclass(frozen=True)
class Nccl:
    """T(bytes) of an allreduce on m nodes of k ranks each. A node has one link to the others."""

    nodes: int
    per_node: int
    inside: Link
    between: Link

    @property
    def a_s(self) -> float:
        return self(0.0)

    def scaled(self, alpha: float, beta: float) -> "Nccl":
        """With the latencies and the times per byte of its links multiplied."""
        links = ((each.alpha_s, each.beta_s_per_byte) for each in (self.inside, self.between))
        return Nccl(self.nodes, self.per_node, *(Link(alpha * a, beta * b) for a, b in links))

    @property
    def medium(self) -> str:
        """Of the links inside a node, by their rate."""
        return "NVLink" if self.inside.beta_s_per_byte * NVLINK < 1 else "PCIe"

    @cached_property
    def lines(self) -> dict[tuple[int, bool], list[tuple[float, float]]]:
        """{(octave, long): (latency, seconds a byte) of each pair}, as calls have needed them."""
        return {}

    def __call__(self, nbytes: float) -> float:
        key = octave(nbytes), self.long(nbytes)
        if key not in self.lines:
            self.lines[key] = [self.line(nbytes, *pair) for pair in product(ALGORITHMS, PROTOCOLS)]
        return min(latency_s + nbytes * beta for latency_s, beta in self.lines[key])

    def chosen(self, nbytes: float) -> tuple[str, str]:
        """The fastest (algorithm, protocol), which NCCL runs."""
        return min(product(ALGORITHMS, PROTOCOLS), key=lambda pair: self.time_s(nbytes, *pair))

    def time_s(self, nbytes: float, algorithm: str, protocol: str) -> float:
        latency_s, beta_s_per_byte = self.line(nbytes, algorithm, protocol)
        return latency_s + nbytes * beta_s_per_byte

    def long(self, nbytes: float) -> bool:
        return nbytes >= PLATEAU_BYTES * self.nodes * self.per_node

    def line(self, nbytes: float, algorithm: str, protocol: str) -> tuple[float, float]:
        """(latency, seconds a byte) for vectors of this octave. LL128 without NVLink takes inf.

        NCCL does not run that pair by default.
        """
        if protocol == LL128 and (self.per_node == 1 or self.medium != "NVLink"):
            return inf, 0.0
        latency_s = self.latency_s(algorithm, protocol)
        if self.nodes > 1 and (algorithm, protocol) == (RING, SIMPLE) and self.long(nbytes):
            latency_s *= PLATEAU
        return latency_s, self.beta_s_per_byte(nbytes, algorithm, protocol)

    def latency_s(self, algorithm: str, protocol: str) -> float:
        at, nodes, k = PROTOCOLS.index(protocol), self.nodes, self.per_node
        inside_s = ratio(self.inside, self.medium) * US * STEP[self.medium][algorithm][at]
        row = TREE if k == 1 else algorithm
        between_s = ratio(self.between, "network") * US * STEP["network"][row][at]
        if algorithm == TREE:
            steps_s = 2 * (k - 1) * inside_s + 2 * int(log2(nodes)) * between_s
        else:
            if nodes > 1:
                inside_s = max(inside_s, ratio(self.between, "network") * US * OVERHEAD[at])
            apart = 2 * (nodes - 1)
            steps_s = (2 * (nodes * k - 1) - apart) * inside_s + apart * between_s
        return US * BASE[algorithm][at] + steps_s

    def beta_s_per_byte(self, nbytes: float, algorithm: str, protocol: str) -> float:
        """Seconds a byte of the vector: the slower of the links, and what a protocol leaves."""
        p, at = self.nodes * self.per_node, PROTOCOLS.index(protocol)
        share = RATES[algorithm][at]
        ring = 2 * (p - 1) / p
        inside = (ring if algorithm == RING else 2) if self.per_node > 1 else 0
        between = 0 if self.nodes == 1 else ring
        if algorithm == TREE:
            between = {1: 0, 2: 1}.get(self.nodes, 2)
            if protocol == LL128 and self.nodes == 1:
                share = TREE_LL128_ALONE
            doubled = octave(nbytes)
            if doubled < len(FACTORS[protocol]):
                share *= FACTORS[protocol][doubled]
        links = inside * self.inside.beta_s_per_byte, between * self.between.beta_s_per_byte
        slowest = max(links) / share
        if protocol == LL:
            few, many = MOST_LL
            slowest = max(slowest, ring / (GB * few.get(self.nodes, many)))
        return slowest


def octave(nbytes: float) -> int:
    """How often 64 bytes are doubled, rounded down: within an octave T(bytes) is a line."""
    return int(log2(max(64.0, nbytes))) - 6


def ratio(link: Link, medium: str) -> float:
    """This link's latency over that of NCCL's step of a ring in the Simple protocol."""
    return link.alpha_s / (US * STEP[medium][RING][2])


@cache
def fitted(
    times: tuple[tuple[float, float], ...], nodes: int, per_node: int, inside: Link | None
) -> tuple[Nccl, tuple[float, float]]:
    """The model with which ((bytes, seconds), ...) agree best, and (least, most) seconds / model's.

    Latency and rate between nodes are sought in turn, in steps that halve, for the least squares
    of relative errors. inside None: an NVLink that limits no rate, its latency as far from NCCL's
    as that between nodes. The link between them has LEAST_ALPHA_S or more, and at most the rate
    of 2 bytes for each one of the sum: a slow link inside hides how much more it may have.
    """
    largest, seconds = times[-1]
    found = [log(US * STEP["network"][RING][2]), log(seconds / largest)]
    least = log(LEAST_ALPHA_S), log(min(t / nbytes for nbytes, t in times) / 2)

    def model() -> Nccl:
        between = Link(*map(exp, found))
        hop_s = US * STEP["NVLink"][RING][2] * ratio(between, "network")
        own = inside or Link(hop_s, min(1 / NVLINK / 2, between.beta_s_per_byte))
        return Nccl(nodes, per_node, own, between)

    def error(at: int, value: float) -> float:
        found[at] = value
        tried = model()
        return sum(log(t / tried(nbytes)) ** 2 for nbytes, t in times)

    for turn in range(TURNS):
        for at in (1, 0):
            tried = [max(least[at], found[at] + 2.0**-turn * step) for step in range(-4, 5)]
            found[at] = min(tried, key=lambda value, at=at: error(at, value))
    ratios = [t / model()(nbytes) for nbytes, t in times]
    return model(), (min(ratios), max(ratios))
