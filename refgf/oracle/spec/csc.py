"""C1 to C7: the functions of coarse-grained sparse communication. csc_step.py has the whole step.

The pool of n gradients is cut into chunks; only chosen chunks are sent. The rest is kept as each
rank's residual: h, or u and v.

    form         accumulated gradient a    residual of a chosen chunk   residual of another chunk
    none         g + h                     h = 0                        h = g + h
    history      g + h                     h = 0                        h = m (g + h)
    dgc          v + (m u + g)             v = 0, u = m u + g           v = a, u = m u + g
    dgc_masked   v + (m u + g)             v = 0, u = 0                 v = a, u = m u + g
"""

import math

import numpy as np

from refgf.oracle.spec.ring import Arrays
from refgf.oracle.spec.sums import exact_sum

FORMS = ("dgc", "dgc_masked", "history", "none")
Residual = dict[str, np.ndarray]  # {"u", "v"} or {"h"}, arrays (n,)


def chunk_bounds(n: int, chunk: int) -> list[tuple[int, int]]:
    """C1: chunks of `chunk` elements; the last one is shorter where n is not divisible."""
    return [(start, min(start + chunk, n)) for start in range(0, n, chunk)]


def zero_residual(form: str, n: int, dtype: type = np.float32) -> Residual:
    """The residual before the first step."""
    return {name: np.zeros(n, dtype) for name in ("uv" if form.startswith("dgc") else "h")}


def accumulated_gradient(
    form: str, residual: Residual, g: np.ndarray, momentum: float
) -> np.ndarray:
    """C2: what each element sends if its chunk is chosen, before anything is cleared. -> (n,)"""
    if form.startswith("dgc"):
        return residual["v"] + (g.dtype.type(momentum) * residual["u"] + g)
    return g + residual["h"]


def next_residual(
    form: str,
    residual: Residual,
    g: np.ndarray,
    momentum: float,
    sent: np.ndarray,
    dense: bool = False,
) -> Residual:
    """C3: the residual after the step. sent: bool (n,), True in chosen chunks.

    Factor masking (dgc_masked) clears u on chosen chunks, but never in a dense step, where u is
    ordinary momentum. In such a step DGC's code forms u of the average over ranks; here every rank
    forms it of its own g, so that the mean of all u is DGC's.
    """
    m, a = g.dtype.type(momentum), accumulated_gradient(form, residual, g, momentum)
    zero = np.zeros_like(g)
    if form.startswith("dgc"):
        u = m * residual["u"] + g
        masked = form == "dgc_masked" and not dense
        return {"u": np.where(sent, zero, u) if masked else u, "v": np.where(sent, zero, a)}
    return {"h": np.where(sent, zero, m * a if form == "history" else a)}


def importance(per_rank: Arrays, chunk: int) -> np.ndarray:
    """C4: per chunk, the sum over ranks of the L1 norms, divided by the chunk's length.

    Sums are exact and rounded once to float64, then divided. per_rank: each rank's accumulated
    gradient (C2) or, with the option `after`, its v or h after C3. p arrays (n,) -> float64 (C,)
    """
    values = []
    for start, stop in chunk_bounds(len(per_rank[0]), chunk):
        magnitudes = [np.abs(a[e : e + 1]) for a in per_rank for e in range(start, stop)]
        values.append(exact_sum(magnitudes)[0] / (stop - start))
    return np.array(values, np.float64)


def choose(values: np.ndarray, percent: float) -> list[int]:
    """C5: the max(1, ceil(C * percent / 100)) most important of C chunks, ascending.

    Ties go to the lower number.
    """
    count = max(1, math.ceil(len(values) * percent / 100))
    return sorted(sorted(range(len(values)), key=lambda c: (-values[c], c))[:count])


def percent_of_step(
    step: int, steps_per_epoch: int, warmup_percents: list[float], percent: float
) -> tuple[float, bool]:
    """C6: density of a step, counted from 0. -> (percent, dense)

    There is one density per warm-up epoch, then `percent`. The first step is dense, and so is a
    warm-up step at 100 %: it sends everything, and no list is chosen for it.
    """
    epoch = step // steps_per_epoch
    if epoch < len(warmup_percents):
        return warmup_percents[epoch], step == 0 or warmup_percents[epoch] == 100
    return percent, step == 0


def conserved(
    form: str,
    sent_sums: np.ndarray,
    residual: Residual,
    g_sums: np.ndarray,
    u_sums: np.ndarray,
) -> bool:
    """C7: nothing is lost: on exact data these equalities hold bit for bit, on each rank.

    none: sent + h = sum of g. dgc: sent + v = sum of u. dgc_masked: the same, with u as it was
    before masking. history has only its recurrence (C3), so this function returns True for it.
    sent_sums, g_sums, u_sums: sums over all steps on one rank (n,); residual: after the last step.
    """
    if form == "history":
        return True
    if form == "none":
        return bool((sent_sums + residual["h"] == g_sums).all())
    return bool((sent_sums + residual["v"] == u_sums).all())
