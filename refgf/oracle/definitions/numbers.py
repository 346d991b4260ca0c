"""P1 to P3: what a number becomes on the wire.

A wire type is None (travel as you are), "float64", "float32", "float16" or "bfloat16". NumPy has no bfloat16, so
its 16 bits are stored as uint16 and its values are computed with as float32.
"""

import numpy as np


def on_wire(x, wire):
    """P1: the values that arrive when x travels as `wire`, in the type of x.

    Rounded to nearest, ties to even; beyond the largest finite number comes infinity; gradual underflow is kept.
    float64 reaches bfloat16 by way of float32 (two roundings, as every machine without its own instruction does it).
    """
    if wire is None:
        return np.array(x)
    if wire == "bfloat16":
        return bfloat16_values(bfloat16_bits(x)).astype(x.dtype)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return x.astype(wire).astype(x.dtype)


def bfloat16_bits(x):
    """P2: the upper half of a float32, rounded to nearest, ties to even; a NaN stays a NaN. (any) -> uint16 (any)"""
    with np.errstate(over="ignore", invalid="ignore"):
        x = np.asarray(x).astype(np.float32)
    bits = x.view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(x), bits >> 16 | 0x40, rounded).astype(np.uint16)


def bfloat16_values(bits):
    """The float32 values of bfloat16 bits: exact. uint16 (any) -> float32 (any)"""
    return (np.asarray(bits, np.uint16).astype(np.uint32) << 16).view(np.float32)


def underflow_share(x, wire):
    """P3: of the elements that are not zero, the share that becomes zero on the wire; 0.0 when all are zero."""
    nonzero = np.asarray(x) != 0
    lost = nonzero & (on_wire(x, wire) == 0)
    return float(lost.sum() / max(1, nonzero.sum()))
