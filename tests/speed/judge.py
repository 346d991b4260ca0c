"""The verdict on a measurement: one rule for all scripts and for the table of all ratios.

ok      the median holds the bar
tie     it does not, but neither side is faster as far as this run can tell, and ours is not slower
        by more than TIE: the 95 % interval of the paired ratios' median contains 1 and ends below
        1 + TIE. Where a full link limits both sides, no side can do better. Only a row with an
        `interval` can be a tie
MISS    it does not
"""

import math
import statistics

TIE = 0.01


def bar(name: str, values: list[float] | float, limit: float, least: bool = False) -> dict:
    """Prints the verdict on the median of `values`, and returns the row."""
    row = _row(name, values if isinstance(values, list) else [values], limit, least)
    tell(name, row)
    return row


def ratio(name: str, values: list[float]) -> dict:
    """Prints a ratio that has no bar, and returns the row."""
    row = _row(name, values)
    print(f"     {name}: {written(row)}")
    return row


def worst(name: str, rows: list[dict]) -> None:
    """Print the verdict on the row that is farthest from holding its upper limit, if any."""
    if rows:
        row = max(rows, key=lambda row: (verdict(row) == "MISS", row["ratio"]))
        tell(f"{name}, worst: {row['name']}", row)


def tell(name: str, row: dict) -> None:
    direction, limit = row["wanted"]
    print(f"{verdict(row):<4} {name}: {written(row)} (wanted {direction} {limit:g})")


def written(row: dict) -> str:
    """The ratio, with three decimals where two would hide on which side it is, and its interval."""
    near = "wanted" in row and abs(row["ratio"] - row["wanted"][1]) < 0.05
    interval = "[{:.3f}..{:.3f}]".format(*row["interval"]) if "interval" in row else ""
    return f"{row['ratio']:.{3 if near else 2}f} {interval}".strip()


def verdict(row: dict) -> str:
    """ok, tie or MISS: of a row with `ratio`, `wanted`, and, if a tie can be told, `interval`."""
    (direction, limit), ratio = row["wanted"], row["ratio"]
    if ratio >= limit if direction == "at least" else ratio <= limit:
        return "ok"
    low, high = row.get("interval", (0, math.inf))
    return "tie" if limit == 1 and low <= 1 <= high <= 1 + TIE else "MISS"


def compared(name: str, ours: list[float], theirs: list[float]) -> dict:
    """The row of two sides that took turns: ours over theirs, wanted at most 1."""
    ratios = [mine / other for mine, other in zip(ours, theirs)]
    interval = {"interval": median_interval(ratios)} if len(ratios) >= 6 else {}
    return _row(name, ratios, 1.0) | interval


def _row(name: str, values: list[float], limit: float | None = None, least: bool = False) -> dict:
    row = {
        "name": name,
        "ratio": statistics.median(values),
        "ratio_min": min(values),
        "ratio_max": max(values),
    }
    direction = "at least" if least else "at most"
    return row if limit is None else row | {"wanted": [direction, limit]}


def median_interval(values: list[float]) -> list[float]:
    """The 95 % interval of the median of six or more independent values, however distributed.

    It ends at two of the sorted values. Paired ratios are nearly independent, because two sides
    that take turns share what disturbs the machine for longer than a turn.
    """
    n, dropped = len(values), 0
    while sum(math.comb(n, k) for k in range(dropped + 2)) / 2**n <= 0.025:
        dropped += 1
    return [sorted(values)[dropped], sorted(values)[n - 1 - dropped]]
