"""W1, W2, W4: which tensors PowerSGD compresses, orthogonal columns, what a rank sends."""

import math
from typing import Any

import numpy as np

from refgf.oracle.spec.calls import Outputs, select
from refgf.oracle.spec.case import Case, Given
from refgf.oracle.spec.draw import Draw, pick, random_source
from refgf.oracle.spec.ring_steps import ring_traffic
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement

Shape = tuple[int, ...] | list[int]
SHAPES = [[3], [5, 4], [0], [1], [7, 6], [2], [3, 3, 2, 8], [13], [4, 4], [2, 0]]

# ---- W1: which tensors, as which matrices ----


def factor_elements(shape: Shape, r: int) -> tuple[int, int]:
    """W1: a tensor is a matrix: its last dimension is the columns, all others together are the
    rows. If r (rows + columns) < rows columns, it is sent as two factors of r rows and r columns
    elements; every other tensor, so every vector, is sent as it is, with the first factors.

    Source: Vogels et al. 2019 compress matrices and send vectors as they are; the order of
    dimensions, and that factors must be smaller: chosen.

    -> elements in the (first, second) allreduce
    """
    columns = shape[-1] if len(shape) else 1
    rows = math.prod(shape[:-1])
    smaller = r * (rows + columns) < rows * columns
    return (r * rows, r * columns) if smaller else (rows * columns, 0)


def run_elements(module: Any, case: Case) -> Outputs:
    shapes, r = select(case, "shapes", "r").values()
    found = [module.factor_elements(tuple(shape), r) for shape in shapes]
    return {"out.elements": np.array(found, np.int64).reshape(len(shapes), 2)}


W1 = Statement("W1", factor_elements)
AXES = {"elements": ("tensor", "first, second")}
ELEMENTS = JudgedFunction(factor_elements, "W1", AXES, run=run_elements)


def some_shapes(d: Draw, count: int) -> list[list[int]]:
    return [[d.integer(1, 9) for _ in range(d.integer(1, 4))] for _ in range(count)]


ELEMENTS.fresh(lambda d: {"shapes": some_shapes(d, 9), "r": d.integer(1, 4)})


@ELEMENTS.golden
def elements() -> Cases:
    for r in (1, 2):
        why = "vectors and small matrices are sent as they are"
        yield ELEMENTS.case(f"powersgd-elements-{r}", why, shapes=SHAPES, r=r)


@W1.mistake("the first dimension is the rows, all others the columns")
def rows_first(shape, r):
    return factor_elements((shape[0], math.prod(shape[1:])) if len(shape) > 1 else shape, r)


@W1.mistake("every tensor of two dimensions or more is compressed, smaller or not")
def always_compressed(shape, r):
    if len(shape) < 2:
        return factor_elements(shape, r)
    return r * math.prod(shape[:-1]), r * shape[-1]


@W1.mistake("factors as large as the tensor are sent, too")
def no_smaller(shape, r):
    columns = shape[-1] if len(shape) else 1
    rows = math.prod(shape[:-1])
    as_large = r * (rows + columns) == rows * columns
    return (r * rows, r * columns) if as_large else factor_elements(shape, r)


# ---- W2: orthogonal columns ----


def orthogonal(p: np.ndarray) -> np.ndarray:
    """W2: columns in order: each loses its projections on those before it and is divided by its
    length. A column of which at most 2^-20 is left becomes 0.

    Source: Vogels et al. 2019 (Gram-Schmidt); which columns become 0: chosen.

    p (rows, r) -> (rows, r)
    """
    columns: list[np.ndarray] = []
    for given in p.T.astype(np.float64):
        rest = given.copy()
        for column in columns:
            rest = rest - (column * rest).sum() * column
        length, whole = (math.sqrt(float((x * x).sum())) for x in (rest, given))
        columns.append(0 * rest if length <= 2.0**-20 * whole else rest / length)
    return np.stack(columns, axis=1)


W2 = Statement("W2", orthogonal)
ORTHOGONAL = JudgedFunction(orthogonal, "W2", {"columns": ("row", "column")}, "p")
# float64's rounding times the worst condition, 2^20; columns have length 1
ORTHOGONAL.bounds(lambda case: {"columns": np.full(case["out.columns"].shape, 2.0**-32)})


@ORTHOGONAL.fresh
def any_columns(d: Draw) -> Given:
    r = d.integer(1, 4)
    p = d.normal(r + d.integer(1, 9), r, dtype="float64")
    if r > 2 and pick(d.rng, True, False):
        p[:, 1] = 3 * p[:, 0]
    return {"p": p}


