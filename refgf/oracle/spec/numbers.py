"""P1 to P3: what a number becomes on the wire.

A wire type is None (sent in the type of the array), "float64", "float32", "float16" or "bfloat16".
NumPy has no bfloat16: its 16 bits are stored as uint16, its values are float32.
"""

import numpy as np


def on_wire(x: np.ndarray, wire: str | None) -> np.ndarray:
    """P1: the values received when x is sent as `wire`, in the type of x.

    They are rounded to nearest, ties to even. Numbers that are too large become infinite, and
    underflow is gradual. float64 reaches bfloat16 through float32, as on machines without an
    instruction for it: two roundings.
    """
    if wire is None:
        return np.array(x)
    if wire == "bfloat16":
        return bfloat16_values(bfloat16_bits(x)).astype(x.dtype)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return x.astype(wire).astype(x.dtype)


def bfloat16_bits(x: np.ndarray) -> np.ndarray:
    """P2: the upper half of a float32, rounded to nearest, ties to even; a NaN stays a NaN.

    Any shape -> uint16 of the same shape.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        x = np.asarray(x).astype(np.float32)
    bits = x.view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(x), bits >> 16 | 0x40, rounded).astype(np.uint16)


def bfloat16_values(bits: np.ndarray) -> np.ndarray:
    """The float32 values of bfloat16 bits: exact. uint16 (any) -> float32 (any)"""
    return (np.asarray(bits, np.uint16).astype(np.uint32) << 16).view(np.float32)


def underflow_share(x: np.ndarray, wire: str | None) -> float:
    """P3: of the nonzero elements, the share that becomes zero on the wire; 0.0 if all are zero."""
    nonzero = np.asarray(x) != 0
    lost = nonzero & (on_wire(x, wire) == 0)
    return float(lost.sum() / max(1, nonzero.sum()))
