"""Exercise node_means(gradients, k): given in the starter."""

import numpy as np

from refgf.oracle.grade.exercises.before import Exercise, Part


def node_means(gradients, k):
    return np.array([gradients[i : i + k].mean(axis=0) for i in range(0, len(gradients), k)])


NODE_MEANS = Exercise(
    "node_means",
    node_means,
    (
        Part(
            "several nodes",
            1,
            lambda random: [(random.standard_normal((m * k, 5)), k) for m, k in ((2, 2), (3, 4))],
        ),
        Part(
            "one node, one rank a node",
            1,
            lambda random: [(random.standard_normal((4, 3)), k) for k in (4, 1)],
        ),
    ),
    relative=1e-12,  # the sum may be in another order: a few roundings of 1e-16
)
