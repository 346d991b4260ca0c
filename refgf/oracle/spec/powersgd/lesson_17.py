"""Lesson 17: which elements are sent, orthogonal columns, a sum of low rank, bytes as p grows."""

import numpy as np

from refgf.oracle.spec.exercise import Arguments, Drawn, Exercise, tenths
from refgf.oracle.spec.powersgd.factors import factor_elements, no_smaller, orthogonal
from refgf.oracle.spec.powersgd.steps import (
    averaged,
    low_rank_sum,
    not_orthogonal,
    orthogonal_too_early,
    zero_for_ever,
)


def some_shapes(*lengths: int) -> Drawn:
    def cases(random: np.random.Generator) -> list[Arguments]:
        shapes = [tuple(map(int, random.integers(2, 9, count))) for count in lengths * 6]
        return [(shape, int(random.integers(1, 4))) for shape in shapes] + [((4, 4), 2)]

    return cases


ELEMENTS_17 = Exercise("17.1", factor_elements)
ELEMENTS_17.part("matrices and vectors", 1, some_shapes(1, 2))
ELEMENTS_17.part("more dimensions", 1, some_shapes(3, 4))
ELEMENTS_17.mistake("factors that are not smaller are not sent: r (rows + columns) < rows columns")(
    no_smaller
)


# ---- orthogonal columns ----


def columns(r: int, *dependent: int) -> Drawn:
    """Matrices of r columns; the dependent ones are nearly three times the first."""

    def cases(random: np.random.Generator) -> list[Arguments]:
        found = []
        for rows in (r + 1, r + 4):
            p = tenths(random, rows, r, dtype=np.float64) + np.eye(rows, r)
            p[:, list(dependent)] = 3 * p[:, :1]
            for j in dependent:  # a little is left, which is dropped
                rest = orthogonal(np.column_stack([p, tenths(random, rows)]))[:, -1]
                p[:, j] += 0.75 * 2.0**-20 * np.linalg.norm(p[:, j]) * rest
            found.append((p,))
        return found

    return cases


ORTHOGONAL_17 = Exercise("17.2", orthogonal, relative=1e-9)
ORTHOGONAL_17.part("one column", 1, columns(1))
ORTHOGONAL_17.part("two columns", 1, columns(2))
ORTHOGONAL_17.part(
    "three or four columns", 1, lambda random: [*columns(3)(random), *columns(4)(random)]
)
ORTHOGONAL_17.part("a column that depends on those before it is 0", 1, columns(3, 1))


@ORTHOGONAL_17.mistake("a column loses its projections on all columns before it, not on one")
def last_alone(p):
    found: list[np.ndarray] = []
    for column in p.T.astype(np.float64):
        if found:
            column = column - (found[-1] @ column) * found[-1]
        length = np.sqrt(column @ column)
        found.append(column / length if length > 1e-9 else 0 * column)
    return np.stack(found, axis=1)


@ORTHOGONAL_17.mistake("each column is divided by its length, but others are not taken out of it")
def lengths_17(p):
    return p / np.sqrt((p * p).sum(axis=0))


@ORTHOGONAL_17.mistake(
    "what is left of a dependent column is noise, and more than 0: compare it with the whole column"
)
def noise_17(p):
    found: list[np.ndarray] = []
    for rest in p.T.astype(np.float64):
        for column in found:
            rest = rest - (column @ rest) * column
        length = np.linalg.norm(rest)
        found.append(rest / length if length > 0 else rest)
    return np.stack(found, axis=1)


@ORTHOGONAL_17.mistake(
    "np.linalg.qr may turn a column round, and makes something of a dependent one: write the steps"
)
def qr_17(p):
    return np.linalg.qr(p)[0]


# ---- the sum ----


def matrices(p: int, r: int, zeros: bool = False) -> Drawn:
    """Both sides are larger than r < 3: no error is a 0 that only its rounding fills."""

    def cases(random: np.random.Generator) -> list[Arguments]:
        found = []
        for rows, count in ((r + 1, 3), (3, r + 1)):
            q = tenths(random, count, r, dtype=np.float64) + np.eye(count, r)
            ms = [tenths(random, rows, count, dtype=np.float64) for _ in range(p)]
            found.append(([m * (not zeros) for m in ms], q))
        return found

    return cases


