"""Exercise step_bytes(n, percent, p, value_bytes)."""

from refgf.oracle.definitions import keep_count, ring_traffic, topk_traffic
from refgf.oracle.grade.exercises.before import Exercise, Mistake, Part
from refgf.oracle.grade.exercises.lesson_12.keep_count import rounded_down

FLOAT32, HALF = "float32 values", "16-bit values"
ROUNDED, SINGLE = "k is rounded up", "one rank sends nothing"


def step_bytes(n, percent, p, value_bytes):
    """(dense, top-k), as floats, so that a student's may be whole numbers or not."""
    dense = value_bytes * ring_traffic(n, p, 0)[1]
    sparse = topk_traffic(n, [list(range(p))], percent, 0, itemsize=value_bytes)[1]
    return float(dense), float(sparse)


def without_indices(n, percent, p, value_bytes):
    dense, sparse = step_bytes(n, percent, p, value_bytes)
    return dense, sparse * value_bytes / (value_bytes + 4)


def indices_as_wide_as_values(n, percent, p, value_bytes):
    dense, sparse = step_bytes(n, percent, p, value_bytes)
    return dense, sparse * 2 * value_bytes / (value_bytes + 4)


def pairs_to_itself_too(n, percent, p, value_bytes):
    dense, _ = step_bytes(n, percent, p, value_bytes)
    return dense, float(p * keep_count(n, percent) * (value_bytes + 4))


def pairs_summed_like_slices(n, percent, p, value_bytes):
    dense, sparse = step_bytes(n, percent, p, value_bytes)
    return dense, 2 * sparse / p


def one_phase(n, percent, p, value_bytes):
    dense, sparse = step_bytes(n, percent, p, value_bytes)
    return dense / 2, sparse


def whole_vectors(n, percent, p, value_bytes):
    dense, sparse = step_bytes(n, percent, p, value_bytes)
    return dense * p, sparse


def k_rounded_down(n, percent, p, value_bytes):
    dense, _ = step_bytes(n, percent, p, value_bytes)
    return dense, float((p - 1) * rounded_down(n, percent) * (value_bytes + 4))


def pools(value_bytes):
    """p divides n, and k is whole. p is not 2, where a ring sends as much as an allgather."""

    def cases(random):
        ps = [4, int(random.integers(5, 20))]
        return [
            (100 * p * int(random.integers(1, 999)), percent, p, value_bytes)
            for p, percent in zip(ps, (1, 10))
        ]

    return cases


def rounded_up(random):
    drawn = 100 * int(random.integers(9, 999)) + 50
    return [(250, 1, 5, 4), (900, 0.5, 3, 4), (drawn, 1, 5, 4)]


BYTES = Exercise(
    "step_bytes",
    step_bytes,
    (
        Part(FLOAT32, 1, pools(4)),
        Part(HALF, 1, pools(2)),
        Part(ROUNDED, 1, rounded_up),
        Part(SINGLE, 1, lambda random: [(int(random.integers(1, 999)) * 100, 1, 1, 4)]),
    ),
    (
        Mistake(
            "you forget the indices: 4 bytes for each value that is sent",
            without_indices,
            (FLOAT32, HALF, ROUNDED),
        ),
        Mistake(
            "an index has 4 bytes, whatever the bytes of a value",
            indices_as_wide_as_values,
            (HALF,),
        ),
        Mistake(
            "a rank sends its pairs to the p-1 other ranks, not to itself",
            pairs_to_itself_too,
            (FLOAT32, HALF, ROUNDED, SINGLE),
        ),
        Mistake(
            "you count pairs as a ring's slices: they cannot be summed on the way, so all p-1 "
            "other ranks need all of a rank's pairs",
            pairs_summed_like_slices,
            (FLOAT32, HALF, ROUNDED),
        ),
        Mistake(
            "you count one phase of the dense ring: reduce-scatter and allgather make two",
            one_phase,
            (FLOAT32, HALF, ROUNDED),
        ),
        Mistake(
            "a step of the dense ring sends one of p slices, not all elements",
            whole_vectors,
            (FLOAT32, HALF, ROUNDED),
        ),
        Mistake("you round k down; wanted up: call keep_count", k_rounded_down, (ROUNDED,)),
    ),
    relative=1e-12,  # 2 (p-1) / p may be rounded before it is multiplied
)
