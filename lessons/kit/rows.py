"""Look-ups in a lesson's result as the JSON holds it, for claims, tables and figures.

    at(r, "times", "rows", {"density": 10}, "exchange")     the value at the end of a path
    best(rows, "overlapped")                                the row with the smallest median
    level(rows, "overlapped")                               the rows within its noise

What a run has not measured is None all the way, and a claim that compares None is "not measured".
A value with a spread is a timing as claims take it: {"median_s", "low_s", "high_s"}; called
seconds because timings have this form, whatever the unit.
"""

import statistics
from collections.abc import Iterable

from kit.record import plain

SPREAD = "median_s", "low_s", "high_s"


def at(found, *path):
    """The value at the end of this path of keys and indices; None where one of them is missing.

    A dict in the path picks the first row that has all its values.
    """
    for step in path:
        if isinstance(step, dict):
            found = next(iter(where(found or (), **step)), None)
        elif isinstance(found, dict):
            found = found.get(step)
        elif found is not None:
            found = found[step] if -len(found) <= step < len(found) else None
    return found


def where(rows: Iterable[dict], **wanted) -> list[dict]:
    """The rows that have all these values. Infinity is the text that JSON has for it."""
    wanted = plain(wanted)
    return [row for row in rows if all(row.get(key) == value for key, value in wanted.items())]


def best(rows: Iterable[dict], key: str) -> dict | None:
    """The row with the smallest median of this timing; None without any."""
    timed = [row for row in rows if row[key]]
    return min(timed, key=lambda row: row[key]["median_s"], default=None)


def level(rows: Iterable[dict], key: str) -> list[dict]:
    """The rows whose spread overlaps that of the best one, which is among them."""
    timed = [row for row in rows if row[key]]
    return [row for row in timed if overlap(row[key], best(timed, key)[key])]


def overlap(one: dict, other: dict) -> bool:
    """Are these two timings within each other's noise?"""
    return one["low_s"] <= other["high_s"] and other["low_s"] <= one["high_s"]


def summary(values: Iterable[float]) -> dict:
    """Median and range of these values."""
    values = list(values)
    return dict(zip(SPREAD, (statistics.median(values), min(values), max(values))))


def scaled(timing: dict, factor: float) -> dict:
    """A timing in another unit, or in the time of the emulated cluster."""
    return {key: factor * timing[key] for key in SPREAD}


def ratio(timing: dict, to: dict) -> dict:
    """A timing over another one, with the widest spread that both allow."""
    return {key: timing[key] / to[of] for key, of in zip(SPREAD, ("median_s", "high_s", "low_s"))}


def factor_apart(pairs: Iterable[tuple[float, float]]) -> float | None:
    """The largest of a / b and b / a of all pairs; None without any."""
    return max((max(a / b, b / a) for a, b in pairs), default=None)