def some_zeros(random: np.random.Generator) -> list[Arguments]:
    """The sum has rank 1, so that one of two columns of q stays; a column of all matrices is 0."""
    q = tenths(random, 3, 2, dtype=np.float64) + np.eye(3, 2)
    ms = [tenths(random, 3, 3, dtype=np.float64) for _ in range(2)]
    one_row = [ms[0], np.outer([1.0, 2.0, -1.0], ms[1][0]) - ms[0]]
    return [(one_row, q), ([m * [1.0, 0.0, 1.0] for m in ms], q)]


SUM_17 = Exercise("17.3", low_rank_sum, relative=1e-6)
SUM_17.part("one rank, r = 1", 1, matrices(1, 1))
SUM_17.part(
    "several ranks, r = 1", 2, lambda random: [*matrices(2, 1)(random), *matrices(3, 1)(random)]
)
SUM_17.part(
    "r = 2",
    1,
    lambda random: [*matrices(2, 2)(random), *matrices(5, 2)(random), *some_zeros(random)],
)
SUM_17.part("gradients of zeros: q stays", 1, matrices(2, 1, zeros=True))
SUM_17.mistake("P is made orthogonal after the sum over ranks, not before")(orthogonal_too_early)
SUM_17.mistake("P is made orthogonal before it meets M again")(not_orthogonal)
SUM_17.mistake("do not divide by p: the losses are already divided by the global batch")(averaged)


@SUM_17.mistake(
    "the paper takes the mean; here the next q is the sum, and stands for the sum of ms"
)
def mean_throughout(ms, q):
    p = orthogonal(np.mean([m @ q for m in ms], axis=0))
    own = [m.T @ p for m in ms]
    after = np.mean(own, axis=0)
    errors = [m - p @ mine.T for m, mine in zip(ms, own)]
    return p @ after.T, np.where(after.any(axis=0), after, q), errors


@SUM_17.mistake("a rank's error is what its own product leaves, not what the mean of all leaves")
def error_of_mean(ms, q):
    total, after, _ = low_rank_sum(ms, q)
    return total, after, [m - total / len(ms) for m in ms]


@SUM_17.mistake("a rank's error is what its own product leaves, m - P (m^T P)^T")
def error_of_sum(ms, q):
    total, after, _ = low_rank_sum(ms, q)
    return total, after, [m - total for m in ms]


SUM_17.mistake("a column of q that becomes 0 stays as it was, or that direction is lost for ever")(
    zero_for_ever
)


# ---- bytes ----

BYTES = {"floats": (4, True), "votes": (2, True), "signs": (1 / 8, False), "pairs": (8, False)}


def sent_bytes(what: str, k: int, p: int) -> float:
    """Bytes that one of p ranks sends: k floats or votes are summed, k signs or pairs gathered."""
    each, summed = BYTES[what]
    return (2 * (p - 1) / p if summed else p - 1) * each * k


def of_kinds(*kinds: str) -> Drawn:
    def cases(random: np.random.Generator) -> list[Arguments]:
        ps = (2, 8, int(random.integers(9, 300)))
        return [(kind, 8 * p * int(random.integers(1, 99)), p) for p in ps for kind in kinds]

    return cases


SENT_17 = Exercise("17.4", sent_bytes, relative=1e-12)
SENT_17.part("floats", 1, of_kinds("floats"))
SENT_17.part("pairs", 1, of_kinds("pairs"))
SENT_17.part("signs and votes", 2, of_kinds("signs", "votes"))
SENT_17.part(
    "one rank sends nothing", 1, lambda random: [("pairs", int(random.integers(9, 99_999)), 1)]
)


@SENT_17.mistake("pairs and signs differ from rank to rank: they are gathered, not summed")
def all_summed(what, k, p):
    return 2 * (p - 1) / p * BYTES[what][0] * k


@SENT_17.mistake("a pair has a value and an index, 4 bytes each")
def values_alone(what, k, p):
    return sent_bytes(what, k, p) / (2 if what == "pairs" else 1)


@SENT_17.mistake("a sum of p votes does not fit one bit: a vote is a 16-bit counter")
def bits_for_votes(what, k, p):
    return sent_bytes(what, k, p) / (16 if what == "votes" else 1)


@SENT_17.mistake("a sign is one bit, a vote a 16-bit counter")
def bytes_for_bits(what, k, p):
    return sent_bytes(what, k, p) * {"signs": 8, "votes": 0.5}.get(what, 1)
