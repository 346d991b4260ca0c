"""P4 to P8: loss scaling, and float32 master weights with copies in the wire type."""

import numpy as np

from refgf.oracle.definitions.momentum import momentum_step
from refgf.oracle.definitions.numbers import on_wire
from refgf.oracle.definitions.ring import direct_allreduce


def scaled_allreduce(gs, scale, wire="float16", allreduce=direct_allreduce):
    """P4: gradients are multiplied by the loss scale in float32, travel, are summed, and divided by it in float32.

    Each rank's loss is already divided by the global batch, so nothing is divided by p. The scale is a power of two:
    multiplying and dividing by it are exact as long as nothing underflows.  p arrays (n,) -> p arrays (n,)
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return [total / np.float32(scale) for total in allreduce([g * np.float32(scale) for g in gs], wire)]


def all_finite(arrays):
    """P5: a step counts only if no rank has an infinity or NaN, before or after the sum; else all ranks skip it."""
    return all(bool(np.isfinite(x).all()) for x in arrays)


def next_scale(scale, good_steps, finite, interval=2000, factor=2.0, smallest=1.0, largest=2.0**24):
    """P6: dynamic loss scaling. -> (scale, good_steps) for the next step

    A skipped step divides the scale by `factor` and starts counting again; `interval` good steps in a row multiply it.
    It stays within smallest..largest. A static scale is one that this function is never asked about.
    """
    if not finite:
        return max(scale / factor, smallest), 0
    if good_steps + 1 == interval:
        return min(scale * factor, largest), 0
    return scale, good_steps + 1


def working_copy(master, wire="float16"):
    """P7: forward and backward use the master weights rounded to the wire type; the update is to the master weights."""
    return on_wire(master, wire)


def scaled_run(w, gs, rate, momentum, scale, interval=2000, wire="float16"):
    """P8: steps with dynamic loss scaling: P4, P5, then M1 on the float32 master weights unless skipped, P6.

    gs[t][rank]: gradients of step t, not scaled.  -> per step {"w", "v", "working", "scale", "finite"} after it
    """
    v, good_steps, reports = np.zeros_like(w), 0, []
    for step_gs in gs:
        total = scaled_allreduce(step_gs, scale, wire)[0]
        finite = all_finite([*step_gs, total])
        if finite:
            w, v = momentum_step(w, v, total, rate, momentum)
        scale, good_steps = next_scale(scale, good_steps, finite, interval)
        reports.append({"w": w, "v": v, "working": working_copy(w, wire), "scale": scale, "finite": finite})
    return reports
