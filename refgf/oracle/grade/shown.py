"""A failing case as a sentence: the call, what came back, what was wanted, all in few numbers.

    for choose([2.0, 5.0, 2.0, 9.0, 2.0], 60): got [1, 3, 4]; wanted [0, 1, 3]

A case of the teacher's seed stays hidden: its sentence tells types and shapes only.
"""

import builtins
import re
from typing import Any

import numpy as np

from refgf.oracle.foreign.report import in_one_line
from refgf.oracle.grade.difference import difference, number, plain
from refgf.oracle.grade.sandbox import NO_TIME

LONGEST = 110  # characters of one value
LINES, COLUMNS = 12, 80  # of what a call prints
KEPT = (12, 6, 3, 2)  # numbers of each row, as many as fit
STARTS: tuple[str, ...] = (
    "absent",
    "cannot be imported",
    "not written yet",
    "did not end",
    "its process ended",
)
STARTS += ("ended its process", "wrote into the connection of its judge", "ran out of memory")
STARTS += (
    "closed the connection to its judge",
    "gave an answer that cannot be read",
    "ended the program (SystemExit)",
    "deadlock",
    NO_TIME,
)


def failure(name: str, arguments: tuple, got: Any, wanted: Any, relative: float) -> str:
    """Which call gave what, and where that differs first."""
    where = difference(got, wanted, relative)
    if where.startswith("got "):  # the whole result
        return f"for {call(name, arguments)}: {where}"
    texts = shortened(got), shortened(wanted)
    if texts[0] == texts[1]:  # in the digits shown, or both too long
        return f"for {call(name, arguments)}: {where}"
    numbers = f"for {call(name, arguments)}: got {texts[0]}; wanted {texts[1]}"
    whole = all(text.count("[") == 1 and "..." not in text for text in texts)
    return numbers if whole else f"{numbers}; first at {where}"


def call(name: str, arguments: tuple) -> str:
    """slices(10, 3), as the student would write it."""
    return f"{name}({', '.join(shortened(plain(argument)) for argument in arguments)})"


def output(text: str) -> list[str]:
    """What a call printed, as short lines. It is the student's text: control characters escaped."""
    lines = text.expandtabs(4).splitlines()
    return [*(cut(in_one_line(line)) for line in lines[:LINES]), *["..."] * (len(lines) > LINES)]


def cut(line: str) -> str:
    return line if len(line) <= COLUMNS else f"{line[: COLUMNS - 3]}..."


def chosen_output(calls: list[tuple[str, bool, str]]) -> list[str]:
    """[call, its lines] of the first wrong call that printed; of the first one if all are right.

    calls: (call, is it wrong, what it printed)
    """
    loud = [(name, wrong, text) for name, wrong, text in calls if text.strip()]
    name, _, text = min(loud, key=lambda call: not call[1], default=("", False, ""))
    return [cut(name), *output(text)] if name else []


def hidden_call(name: str, arguments: tuple) -> str:
    """slices(a number, a number): nothing of a hidden case but its shape."""
    return f"a case of the teacher's seed, {name}({', '.join(map(shape, arguments))})"


def shape(value: Any) -> str:
    """A value's type and size."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {value.shape}"
    if isinstance(value, list | tuple):
        return f"a list, length {len(value)}"
    if isinstance(value, dict):
        return f"a dict, length {len(value)}"
    return "None" if value is None else "a text" if isinstance(value, str) else "a number"


def without_text(error: str) -> str:
    """What went wrong, without a word of the student's file, which may hold the hidden arguments.

    So neither an exception's text nor its own name, and no line: code could choose these.
    """
    raised = re.match(r"(?:rank \d+ )?raised (\w+): ", error)
    if raised:
        known = isinstance(getattr(builtins, raised[1], None), type)
        return f"raised {raised[1]}" if known else "raised an exception"
    return next((start for start in STARTS if error.startswith(start)), "failed")


def without_line(error: str) -> str:
    """ "raised ValueError: math domain error (line 7)" without the last two words"""
    return re.sub(r" \(line \d+\)$", "", error)


def size(value: Any) -> tuple[int, float]:
    """(how many numbers, sum of their magnitudes): small cases are easy to follow."""
    if isinstance(value, np.ndarray):
        return value.size, float(np.abs(value.astype(np.float64)).sum())
    if isinstance(value, dict):
        return size(list(value.values()))
    if isinstance(value, list | tuple):
        sizes = [size(item) for item in value]
        return sum(count for count, _ in sizes), sum(total for _, total in sizes)
    return 1, float(abs(value)) if isinstance(value, int | float) else 0.0


def shortened(value: Any) -> str:
    """A value in at most LONGEST characters: all its numbers, else the first ones, else its shape.

    np.arange(40) -> "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, ... 40 in all]"
    """
    texts = (written(value, kept) for kept in KEPT)
    return next((text for text in texts if len(text) <= LONGEST), shape(value))


def written(value: Any, kept: int) -> str:
    """A value with at most `kept` items of each list or row of an array."""
    if isinstance(value, np.ndarray) and not value.ndim:
        return number(value.item())
    if isinstance(value, dict):
        items = [f"{key!r}: {written(item, kept)}" for key, item in value.items()]
    elif isinstance(value, list | tuple | np.ndarray):
        items = [written(item, kept) for item in value[:kept]]
        if len(value) > kept:
            items.append(f"... {len(value)} in all")
    else:
        return number(value)
    return ("{{{}}}" if isinstance(value, dict) else "[{}]").format(", ".join(items))
