"""Exercise slow_links(sends, nodes)."""

from refgf.oracle.grade.exercises.before import Exercise, Mistake, Part
from refgf.oracle.grade.exercises.lesson_10.cases import consecutive, round_robin
from refgf.oracle.spec.ring_steps import ring_sends

FLAT, THREE = "a flat ring", "three phases"
ROBIN, NONE = "a flat ring, ranks round robin", "one node, no messages, empty messages"


FIRST_STEP = [(0, 1, 3), (1, 2, 2), (2, 3, 2), (3, 0, 1)]  # slices of 8 elements, as an example


def slow_links(sends, nodes):
    node_of = {r: i for i, node in enumerate(nodes) for r in node}
    leaving = [[] for _ in nodes]
    for source, dest, count in sends:
        if node_of[source] != node_of[dest]:
            leaving[node_of[source]].append(count)
    return [(len(counts), sum(counts)) for counts in leaving]


def counts_inside_too(sends, nodes):
    return [
        (sum(s in node for s, _, _ in sends), sum(count for s, _, count in sends if s in node))
        for node in nodes
    ]


def counts_arrivals(sends, nodes):
    return slow_links([(dest, source, count) for source, dest, count in sends], nodes)


def counts_both_ways(sends, nodes):
    pairs = zip(slow_links(sends, nodes), counts_arrivals(sends, nodes))
    return [(a + c, b + d) for (a, b), (c, d) in pairs]


def nodes_of_neighbours(sends, nodes):
    return slow_links(sends, consecutive(len(nodes), len(nodes[0])))


def without_empty_messages(sends, nodes):
    return slow_links([send for send in sends if send[2]], nodes)


def flat_ring(ranks, n):
    """All messages of a ring over these ranks. -> [(source, dest, elements)]"""
    p = len(ranks)
    return [
        (rank, ranks[peer], stop - start)
        for r, rank in enumerate(ranks)
        for peer, start, stop in ring_sends(n, p, r)
    ]


def phases(nodes, n):
    """The messages of three phases; in a node all ranks send everything to the master."""
    inside = [(r, node[0], n) for node in nodes for r in node[1:]]
    back = [(dest, source, count) for source, dest, count in inside]
    return inside + flat_ring([node[0] for node in nodes], n) + back


def flat_cases(m, k, n, make):
    """The first step of a ring, rings of n elements and of a random number of elements."""
    return lambda random: [
        (FIRST_STEP, make(2, 2)),
        *[
            (flat_ring(list(range(m * k)), count), make(m, k))
            for count in (n, n + int(random.integers(1, 20)))
        ],
    ]


def one_way(random):
    """A gather: what arrives at a node does not leave it."""
    return [(0, 2, int(random.integers(1, 9))), (1, 2, 4), (2, 3, 5)], consecutive(2, 2)


SLOW_LINKS = Exercise(
    "slow_links",
    slow_links,
    (
        Part(FLAT, 1, flat_cases(3, 2, 13, consecutive)),
        Part(ROBIN, 1, flat_cases(2, 3, 12, round_robin)),
        Part(
            THREE,
            1,
            lambda random: (
                [
                    (phases(nodes, n + int(random.integers(9))), nodes)
                    for nodes, n in ((consecutive(2, 3), 12), (consecutive(3, 2), 13))
                ]
                + [one_way(random)]
            ),
        ),
        Part(
            NONE,
            1,
            lambda random: [
                (flat_ring([0, 1, 2], 7), consecutive(1, 3)),
                ([], consecutive(2, 2)),
                ([(0, 1, 4)], consecutive(1, 2)),
                ([(0, 2, 0), (1, 3, 1)], consecutive(2, 2)),
                ([(0, 2, 0), (1, 3, int(random.integers(2, 999)))], consecutive(2, 2)),
                (flat_ring([0, 1, 2, 3], 2), consecutive(2, 2)),
            ],
        ),
    ),
    (
        Mistake(
            "you count messages inside a node too, but these use the fast links",
            counts_inside_too,
            (FLAT, THREE, NONE),
        ),
        Mistake(
            "you count what arrives at a node; wanted what leaves it",
            counts_arrivals,
            (FLAT, ROBIN, THREE, NONE),
        ),
        Mistake(
            "you count each message twice, where it leaves and where it arrives",
            counts_both_ways,
            (FLAT, ROBIN, THREE, NONE),
        ),
        Mistake(
            "you take the ranks of a node as neighbours (rank // k): use the lists",
            nodes_of_neighbours,
            (ROBIN,),
        ),
        Mistake(
            "an empty message is a message: it costs a latency", without_empty_messages, (NONE,)
        ),
    ),
)