@ORTHOGONAL.golden
def columns() -> Cases:
    a, b = [3.0, 0.0, 4.0, 0.0], [1000.0, 0.1, 0.3, 1.0]
    for name, why, given in (
        ("two", "two columns that share a direction", [a, b]),
        (
            "dependent",
            "a column that depends on one before it becomes 0",
            [a, np.multiply(3, a), b],
        ),
        ("zero", "a column of zeros stays 0", [[0.0] * 4, b, a]),
        ("one", "one column is divided by its length", [b]),
        ("nothing", "one row", [[0.3]]),
    ):
        case = ORTHOGONAL.case(f"orthogonal-{name}", why, p=np.array(given, np.float64).T)
        yield ORTHOGONAL.within(case)
    p = random_source("orthogonal-many").standard_normal((9, 3))
    case = ORTHOGONAL.within(ORTHOGONAL.case("orthogonal-many", "three columns of 9 rows", p=p))
    product = case["out.columns"].T @ case["out.columns"]
    yield case.shows(np.abs(product - np.eye(3)).max() < 1e-12, "orthogonal, of length 1")


@W2.mistake("columns are divided by their length, but keep their projections on others")
def lengths_alone(p):
    return np.concatenate([orthogonal(p[:, j : j + 1]) for j in range(p.shape[1])], axis=1)


@W2.mistake("a dependent column becomes noise of length 1, which the sum then has twice")
def noise(p):
    found = orthogonal(p)
    found[:, ~found.any(axis=0)] = len(p) ** -0.5
    return found


@W2.mistake("columns are orthogonal, but not of length 1")
def any_length(p):
    found = orthogonal(p)
    return found * (found * p).sum(axis=0)


@W2.mistake("the last column comes first")
def backwards(p):
    return orthogonal(p[:, ::-1])[:, ::-1]


# ---- W4: what is sent ----


def powersgd_traffic(
    shapes: list[Shape], r: int, p: int, rank: int, itemsize: int = 4
) -> tuple[int, int]:
    """W4: a step is two ring allreduces (R6): of all first factors with the tensors that are sent
    as they are, and of all second factors. One of no elements is left out.

    Source: Vogels et al. 2019: factors are packed and summed by allreduce; vectors with the first
    factors: chosen.

    -> (messages, bytes) that a rank sends
    """
    sums = np.array([factor_elements(shape, r) for shape in shapes], int).reshape(-1, 2).sum(axis=0)
    calls = [ring_traffic(int(k), p, rank) for k in sums if k]
    return sum(m for m, _ in calls), itemsize * sum(k for _, k in calls)


def run_traffic(module: Any, case: Case) -> Outputs:
    shapes, r, p, itemsize = select(case, "shapes", "r", "p", "itemsize").values()
    given = [tuple(shape) for shape in shapes]
    sent = [module.powersgd_traffic(given, r, p, rank, itemsize) for rank in range(p)]
    return {"out.traffic": np.array(sent, np.int64)}


W4 = Statement("W4", powersgd_traffic)
TRAFFIC = JudgedFunction(
    powersgd_traffic, "W4", {"traffic": ("rank", "messages, bytes")}, run=run_traffic
)


@TRAFFIC.fresh
def any_traffic(d: Draw) -> Given:
    """Few ranks: an implementation may count by sending."""
    sizes = {"r": d.integer(1, 3), "p": min(d.p, 12), "itemsize": pick(d.rng, 4, 8)}
    return {"shapes": some_shapes(d, d.integer(0, 5)), **sizes}


@TRAFFIC.golden
def traffic_cases() -> Cases:
    for p in (1, 3, 5):
        why = "two rings: first factors and vectors, second factors"
        given: Given = {"shapes": SHAPES, "r": 2, "p": p, "itemsize": 4}
        yield TRAFFIC.case(f"powersgd-traffic-p{p}", why, **given)
    for name, shapes in (("vectors", [[3], [13]]), ("nothing", []), ("one", [[9, 8]])):
        given = {"shapes": shapes, "r": 1, "p": 4, "itemsize": 8}
        yield TRAFFIC.case(
            f"powersgd-traffic-{name}", "an allreduce of nothing is left out", **given
        )


@W4.mistake("tensors that are sent as they are have an allreduce of their own")
def three_calls(shapes, r, p, rank, itemsize=4):
    pairs = [factor_elements(shape, r) for shape in shapes]
    sums = [
        sum(a for a, b in pairs if b),
        sum(b for _, b in pairs),
        sum(a for a, b in pairs if not b),
    ]
    calls = [ring_traffic(k, p, rank) for k in sums if k]
    return sum(m for m, _ in calls), itemsize * sum(k for _, k in calls)


@W4.mistake("factors are gathered: what a rank sends grows with p")
def gathered(shapes, r, p, rank, itemsize=4):
    sums = np.array([factor_elements(shape, r) for shape in shapes], int).reshape(-1, 2).sum(axis=0)
    return (p - 1) * int((sums > 0).sum()), (p - 1) * itemsize * int(sums.sum())


@W4.mistake("the second factors are not counted")
def first_alone(shapes, r, p, rank, itemsize=4):
    messages, elements = ring_traffic(sum(factor_elements(s, r)[0] for s in shapes), p, rank)
    return messages, itemsize * elements


@W4.mistake("every matrix has two allreduces of its own")
def one_by_one(shapes, r, p, rank, itemsize=4):
    sent = [powersgd_traffic([shape], r, p, rank, itemsize) for shape in shapes]
    return sum(m for m, _ in sent), sum(b for _, b in sent)
