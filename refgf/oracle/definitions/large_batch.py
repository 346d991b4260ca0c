"""M6 to M9: what large batches need beside momentum SGD and LARS (M1 to M5)."""

import math

import numpy as np

from refgf.oracle.definitions.momentum import lars_step
from refgf.oracle.definitions.ring import slice_bounds
from refgf.oracle.definitions.scaling import all_finite, next_scale, scaled_allreduce, working_copy


def polynomial_rate(step, steps, rate, power=2.0):
    """M6: rate (1 - step/steps)^power, the whole rate in step 0, nothing from step `steps` on. -> float64"""
    return rate * max(0.0, 1 - step / steps) ** power


def accumulated(parts):
    """M7: gradients of the parts of a batch are added from the first part to the last, in the type of the arrays.

    Each part's loss is already divided by the global batch, so nothing is divided. K arrays (n,) -> (n,)
    """
    total = parts[0]
    for g in parts[1:]:
        total = total + g
    return total


def lars_partial_squares(w, g, sizes, rank, p, by="slices", decayed=None):
    """M8: a rank's share of the sums of squares that LARS's norms are made of. -> float64 (2, L): of w, of g

    L: tensors with a ratio (decayed True). by "slices": of their elements, one tensor after another, the rank-th of p
    slices (R1); by "layers": the rank-th of p slices of the list of tensors. The sum over ranks is that of all squares.
    """
    starts = np.cumsum([0, *sizes])
    with_ratio = [i for i in range(len(sizes)) if decayed is None or decayed[i]]
    elements = [(row, j) for row, i in enumerate(with_ratio) for j in range(starts[i], starts[i + 1])]
    if by == "slices":
        start, stop = slice_bounds(len(elements), p)[rank]
        own = elements[start:stop]
    else:
        start, stop = slice_bounds(len(with_ratio), p)[rank]
        own = [(row, j) for row, j in elements if start <= row < stop]
    rows = range(len(with_ratio))
    squares = [[math.fsum(float(x[j]) ** 2 for row, j in own if row == wanted) for wanted in rows] for x in (w, g)]
    return np.array(squares).reshape(2, len(with_ratio))


def scaled_lars_run(w, gs, sizes, rate, momentum, trust, scale, interval=2000, decay=0.0, decayed=None, wire="float16"):
    """M9: steps with dynamic loss scaling: P4, P5, then M5 unless skipped, P6. Norms and update are those of the float32
    master weights and of the float32 sums, divided by the scale: not of anything rounded to the wire type.

    gs[t][rank]: gradients of step t, not scaled.  -> per step {"w", "scale", "finite"} after it
    """
    v, good_steps, reports = np.zeros_like(w), 0, []
    for step_gs in gs:
        total = scaled_allreduce(step_gs, scale, wire)[0]
        finite = all_finite([*step_gs, total])
        if finite:
            w, v = lars_step(w, v, total, sizes, rate, momentum, trust, decay, decayed)
        scale, good_steps = next_scale(scale, good_steps, finite, interval)
        reports.append({"w": w, "working": working_copy(w, wire), "scale": scale, "finite": finite})
    return reports
