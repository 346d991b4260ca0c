"""Exercise three_phases(xs, nodes)."""

import numpy as np

from refgf.oracle.definitions import three_phase_allreduce
from refgf.oracle.grade.exercises.before import Exercise, Mistake, Part
from refgf.oracle.grade.exercises.lesson_10.cases import consecutive, round_robin, with_nodes

EQUAL, ODD = "nodes of equal size", "nodes of different sizes, ranks in any order"
EDGE = "one node, one rank a node, no elements"


def three_phases(xs, nodes):
    masters = [node[0] for node in nodes]
    reduced = {node[0]: np.sum([xs[r] for r in node], axis=0) for node in nodes}
    held = three_phase_allreduce(xs, nodes)
    first = [reduced.get(r, x) for r, x in enumerate(xs)]
    return [first, [held[r] if r in masters else x for r, x in enumerate(xs)], held]


def first_ranks_are_masters(xs, nodes):
    reduced, summed = list(xs), list(xs)
    for i, node in enumerate(nodes):
        reduced[i] = sum(xs[r] for r in node)
    total = sum(reduced[: len(nodes)])
    summed[: len(nodes)] = [total] * len(nodes)
    return [reduced, summed, [total] * len(xs)]


def ranks_are_neighbours(xs, nodes):
    k = len(xs) // len(nodes)
    found = three_phases(xs[: k * len(nodes)], consecutive(len(nodes), k))
    rest = xs[k * len(nodes) :]
    return [held + rest for held in found[:2]] + [[found[2][0]] * len(xs)]


def without_the_broadcast(xs, nodes):
    first, second, _ = three_phases(xs, nodes)
    return [first, second, second]


def broadcast_too_early(xs, nodes):
    first, _, third = three_phases(xs, nodes)
    return [first, third, third]


def all_ranks_hold_the_node_sum(xs, nodes):
    first, second, third = three_phases(xs, nodes)
    for node in nodes:
        for r in node:
            first[r] = first[node[0]]
            second[r] = second[node[0]] if r == node[0] else first[node[0]]
    return [first, second, third]


def sums_all_in_phase_2(xs, nodes):
    first, second, _ = three_phases(xs, nodes)
    total = sum(first)
    second = [total if any(r == node[0] for node in nodes) else x for r, x in enumerate(xs)]
    return [first, second, [total] * len(xs)]


def same_list_each_phase(xs, nodes):
    return [three_phases(xs, nodes)[2]] * 3


def mean_of_all(xs, nodes):
    first, second, third = three_phases(xs, nodes)
    mean = third[0] / np.float32(len(xs))
    second = [mean if any(r == node[0] for node in nodes) else x for r, x in enumerate(second)]
    return [first, second, [mean] * len(xs)]


THREE_PHASES = Exercise(
    "three_phases",
    three_phases,
    (
        Part(EQUAL, 2, with_nodes((consecutive(2, 2), 2), (consecutive(3, 4), 7))),
        Part(
            ODD,
            2,
            with_nodes(
                ([[0, 3], [1], [2, 4, 5]], 4), (round_robin(2, 3), 5), ([[2, 0], [3, 1]], 2)
            ),
        ),
        Part(
            EDGE,
            1,
            with_nodes((consecutive(1, 3), 2), (consecutive(3, 1), 2), (consecutive(2, 2), 0)),
        ),
    ),
    (
        Mistake(
            "you take the ranks 0 to m-1 as masters, but a master is the first rank of its node",
            first_ranks_are_masters,
            (EQUAL, ODD),
        ),
        Mistake(
            "you take the ranks of a node as neighbours, all nodes as equally large: use the lists",
            ranks_are_neighbours,
            (ODD,),
        ),
        Mistake(
            "the third phase is missing: only the masters hold the sum",
            without_the_broadcast,
            (EQUAL, ODD, EDGE),
        ),
        Mistake(
            "after phase 2 only the masters hold the sum, the other ranks still their own arrays",
            broadcast_too_early,
            (EQUAL, ODD, EDGE),
        ),
        Mistake(
            "phase 1 is a reduce, no allreduce: only the master holds the sum of its node",
            all_ranks_hold_the_node_sum,
            (EQUAL, ODD, EDGE),
        ),
        Mistake(
            "in phase 2 you add the arrays of all ranks, but the masters' sums contain these",
            sums_all_in_phase_2,
            (EQUAL, ODD, EDGE),
        ),
        Mistake(
            "all your three lists are the last one: copy what the ranks hold after each phase",
            same_list_each_phase,
            (EQUAL, ODD, EDGE),
        ),
        Mistake("you return the mean; wanted the sum", mean_of_all, (EQUAL, ODD, EDGE)),
    ),
)
