"""H7: what each rank sends. Lesson 10 asks for what crosses the slow links between nodes."""

from collections.abc import Callable

import numpy as np

from refgf.oracle.spec.calls import TRAFFIC, node_traffic
from refgf.oracle.spec.case import Given
from refgf.oracle.spec.draw import Draw, pick, some_nodes
from refgf.oracle.spec.exercise import Arguments, Drawn, Exercise
from refgf.oracle.spec.hierarchy.flat import hands_over
from refgf.oracle.spec.hierarchy.nodes import LONG_NODE, NODES, Nodes, consecutive, round_robin
from refgf.oracle.spec.ring import slice_bounds
from refgf.oracle.spec.ring_steps import ring_sends, ring_traffic
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement

FLAT = ("tree", "recursive_doubling", "halving_doubling")
Sends = list[tuple[int, int, int]]  # (source, dest, elements) of each message


def schedule_traffic(algorithm: str, n: int, nodes: Nodes, rank: int) -> tuple[int, int]:
    """H7: messages (empty ones too) and elements that each rank sends: see below.

    Source: follows from H1 to H5 and H8.

    algorithm: tree, recursive_doubling, halving_doubling, three_phase, two_level or log_phases.
    The first three depend only on p, the number of ranks on all nodes.
    """
    p = sum(map(len, nodes))
    if algorithm in ("three_phase", "two_level", "log_phases"):
        return hierarchy_traffic(algorithm, n, nodes, rank)
    if algorithm == "tree":
        below = [rank + 2**i for i in range(p) if rank % 2 ** (i + 1) == 0 and rank + 2**i < p]
        messages = len(below) + (rank > 0)
        return messages, messages * n
    q = 1 << (p.bit_length() - 1)
    extras, rounds = p - q, q.bit_length() - 1
    if rank < 2 * extras and hands_over(rank):
        return 1, n
    extra = rank < 2 * extras
    if algorithm == "recursive_doubling":
        return rounds + extra, (rounds + extra) * n
    number = rank // 2 if extra else rank - extras
    return 2 * rounds + extra, halving_elements(number, n, q) + extra * n


def halving_elements(number: int, n: int, q: int) -> int:
    """Elements that participant `number` of halving-doubling sends.

    In each round it sends one half away, and returns the other half in the second phase.
    """
    bounds = slice_bounds(n, q)
    first, last, sent = 0, q, 0
    for bit in range(q.bit_length() - 1):
        middle = (first + last) // 2
        sent += sum(j - i for i, j in bounds[first:last])  # both halves of what it holds
        first, last = (middle, last) if number >> bit & 1 else (first, middle)
    return sent


def hierarchy_traffic(algorithm: str, n: int, nodes: Nodes, rank: int) -> tuple[int, int]:
    """H7 for three_phase, two_level and log_phases."""
    i, node = next((i, list(node)) for i, node in enumerate(nodes) if rank in node)
    j, k, m = node.index(rank), len(node), len(nodes)
    s = [stop - start for start, stop in slice_bounds(n, k)]
    if algorithm == "two_level":
        inside, between = ring_traffic(n, k, j), ring_traffic(s[(j + 1) % k], m, i)
        return inside[0] + between[0], inside[1] + between[1]
    if algorithm == "log_phases":
        inside = schedule_traffic("tree", n, [node], j)
        between = (0, 0) if j else schedule_traffic("halving_doubling", n, [list(range(m))], i)
        return inside[0] + between[0], inside[1] + between[1]
    if j:
        return 2 * k - 1, 2 * n - s[j]
    messages, elements = ring_traffic(n, m, i)
    return messages + 3 * (k - 1), elements + (3 * n - 2 * s[1] - s[0] if k > 1 else 0)


H7 = Statement("H7", schedule_traffic)
SENDS = JudgedFunction(
    schedule_traffic,
    "H7",
    TRAFFIC,
    run=node_traffic("schedule_traffic", "algorithm", "n", "nodes"),
)


@SENDS.fresh
def any_schedule(d: Draw) -> Given:
    algorithm = pick(d.rng, *FLAT, "three_phase", "two_level")
    nodes = some_nodes(d.rng, d.p, algorithm == "two_level")
    return {"algorithm": algorithm, "n": d.n, "nodes": nodes}


PLACES = ("one-rank", "one-node", "dealt", "3x3", "uneven")
WHERE = {
    **dict.fromkeys((*FLAT, "three_phase"), PLACES),
    "two_level": PLACES[:-1],
    "log_phases": (*PLACES, *LONG_NODE),
}


@SENDS.golden
def sends() -> Cases:
    for algorithm, places in WHERE.items():
        for where in places:
            nodes = (NODES | LONG_NODE)[where]
            name = f"traffic-{algorithm.replace('_', '-')}-{where}"
            why = "0 elements: empty messages count"
            yield SENDS.case(f"{name}-n0", why, algorithm=algorithm, n=0, nodes=nodes)
            why = "100 elements, slices of different length"
            yield SENDS.case(f"{name}-n100", why, algorithm=algorithm, n=100, nodes=nodes)
    why = "two pairs of ranks and more join first, and halves are uneven"
    for p in (6, 7):
        algorithm, nodes = "halving_doubling", [list(range(p))]
        name = f"halving-doubling-traffic-p{p}-n13"
        yield SENDS.case(name, why, algorithm=algorithm, n=13, nodes=nodes)


