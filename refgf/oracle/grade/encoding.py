"""Values between the judge and the process of a student's file, as JSON: nothing in it is run."""

import base64
import json
from types import NoneType
from typing import Any

import numpy as np

LONGEST = 1 << 17  # bytes of an answer
WIDEST = 1023  # bits of an int: no more than a float has
DEEP = "returned lists in lists, too many to be compared; does one hold itself?"
ALLOWED = "numbers (int, float, bool), texts, arrays, lists, tuples, dicts or None"


def encoded(value: Any) -> Any:
    """Nested lists, tuples, dicts, numbers, texts and arrays of numbers as JSON's types.

    TypeError for other values: what they are, and what is wanted. Of a subclass its numbers are
    sent: its own shape, dtype or == says nothing.
    """
    kind = type(value)  # value.__class__ may be anything
    if issubclass(kind, np.ndarray):
        if issubclass(kind, np.ma.MaskedArray) and np.ma.is_masked(value):
            raise TypeError("a masked array; wanted one whose numbers are all there")
        value = np.asarray(value)
        if value.dtype.kind not in "biuf":
            raise TypeError(f"an array of {value.dtype}; wanted one of integers, floats or bool")
        value = value.astype(value.dtype.newbyteorder("="), copy=False)
        data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return {"array": data, "dtype": value.dtype.name, "shape": list(value.shape)}
    if issubclass(kind, np.generic):
        value = np.asarray(value)[()]
        if value.dtype.kind not in "biufU" or value.dtype.itemsize > 8 and value.dtype.kind == "f":
            raise TypeError(f"{type(value).__name__}; wanted {ALLOWED}")
        return value.item()
    if issubclass(kind, list | tuple):
        return [encoded(item) for item in value]
    if issubclass(kind, dict):
        for key in value:
            if not issubclass(type(key), NoneType | int | float | str | np.generic):
                raise TypeError(
                    f"a dict with a {type(key).__name__} as key; wanted a number or text"
                )
        return {"dict": [[encoded(key), encoded(item)] for key, item in value.items()]}
    if issubclass(kind, int) and int.bit_length(value) > WIDEST:
        raise TypeError(f"an int of {int.bit_length(value)} bits; wanted at most {WIDEST}")
    if value is None or issubclass(kind, bool | int | float | str):
        return value
    raise TypeError(f"{type(value).__name__}; wanted {ALLOWED}")


def decoded(value: Any) -> Any:
    """The inverse of `encoded`; tuples come back as lists."""
    if isinstance(value, list):
        return [decoded(item) for item in value]
    if isinstance(value, dict) and "array" in value:
        data = base64.b64decode(value["array"])
        dtype = np.dtype(value["dtype"])
        if dtype.kind not in "biuf":
            raise TypeError(f"an array of {dtype}; wanted numbers")
        return np.frombuffer(data, dtype).reshape(value["shape"]).copy()
    if isinstance(value, dict):
        return {decoded(key): decoded(item) for key, item in value["dict"]}
    return value


def in_bytes(found: dict) -> bytes:
    """As JSON. A right answer has a few thousand bytes, and to compare far more takes long."""
    text = json.dumps(found).encode()
    if len(text) <= LONGEST:
        return text
    return json.dumps({"error": f"returned {len(text)} bytes; wanted at most {LONGEST}"}).encode()
