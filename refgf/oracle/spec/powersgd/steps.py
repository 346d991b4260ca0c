"""W3: a step of PowerSGD, with error feedback and warm start."""

from typing import Any

import numpy as np

from refgf.oracle.spec.calls import Outputs, select, steps_of
from refgf.oracle.spec.case import Case, Given
from refgf.oracle.spec.draw import Draw, pick, random_source
from refgf.oracle.spec.powersgd.factors import Shape, factor_elements, orthogonal
from refgf.oracle.spec.ring import Arrays
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement


def low_rank_sum(ms: Arrays, q: np.ndarray) -> tuple[np.ndarray, np.ndarray, Arrays]:
    """W3: M is a rank's gradient with its error. All ranks have the same Q: P is the sum over ranks
    of M Q, made orthogonal (W2), the new Q is the sum of M^T P, and the sum of all M is taken for P
    Q^T. The error of a rank is M - P (M^T P)^T. The new Q starts the next step, but a column of it
    that is 0 stays as it was. Tensors that are sent as they are have no error.

    Source: Vogels et al. 2019, algorithms 1 and 2 (their mean of gradients: a sum); the error of a
    rank's own product, and the column that stays: chosen.

    ms: p arrays (rows, columns), q (columns, r) -> (the sum, q, errors)
    """
    p = orthogonal(np.sum([m @ q for m in ms], axis=0))
    own = [m.T @ p for m in ms]
    total = np.sum(own, axis=0)
    return p @ total.T, next_q(total, q), [m - p @ mine.T for m, mine in zip(ms, own)]


def next_q(total: np.ndarray, q: np.ndarray) -> np.ndarray:
    return np.where((total == 0).all(axis=0), q, total)


def powersgd_run(
    shapes: list[Shape], q: np.ndarray, gs: list[Arrays], r: int, feedback: bool = True
) -> list[dict[str, Any]]:
    """W3 for T steps. q: the first Q of each compressed tensor, flat, in order. gs[t][rank] (n,)

    feedback False: no error is kept. -> per step {"x": the sum, "kept": errors}, p arrays each
    """
    q, kept, reports = q.copy(), [np.zeros_like(g) for g in gs[0]], []
    for step in gs:
        ms = [g + error for g, error in zip(step, kept)]
        x, kept, start, place = np.sum(ms, axis=0), [np.zeros_like(m) for m in ms], 0, 0
        for shape in shapes:
            part = slice(start, start + int(np.prod(shape)))
            start, length = part.stop, factor_elements(shape, r)[1]
            if length:
                own = slice(place, place + length)
                place, columns = own.stop, shape[-1]
                matrices = [m[part].reshape(-1, columns) for m in ms]
                total, after, errors = low_rank_sum(matrices, q[own].reshape(columns, r))
                x[part], q[own] = total.reshape(-1), after.reshape(-1)
                for rank, error in enumerate(errors if feedback else []):
                    kept[rank][part] = error.reshape(-1)
        reports.append({"x": [x.copy() for _ in ms], "kept": kept})
    return reports


def run_steps(module: Any, case: Case) -> Outputs:
    shapes, r, feedback = select(case, "shapes", "r", "feedback").values()
    given = [tuple(shape) for shape in shapes]
    steps = module.powersgd_run(given, case["in.q"].copy(), steps_of(case["in.g"]), r, feedback)
    return {f"out.{key}": np.array([step[key] for step in steps]) for key in AXES}


TENSORS = [[3], [5, 4], [0], [2, 2, 3]]
W3 = Statement("W3", low_rank_sum)
AXES = {key: ("step", "rank", "element") for key in ("x", "kept")}
RUN = JudgedFunction(powersgd_run, "W1 W2 W3", AXES, "q g", run_steps)


@RUN.bounds
def rounding(case: Case) -> Given:
    """float64's rounding times the worst condition that W2 leaves, 2^20, of all gradients."""
    bound = 2.0**-32 * np.abs(case["in.g"]).sum()
    return {key: np.full(case[f"out.{key}"].shape, bound) for key in AXES}


def given(
    shapes: list[list[int]], p: int, r: int, rng: np.random.Generator, steps: int = 2
) -> Given:
    n = sum(int(np.prod(shape)) for shape in shapes)
    q = rng.standard_normal(sum(factor_elements(shape, r)[1] for shape in shapes))
    g = rng.standard_normal((steps, p, n))
    return {"shapes": shapes, "r": r, "feedback": True, "q": q, "g": g}


@RUN.fresh
def any_steps(d: Draw) -> Given:
    r = d.integer(1, 3)
    shapes = [
        [r + d.integer(3, 6), r + d.integer(4, 7)],
        [d.integer(0, 3)],
        [2, 3, d.integer(2, 6)],
    ]
    return given(shapes, min(d.p, 12), r, d.rng, 3) | {"feedback": pick(d.rng, True, True, False)}


@RUN.golden
def run_cases() -> Cases:
    for p, r in ((1, 2), (2, 1), (3, 2)):
        arrays = given(TENSORS, p, r, random_source(f"powersgd-p{p}-r{r}"))
        case = RUN.within(RUN.case(f"powersgd-p{p}-r{r}", "two steps, errors fed back", **arrays))
        yield case.shows(case["out.kept"].any(), "something is kept")
    arrays = given(TENSORS, 2, 1, random_source("powersgd-dropped")) | {"feedback": False}
    yield RUN.within(RUN.case("powersgd-dropped", "two steps without error feedback", **arrays))
    arrays = given([[3, 2], [1]], 2, 1, random_source("powersgd-zeros"))
    arrays["g"][0] = 0  # no direction yet
    case = RUN.within(RUN.case("powersgd-zeros", "a step of zeros, then another", **arrays))
    yield case.shows(case["out.x"][1, :, :6].any(), "what was 0 comes back")
    arrays = given([], 3, 2, random_source("powersgd-nothing"))
    yield RUN.within(RUN.case("powersgd-nothing", "no tensors", **arrays))


@W3.mistake("each rank makes its own P orthogonal, before the sum")
def orthogonal_too_early(ms, q):
    p = np.sum([orthogonal(m @ q) for m in ms], axis=0)
    own = [m.T @ p for m in ms]
    total = np.sum(own, axis=0)
    return p @ total.T, next_q(total, q), [m - p @ mine.T for m, mine in zip(ms, own)]


@W3.mistake("the error is lost")
def no_error(ms, q):
    total, after, errors = low_rank_sum(ms, q)
    return total, after, [0 * error for error in errors]


@W3.mistake("no warm start: every step begins with the first Q")
def cold(ms, q):
    total, _, errors = low_rank_sum(ms, q)
    return total, q, errors


@W3.mistake("P is not made orthogonal")
def not_orthogonal(ms, q):
    p = np.sum([m @ q for m in ms], axis=0)
    own = [m.T @ p for m in ms]
    total = np.sum(own, axis=0)
    return p @ total.T, next_q(total, q), [m - p @ mine.T for m, mine in zip(ms, own)]


@W3.mistake("divided by p")
def averaged(ms, q):
    total, after, errors = low_rank_sum(ms, q)
    return total / len(ms), after, errors


@W3.mistake("a column of Q that becomes 0 stays 0 for ever")
def zero_for_ever(ms, q):
    total, after, errors = low_rank_sum(ms, q)
    return total, after if any(m.any() for m in ms) else 0 * after, errors
