"""What numbers of each floating-point type can hold, and some at which a cast can go wrong."""

import numpy as np

DIGITS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
UNIT_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
SMALLEST = {"float64": 2.0**-1074, "float32": 2.0**-149, "float16": 2.0**-24, "bfloat16": 2.0**-133}
HALF_SMALLEST = {
    "float64": 2.0**-1074,
    "float32": 2.0**-150,
    "float16": 2.0**-25,
    "bfloat16": 2.0**-134,
}
LARGEST = {
    "float64": 1.7976931348623157e308,
    "float32": 3.4028234663852886e38,
    "float16": 65504.0,
    "bfloat16": 3.3895313892515355e38,
}

BEYOND_FLOAT32 = [  # rounded to float32, these are ties of float16 or of bfloat16
    *(1 + 2**-11 + 2**-30, 1 + 3 * 2**-11 - 2**-30, 2**-25 + 2**-60, 65520 - 2**-20),
    *(1 + 2**-8 + 2**-40, 1 + 3 * 2**-8 - 2**-40, 2.0**100 * (1 + 2**-8 + 2**-33)),
]
NANS = [0x7F800001, 0xFF800001, 0x7F80FFFF, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FFF8000]


def beyond_float32() -> np.ndarray:
    """float64 numbers that are rounded to 16 bits in one way directly, in another twice."""
    return np.array([*BEYOND_FLOAT32, *(-v for v in BEYOND_FLOAT32)])


def nans() -> np.ndarray:
    """float32 NaN whose upper 16 bits are those of an infinity, or that round to zero."""
    return np.array(NANS, np.uint32).view(np.float32)
