"""M6 to M9: polynomial decay, accumulation, and LARS in parallel and under loss scaling."""

import math

import numpy as np

from refgf.oracle.spec.momentum import LARSSettings, lars_step
from refgf.oracle.spec.ring import Arrays, slice_bounds
from refgf.oracle.spec.scaling import all_finite, next_scale, scaled_allreduce, working_copy


def polynomial_rate(step: int, steps: int, rate: float, power: float = 2.0) -> float:
    """M6: rate (1 - step/steps)^power: all of `rate` in step 0, and 0 from step `steps` on."""
    return rate * max(0.0, 1 - step / steps) ** power


def accumulated(gs: Arrays) -> np.ndarray:
    """M7: gradients of the micro-batches are added from the first to the last.

    Additions are in the type of the arrays. Each loss is divided by the global batch already, so
    nothing is divided here. K arrays (n,) -> (n,)
    """
    total = gs[0]
    for g in gs[1:]:
        total = total + g
    return total


def lars_partial_squares(
    w: np.ndarray,
    g: np.ndarray,
    sizes: list[int],
    rank: int,
    p: int,
    by: str = "slices",
    decayed: np.ndarray | None = None,
) -> np.ndarray:
    """M8: a rank's share of the sums of squares behind LARS's norms. -> float64 (2, L): of w, of g

    L: tensors with a ratio (decayed True). by "slices": the rank-th of p slices (R1) of their
    elements, one tensor after another; by "layers": the rank-th of p slices of the list of tensors.
    The sum over ranks is that of all squares.
    """
    starts = np.cumsum([0, *sizes])
    with_ratio = [i for i in range(len(sizes)) if decayed is None or decayed[i]]
    elements = [
        (row, j) for row, i in enumerate(with_ratio) for j in range(starts[i], starts[i + 1])
    ]
    if by == "slices":
        start, stop = slice_bounds(len(elements), p)[rank]
        own = elements[start:stop]
    else:
        start, stop = slice_bounds(len(with_ratio), p)[rank]
        own = [(row, j) for row, j in elements if start <= row < stop]
    squares = np.zeros((2, len(with_ratio)))
    for of, x in enumerate((w, g)):
        for row in range(len(with_ratio)):
            squares[of, row] = math.fsum(float(x[j]) ** 2 for owner, j in own if owner == row)
    return squares


def scaled_lars_run(w: np.ndarray, gs: list[Arrays], s: LARSSettings) -> list[dict]:
    """M9: steps with dynamic loss scaling: P4, P5, then M5 on the master weights, then P6.

    Norms and update are those of the float32 master weights and of the float32 sums divided by the
    scale, not of numbers rounded to the wire type. gs[t][rank]: unscaled gradients of step t.
    -> per step {"w", "working", "scale", "finite"} after it
    """
    v, scale, good_steps, reports = np.zeros_like(w), s.scale, 0, []
    for step_gs in gs:
        total = scaled_allreduce(step_gs, scale, s.wire)[0]
        finite = all_finite([*step_gs, total])
        if finite:
            w, v = lars_step(w, v, total, s)
        scale, good_steps = next_scale(scale, good_steps, finite, s.interval)
        working = working_copy(w, s.wire)
        reports.append({"w": w, "working": working, "scale": scale, "finite": finite})
    return reports
