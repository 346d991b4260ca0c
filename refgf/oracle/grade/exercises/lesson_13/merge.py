"""Exercise merge(w, total, nodes, waited)."""

import numpy as np

from refgf.oracle.definitions import daso_merge
from refgf.oracle.grade.exercises.before import Exercise, Mistake, Part
from refgf.oracle.spec.exercise import tenths

LATE, AT_ONCE = "a late sum", "a sum that is received at once"


def merge(w, total, nodes, waited):
    return daso_merge(w, total, nodes, waited) if waited else total / w.dtype.type(nodes)


def weight_of_1_a_batch(w, total, nodes, waited):
    return (waited * w + total) / (waited + nodes)


def mean_as_one_node(w, total, nodes, waited):
    return (2 * waited * w + total / nodes) / (2 * waited + 1)


def divides_by_one_node(w, total, nodes, waited):
    return (2 * waited * w + total) / (2 * waited + 1)


def replaces(w, total, nodes, waited):
    return total / nodes


def half_and_half(w, total, nodes, waited):
    return (w + total / nodes) / 2


def own_weight_at_least_1(w, total, nodes, waited):
    return daso_merge(w, total, nodes, waited)


def float64_result(w, total, nodes, waited):
    return merge(w, total, nodes, waited).astype(np.float64)


def sums(waits):
    """Cases of merge with 3 and more nodes."""

    def cases(random):
        found = []
        for waited in waits:
            nodes = int(random.integers(3, 20))
            w, shift = tenths(random, 2, 3)
            found.append((w, (nodes * (w + shift)).astype(np.float32), nodes, waited))
        return found

    return cases


MERGE = Exercise(
    "merge",
    merge,
    (Part(LATE, 2, sums((1, 2, 4))), Part(AT_ONCE, 1, sums((0, 0)))),
    (
        Mistake("w has the weight 2 waited, not waited", weight_of_1_a_batch, (LATE,)),
        Mistake(
            "you give all nodes together the weight 1; each has the weight 1, together m",
            mean_as_one_node,
            (LATE,),
        ),
        Mistake(
            "you do not divide by the sum of all weights, 2 waited + nodes",
            divides_by_one_node,
            (LATE, AT_ONCE),
        ),
        Mistake(
            "you replace w by the mean of the sum: what this node did while it waited is lost",
            replaces,
            (LATE,),
        ),
        Mistake(
            "you take half of each; the weights depend on the nodes and on the batches waited",
            half_and_half,
            (LATE, AT_ONCE),
        ),
        Mistake(
            "a sum that is received at once replaces w: w has the weight 0",
            own_weight_at_least_1,
            (AT_ONCE,),
        ),
        Mistake("your result is float64: parameters stay float32", float64_result, (LATE, AT_ONCE)),
    ),
    relative=1e-6,  # float32, and the three operations may be in another order
)
