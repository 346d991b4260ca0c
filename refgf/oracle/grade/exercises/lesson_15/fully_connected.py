"""Exercise fully_connected(batch, inputs, outputs): given in the starter."""

from refgf.oracle.grade.exercises.before import Exercise, Part


def fully_connected(batch, inputs, outputs):
    flops = 2 * batch * inputs * outputs
    return flops, 4 * (batch * (inputs + outputs) + inputs * outputs)


def ones(random):
    return [(1, 64, 32), (8, 64, 1), (1, *random.integers(2, 500, 2).tolist())]


LAYER = Exercise(
    "fully_connected",
    fully_connected,
    (
        Part("several images", 1, lambda random: [tuple(random.integers(2, 500, 3).tolist())]),
        Part("one image, one output", 1, ones),
    ),
)
