"""Where a result differs from the wanted one, as a sentence for the student."""

import math
import re
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np

from refgf.oracle.definitions import same_bits
from refgf.oracle.grade.encoding import decoded, encoded

SHOWN = 60  # characters of a value
ONLY_TYPE = "the numbers are right"  # of a result whose type or shape is wrong


def plain(value: Any) -> Any:
    """A result as it comes out of the sandbox: tuples are lists, NumPy's numbers are Python's."""
    return decoded(encoded(value))


def difference(got: Any, wanted: Any, relative: float = 0.0, place: str = "") -> str:
    """ "" if a result is right, else where it differs first: "result[2][0], element 4: got ..."

    Where a list is wanted, an array of as many equal items is right, too: p rows for p arrays.
    Where a number is wanted, so is an array of shape ().
    place: of an item of the result, as Python writes it
    """
    if isinstance(wanted, np.ndarray):
        return array_difference(got, wanted, relative, place)
    if isinstance(got, np.ndarray) and not got.ndim:
        got = got.item()
    inside, place = place or "result", place and f"{place}: "
    if got is None and wanted is not None:
        return f"{place}got None; wanted {brief(wanted)}: is a return missing?"
    if isinstance(wanted, list):
        if isinstance(got, np.ndarray) and got.ndim:
            got = list(got) if got.ndim > 1 else got.tolist()
        if not isinstance(got, list) or len(got) != len(wanted):
            return f"{place}got {brief(got)}; wanted {brief(wanted)}"
        inner = (
            difference(g, w, relative, f"{inside}[{i}]")
            for i, (g, w) in enumerate(zip(got, wanted))
        )
        return next(filter(None, inner), "")
    if isinstance(wanted, dict):
        keys = isinstance(got, dict) and set(got) == set(wanted)
        if not keys:
            return f"{place}got {brief(got)}; wanted the keys {', '.join(map(str, wanted))}"
        inner = (
            difference(got[key], wanted[key], relative, f"{inside}[{key!r}]") for key in wanted
        )
        return next(filter(None, inner), "")
    if is_number(wanted) and is_number(got):
        return "" if near(got, wanted, relative) else f"{place}{apart(got, wanted)}"
    same = type(got) is type(wanted) and got == wanted
    return "" if same else f"{place}got {brief(got)}; wanted {brief(wanted)}"


def near(got: float, wanted: float, relative: float) -> bool:
    """Equal, both NaN, or finite and within a relative difference."""
    if not (math.isfinite(got) and math.isfinite(wanted)):
        return got == wanted or (got != got and wanted != wanted)
    return got == wanted or abs(got - wanted) <= relative * abs(wanted)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def array_difference(got: Any, wanted: np.ndarray, relative: float, inside: str) -> str:
    place = inside and f"{inside}: "
    if got is None:
        return f"{place}got None; wanted an array: is a return missing?"
    if not isinstance(got, np.ndarray) or (got.shape, got.dtype) != (wanted.shape, wanted.dtype):
        return place + other_kind(got, wanted, relative)
    both_nan = (got != got) & (wanted != wanted)
    if relative:
        finite = np.isfinite(wanted)
        bound = relative * np.max(np.abs(wanted), initial=0, where=finite)
        close = finite & (np.abs(got - wanted) <= bound)
        wrong = np.argwhere(~close & ~(got == wanted) & ~both_nan)
    else:
        wrong = np.argwhere((got != wanted) & ~both_nan)
        if not len(wrong) and not same_bits(got, wanted):
            return f"{place}got other bits: a zero's sign or a NaN"
    if not len(wrong):
        return ""
    i = tuple(wrong[0].tolist())
    index = ", ".join(map(str, i))
    return f"{inside}{', ' * bool(inside)}element {index}: {apart(got[i], wanted[i])}"


def other_kind(got: Any, wanted: np.ndarray, relative: float) -> str:
    """What is said of a list, and of an array of another type or shape."""
    right = f": {ONLY_TYPE}" * same_numbers(got, wanted, relative)
    if isinstance(got, np.ndarray):
        return (
            f"got {got.dtype} of shape {got.shape}; wanted {wanted.dtype} of {wanted.shape}{right}"
        )
    hint = f"{';' if right else ':'} return an array, not a list" * isinstance(got, list)
    return f"got {brief(got)}; wanted an array of shape {wanted.shape}{right}{hint}"


def same_numbers(got: Any, wanted: np.ndarray, relative: float) -> bool:
    """Are these the wanted numbers, whatever their type and shape?"""
    try:
        array = np.asarray(got)
    except ValueError:  # rows of several lengths
        return False
    if array.dtype.kind not in "iuf" or array.size != wanted.size or not array.size:
        return False
    numbers = array.astype(np.float64).reshape(wanted.shape)
    return not array_difference(numbers, wanted.astype(np.float64), relative, "")


def apart(got: Any, wanted: Any) -> str:
    """ "got 0.1235; wanted 0.1236": in four digits, or in as many as show the difference."""
    texts = ((number(got, digits), number(wanted, digits)) for digits in range(4, 18))
    return "got {}; wanted {}".format(*next(pair for pair in texts if tell_apart(*pair)))


def tell_apart(got: str, wanted: str) -> bool:
    """Do two texts show two numbers? "2" and "2.0" do not."""
    try:
        return Decimal(got) != Decimal(wanted)
    except InvalidOperation:  # True, 1+2j
        return got != wanted


def number(value: Any, digits: int = 4) -> str:
    """A number with all its digits if these are few, else rounded: 1e-05, 0.5, 0.1235."""
    value = value.item() if isinstance(value, np.generic) else value
    text = re.sub(r"\s+", " ", repr(value))
    return f"{value:.{digits}g}" if isinstance(value, float) and len(text) > 8 else text


def brief(value: Any) -> str:
    """A value in at most SHOWN characters; of a larger one its type and size, never its beginning.

    [1, 2] -> "[1, 2]"; np.zeros((8, 9)) -> "float64 of shape (8, 9)"
    """
    if isinstance(value, np.ndarray):
        text, size = f"array({value.tolist()})", f"{value.dtype} of shape {value.shape}"
    elif isinstance(value, list):
        text, size = f"[{', '.join(map(brief, value))}]", f"a list, length {len(value)}"
    elif isinstance(value, dict):
        items = (f"{key!r}: {brief(item)}" for key, item in value.items())
        text, size = f"{{{', '.join(items)}}}", f"a dict, length {len(value)}"
    else:
        text = re.sub(r"\s+", " ", repr(value))
        size = f"{text[: SHOWN - 3]}..."
    return text if len(text) <= SHOWN else size
