"""P4 to P8: loss scaling, and float32 master weights with working copies in the wire type."""

from collections.abc import Callable

import numpy as np

from refgf.oracle.spec.direct import direct_allreduce
from refgf.oracle.spec.momentum import momentum_step
from refgf.oracle.spec.numbers import on_wire
from refgf.oracle.spec.ring import Arrays


def scaled_allreduce(
    gs: Arrays,
    scale: float,
    wire: str | None = "float16",
    allreduce: Callable = direct_allreduce,
) -> Arrays:
    """P4: gradients are multiplied by the loss scale, sent, summed, and divided by the scale.

    Both operations are in float32. Each rank's loss is divided by the global batch already, so
    nothing is divided by p. By a power of two both are exact, unless something underflows; by any
    other scale the quotient is rounded, and is not the product with 1 / scale.
    p arrays (n,) -> p arrays (n,)
    """
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = [g * np.float32(scale) for g in gs]
        return [total / np.float32(scale) for total in allreduce(scaled, wire)]


def all_finite(arrays: Arrays) -> bool:
    """P5: all ranks skip a step in which any has an infinity or NaN, before or after the sum."""
    return all(bool(np.isfinite(x).all()) for x in arrays)


def next_scale(
    scale: float,
    good_steps: int,
    finite: bool,
    interval: int = 2000,
    factor: float = 2.0,
    smallest: float = 1.0,
    largest: float = 2.0**24,
) -> tuple[float, int]:
    """P6: dynamic loss scaling. -> (scale, good_steps) for the next step

    A skipped step divides the scale by `factor` and restarts the count of good steps; `interval`
    good steps in a row multiply it by `factor`. It stays within smallest..largest.
    """
    if not finite:
        return max(scale / factor, smallest), 0
    if good_steps + 1 == interval:
        return min(scale * factor, largest), 0
    return scale, good_steps + 1


def working_copy(master: np.ndarray, wire: str | None = "float16") -> np.ndarray:
    """P7: forward and backward use the master weights rounded to the wire type.

    The update is applied to the master weights.
    """
    return on_wire(master, wire)


def scaled_run(
    w: np.ndarray,
    gs: list[Arrays],
    rate: float,
    momentum: float,
    scale: float,
    interval: int = 2000,
    wire: str | None = "float16",
) -> list[dict]:
    """P8: steps with dynamic loss scaling: P4, P5, then M1 on the master weights, then P6.

    gs[t][rank]: unscaled gradients of step t. A step skipped by P5 has no M1.
    -> per step {"w", "v", "working", "scale", "finite"} after it
    """
    v, good_steps, reports = np.zeros_like(w), 0, []
    for step_gs in gs:
        total = scaled_allreduce(step_gs, scale, wire)[0]
        finite = all_finite([*step_gs, total])
        if finite:
            w, v = momentum_step(w, v, total, rate, momentum)
        scale, good_steps = next_scale(scale, good_steps, finite, interval)
        report = {"w": w, "v": v, "working": working_copy(w, wire)}
        reports.append({**report, "scale": scale, "finite": finite})
    return reports
