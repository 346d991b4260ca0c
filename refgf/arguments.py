"""One style for the arguments that users pass: refused by their annotations, with one sentence.

    @checked
    class Prefetch:
        def __init__(self, source: Iterable, depth: int = 1) -> None: ...

    Prefetch(batches, depth=1.5)
    ValueError: Prefetch: got depth=1.5; wanted a whole number; next: help(Prefetch)

What a number may be (0 to 100 %) is the callee's own check; `require` has its form. A float is any
number but NaN, whole ones and bools included; an int is no bool; an array is what has a shape and a
dtype. A sequence is a list, tuple, range or array, with its elements checked; no text is one.
Where a class of refgf is wanted, an object of any class may stand in, but no plain value.
Arguments without an annotation of these kinds are looked at if their name is one of BY_NAME.
"""

import collections.abc
import functools
import inspect
import math
import numbers
import os
import sys
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

SHOWN = 80  # characters of a wrong argument
MANY = 10_000  # elements of a sequence that are looked at
SEQUENCES = (list, tuple, collections.abc.Sequence)
What = typing.TypeVar("What")
Kinds = dict[Any, tuple[Callable[[Any], bool], str]]


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not math.isnan(value)


PLAIN: Kinds = {  # annotation: (is the value of this kind?, words)
    int: (lambda v: isinstance(v, numbers.Integral) and not isinstance(v, bool), "a whole number"),
    float: (_is_number, "a number"),
    bool: (lambda v: type(v).__name__ in ("bool", "bool_"), "True or False"),
    str: (lambda v: isinstance(v, str), "a text"),
    bytes: (lambda v: isinstance(v, bytes | bytearray), "bytes"),
    dict: (lambda v: isinstance(v, dict), "a dict"),
    type(None): (lambda v: v is None, "None"),
    Path: (lambda v: isinstance(v, os.PathLike), "a Path"),
    collections.abc.Callable: (callable, "a function"),
    collections.abc.Iterable: (
        lambda v: hasattr(v, "__iter__") and not isinstance(v, str | bytes),
        "what can be looped over",
    ),
}


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _is_dtype(value: Any) -> bool:
    try:
        return sys.modules["numpy"].dtype(value) is not None  # a page of the site has no NumPy
    except (KeyError, TypeError, ValueError, SyntaxError):
        return False


BY_NAME: Kinds = {
    "comm": (lambda v: hasattr(v, "Get_rank") and hasattr(v, "Get_size"), "a communicator"),
    "dtype": (_is_dtype, "a type of NumPy"),
    "xp": (lambda v: callable(getattr(v, "zeros", None)), "numpy or cupy"),
}


def require(holds: bool, what: str, got: str, wanted: str, then: str) -> None:
    """Raise ValueError with the project's sentence unless `holds`."""
    if not holds:
        raise ValueError(f"{what}: got {got}; wanted {wanted}; next: {then}")


def checked(what: What) -> What:
    """A function, or a class whose constructor is meant, that refuses arguments of a wrong kind."""
    if not isinstance(what, type):
        return _checked_call(what, bound=False)
    kind: Any = what
    kind.__init__ = _checked_call(kind.__init__, bound=True)
    return kind


def _checked_call(function: Any, bound: bool) -> Any:
    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        given = _signature(function).bind_partial(*arguments, **named).arguments
        if bound:
            kind = type(next(iter(given.values())))
            name = kind.__name__
        else:
            name = function.__name__
        for argument, value in given.items():
            wanted = wrong(value, _kinds(function).get(argument, Any), argument)
            if wanted:
                got = f"{argument}={shown(value)}"
                require(False, name, got, wanted, f"help({name})")
        return function(*arguments, **named)

    return call


@functools.cache
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)


@functools.cache
def _kinds(function: Callable[..., Any]) -> dict[str, Any]:
    """{argument: its annotation}."""
    return {name: kind for name, kind in function.__annotations__.items() if name != "return"}


def wrong(value: Any, kind: Any, name: str = "") -> str | None:
    """What an annotation, or a name, wants in place of this value; None if it is of that kind."""
    if name in BY_NAME:
        holds, words = BY_NAME[name]
        return None if holds(value) else words
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        wanted = [found for one in inner if (found := wrong(value, one))]
        return " or ".join(wanted) if len(wanted) == len(inner) else None
    base = origin or kind
    if getattr(base, "__name__", "") == "ndarray":
        return None if _is_array(value) else "an array"
    if base in PLAIN:
        holds, words = PLAIN[base]
        return None if holds(value) else words
    if base in SEQUENCES:
        return _wrong_sequence(value, inner)
    protocol = getattr(base, "_is_protocol", False)
    if isinstance(base, type) and base.__module__.startswith("refgf.") and not protocol:
        plain = type(value).__module__.split(".")[0] in ("builtins", "numpy")
        return f"a {base.__name__}" if plain and not isinstance(value, base) else None
    return None


def _wrong_sequence(value: Any, inner: tuple[Any, ...]) -> str | None:
    text = isinstance(value, str | bytes)
    listed = isinstance(value, collections.abc.Sequence) or getattr(value, "shape", ()) != ()
    if text or not listed:  # a NumPy scalar is an array of no dimension
        return "a sequence"
    kinds = inner[:1] if inner[1:] in ((), (...,)) else ()
    if inner and not kinds and len(inner) != len(value):
        return f"a sequence of {len(inner)}"
    for kind in kinds:
        for element in value[:MANY]:
            if wanted := wrong(element, kind):
                return f"a sequence with {wanted} at each place"
    return None


def shown(value: Any) -> str:
    """A value as it stands in a message."""
    try:
        text = repr(value)
    except Exception:  # of a class of the caller
        text = f"a {type(value).__name__}"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}... ({type(value).__name__})"
