"""Exercise shards(n, nodes): given in the starter."""

from refgf.oracle import definitions
from refgf.oracle.grade.exercises.before import Exercise, Part


def several_nodes(random):
    return [(int(random.integers(20, 400)), [[0, 1], [2, 3]]), (23, [[0, 3], [1, 4], [2]])]


def one_node(random):
    drawn = int(random.integers(6, 400)), [[0, 1]]
    return [(5, [[0, 1]]), (1, [[0], [1]]), (0, [[0]]), drawn]


SHARDS = Exercise(
    "shards",
    definitions.node_shards,
    (
        Part("several nodes", 1, several_nodes),
        Part("one node, fewer samples than nodes, no samples", 1, one_node),
    ),
)