@H7.mistake("empty messages are not sent")
def skips_empty(algorithm, n, nodes, rank):
    return schedule_traffic(algorithm, n, nodes, rank) if n else (0, 0)


@H7.mistake("all slices have the same length")
def equal_slices(algorithm, n, nodes, rank):
    messages, elements = schedule_traffic(algorithm, n, nodes, rank)
    longest = max(stop - start for start, stop in slice_bounds(n, len(nodes)))
    return messages, elements if algorithm == "tree" else longest * messages


# ---- slow_links(sends, nodes) ----


def slow_links(sends: Sends, nodes: Nodes) -> list[tuple[int, int]]:
    """(messages, elements) that leave each node."""
    node_of = {r: i for i, node in enumerate(nodes) for r in node}
    leaving: list[list[int]] = [[] for _ in nodes]
    for source, dest, count in sends:
        if node_of[source] != node_of[dest]:
            leaving[node_of[source]].append(count)
    return [(len(counts), sum(counts)) for counts in leaving]


def flat_ring(ranks: list[int], n: int) -> Sends:
    """All messages of a ring over these ranks."""
    p = len(ranks)
    return [
        (rank, ranks[peer], stop - start)
        for r, rank in enumerate(ranks)
        for peer, start, stop in ring_sends(n, p, r)
    ]


def three_phase_sends(nodes: Nodes, n: int) -> Sends:
    """The messages of three phases; in a node all ranks send everything to the master."""
    inside = [(r, node[0], n) for node in nodes for r in node[1:]]
    return inside + flat_ring([node[0] for node in nodes], n) + turned(inside)


def turned(sends: Sends) -> Sends:
    return [(dest, source, count) for source, dest, count in sends]


FIRST_STEP = [(0, 1, 3), (1, 2, 2), (2, 3, 2), (3, 0, 1)]  # slices of 8 elements, as an example


def flat_rings(m: int, k: int, n: int, make: Callable[[int, int], Nodes]) -> Drawn:
    """The first step of a ring, rings of n elements and of a random number of elements."""
    return lambda random: [
        (FIRST_STEP, make(2, 2)),
        *[
            (flat_ring(list(range(m * k)), count), make(m, k))
            for count in (n, n + int(random.integers(1, 20)))
        ],
    ]


def phases(random: np.random.Generator) -> list[Arguments]:
    """The last one is a gather: what arrives at a node does not leave it."""
    places = (consecutive(2, 3), 12), (consecutive(3, 2), 13)
    rows = [(three_phase_sends(nodes, n + int(random.integers(9))), nodes) for nodes, n in places]
    gather = [(0, 2, int(random.integers(1, 9))), (1, 2, 4), (2, 3, 5)]
    return [*rows, (gather, consecutive(2, 2))]


def few(random: np.random.Generator) -> list[Arguments]:
    return [
        (flat_ring([0, 1, 2], 7), consecutive(1, 3)),
        ([], consecutive(2, 2)),
        ([(0, 1, 4)], consecutive(1, 2)),
        ([(0, 2, 0), (1, 3, 1)], consecutive(2, 2)),
        ([(0, 2, 0), (1, 3, int(random.integers(2, 999)))], consecutive(2, 2)),
        (flat_ring([0, 1, 2, 3], 2), consecutive(2, 2)),
    ]


LINKS_10 = Exercise("10.4", slow_links)
LINKS_10.part("a flat ring", 1, flat_rings(3, 2, 13, consecutive))
LINKS_10.part("a flat ring, ranks round robin", 1, flat_rings(2, 3, 12, round_robin))
LINKS_10.part("three phases", 1, phases)
LINKS_10.part("one node, no messages, empty messages", 1, few)


@LINKS_10.mistake("you count messages inside a node too, but these use the fast links")
def counts_inside_too(sends, nodes):
    return [
        (sum(s in node for s, _, _ in sends), sum(count for s, _, count in sends if s in node))
        for node in nodes
    ]


LINKS_10.given("you count what arrives at a node; wanted what leaves it", sends=turned)


@LINKS_10.mistake("you count each message twice, where it leaves and where it arrives")
def counts_both_ways(sends, nodes):
    pairs = zip(slow_links(sends, nodes), slow_links(turned(sends), nodes))
    return [(a + c, b + d) for (a, b), (c, d) in pairs]


LINKS_10.given(
    "you take the ranks of a node as neighbours (rank // k): use the lists",
    nodes=lambda nodes: consecutive(len(nodes), len(nodes[0])),
)
LINKS_10.given(
    "an empty message is a message: it costs a latency",
    sends=lambda sends: [send for send in sends if send[2]],
)
