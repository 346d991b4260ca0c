"""Exercise two_levels(xs, nodes)."""

import numpy as np

from refgf.oracle.definitions import slice_bounds, two_level_allreduce
from refgf.oracle.grade.exercises.before import Exercise, Mistake, Part
from refgf.oracle.grade.exercises.lesson_10.cases import consecutive, with_nodes

DIVIDES, ANY = "k divides n", "k does not divide n"
DEALT, FEW = "ranks round robin", "n < k, one node, one rank a node"


def two_levels(xs, nodes, cut=slice_bounds, owner=None, sums=True):
    """The keywords make typical mistakes. owner: (rank, place in the node, node) -> slice."""
    k, scattered, summed = len(nodes[0]), list(xs), list(xs)
    bounds = cut(len(xs[0]), k)
    owned = {}
    for i, node in enumerate(nodes):
        for j, r in enumerate(node):
            owned[r] = owner(r, j, i) % k if owner else j
            start, stop = bounds[owned[r]]
            scattered[r] = np.sum([xs[other][start:stop] for other in node], axis=0)
    for r in owned:
        same = [scattered[other] for other in owned if owned[other] == owned[r]]
        summed[r] = np.sum(same, axis=0) if sums else scattered[r]
    whole = [[summed[r] for r in sorted(node, key=owned.get)] for node in nodes]
    held = {r: np.concatenate(own) for node, own in zip(nodes, whole) for r in node}
    return [scattered, summed, [held[r] for r in range(len(xs))]]


def two_levels_wanted(xs, nodes):
    return [*two_levels(xs, nodes)[:2], two_level_allreduce(xs, nodes)]


def equal_slices(xs, nodes):
    return two_levels(
        xs, nodes, lambda n, k: [(j * (n // k), (j + 1) * (n // k)) for j in range(k)]
    )


def rest_to_the_last(xs, nodes):
    def cut(n, k):
        return [(j * (n // k), n if j == k - 1 else (j + 1) * (n // k)) for j in range(k)]

    return two_levels(xs, nodes, cut)


def slices_of_all_ranks(xs, nodes):
    return two_levels(xs, nodes, lambda n, k: slice_bounds(n, len(xs))[:k])


def owner_by_rank(xs, nodes):
    return two_levels(xs, nodes, owner=lambda rank, place, node: rank)


def owner_one_on(xs, nodes):
    return two_levels(xs, nodes, owner=lambda rank, place, node: place + 1)


def without_step_2(xs, nodes):
    return two_levels(xs, nodes, sums=False)


def without_step_3(xs, nodes):
    first, second, _ = two_levels(xs, nodes)
    return [first, second, second]


def own_slices_only(xs, nodes):
    """Step 1 does not add."""
    k = len(nodes[0])
    place = {r: j for node in nodes for j, r in enumerate(node)}
    bounds = [slice_bounds(len(x), k)[place[r]] for r, x in enumerate(xs)]
    first = [x[start:stop] for x, (start, stop) in zip(xs, bounds)]
    columns = [np.sum([first[node[j]] for node in nodes], axis=0) for j in range(k)]
    second = [columns[place[r]] for r in range(len(xs))]
    return [first, second, [np.concatenate(columns)] * len(xs)]


TWO_LEVELS = Exercise(
    "two_levels",
    two_levels_wanted,
    (
        Part(DIVIDES, 2, with_nodes((consecutive(2, 2), 4), (consecutive(3, 4), 8))),
        Part(ANY, 1, with_nodes((consecutive(2, 2), 3), (consecutive(3, 4), 7))),
        Part(DEALT, 1, with_nodes(([[3, 0], [1, 2]], 4), ([[0, 4, 2], [5, 1, 3]], 9))),
        Part(
            FEW,
            1,
            with_nodes(
                (consecutive(1, 2), 3),
                (consecutive(3, 1), 2),
                (consecutive(2, 3), 1),
                (consecutive(2, 2), 0),
            ),
        ),
    ),
    (
        Mistake("your last elements are lost when k does not divide n", equal_slices, (ANY, FEW)),
        Mistake(
            "your last slice takes the whole rest; wanted: the first n mod k are one longer",
            rest_to_the_last,
            (ANY, FEW),
        ),
        Mistake(
            "you cut into p slices; wanted k, one for each rank of a node",
            slices_of_all_ranks,
            (DIVIDES, ANY, DEALT, FEW),
        ),
        Mistake(
            "the owner of slice j is the j-th rank in its node's list, not the rank r with "
            "r mod k = j",
            owner_by_rank,
            (DEALT,),
        ),
        Mistake(
            "your owners are shifted by one: the j-th rank of a node is the owner of slice j",
            owner_one_on,
            (DIVIDES, ANY, DEALT, FEW),
        ),
        Mistake(
            "in step 1 you cut but do not add: the owner adds its slice of all ranks of the node",
            own_slices_only,
            (DIVIDES, ANY, DEALT, FEW),
        ),
        Mistake(
            "in step 2 you do not add over the nodes: each node ends with its own sum",
            without_step_2,
            (DIVIDES, ANY, DEALT, FEW),
        ),
        Mistake(
            "step 3 is missing: each rank ends with its own slice only",
            without_step_3,
            (DIVIDES, ANY, DEALT, FEW),
        ),
    ),
)
