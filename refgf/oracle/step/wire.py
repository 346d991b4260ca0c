"""Is a gradient communicated in 16 bits? Seen in its bits, and how far that rounding may go.

A sum that was communicated in float16 or bfloat16 is a number of that type, also after it became
float32 and was divided by p. Numbers of a sum in float32 are not: one in 2^13 looks like it.
"""

import numpy as np

from refgf.oracle.spec.sums import UNIT_ROUNDOFF
from refgf.oracle.step.stages import Arrays, Whole

# bfloat16 first: most of its numbers are float16 too. It has the exponents of float32
SMALLEST = {"bfloat16": 0.0, "float16": 2.0**-24}
SINGLE = 2.0**-22  # division by p, in float32
ROUNDINGS = 3  # to the type, division by p, the mean


def rounded(array: np.ndarray, kind: str) -> np.ndarray:
    """The nearest numbers of the type, ties away from 0."""
    single = array.astype(np.float32)
    if kind == "float16":
        with np.errstate(over="ignore"):
            return single.astype(np.float16).astype(np.float64)
    bits = (single.view(np.uint32) + np.uint32(0x8000)) & np.uint32(0xFFFF0000)
    return bits.view(np.float32).astype(np.float64)


def wire_of(states: list[Whole | None], size: int) -> str | None:
    """float16 or bfloat16, if all elements of one of these gradients are numbers of that type."""
    for state in states:
        if state is None or not (state.agree and state.value.any()):
            continue
        for kind in SMALLEST:
            for sum_ in (state.value, size * state.value):
                near = SINGLE * np.abs(sum_) + SINGLE * SMALLEST[kind]
                if np.isfinite(sum_).all() and (np.abs(rounded(sum_, kind) - sum_) <= near).all():
                    return kind
    return None


def wire_bound(kind: str, exact: np.ndarray, local: list[np.ndarray], size: int) -> float:
    """How far any element of the gradient may be off. local: what ranks and calls add."""
    added = sum((np.abs(own) for own in local), np.zeros(exact.shape))
    total = sum(local, np.zeros(exact.shape))
    square = float((total * total).sum())
    mean = min(1.0, abs(float((total * exact).sum())) / square) if square else 1.0
    largest = max(mean * added.max(initial=0.0), np.abs(exact).max(initial=0.0))
    roundings = size + ROUNDINGS
    return roundings * (UNIT_ROUNDOFF[kind] * float(largest) + SMALLEST[kind] / 2)


def add_wire(
    stages: dict[str, dict[str, Whole]],
    exact: Arrays,
    local: list[Arrays],
    size: int,
    bounds: tuple[dict[str, float], dict[str, float]],
) -> set[str]:
    """Widens the bounds of tensors that are communicated in 16 bits. The types found."""
    found = set()
    for t, gradient in exact.items():
        used, late, backward = (stages[kind].get(t) for kind in ("used", "clip", "backward"))
        kind = wire_of([late or used, backward], size)
        if kind:
            bound = wire_bound(kind, gradient, [own[t] for own in local if t in own], size)
            bounds[0][t] += bound
            bounds[1][t] += bound / (float(np.abs(gradient).max(initial=0.0)) or 1.0)
            found.add(kind)
    return found
