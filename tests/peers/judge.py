"""Is what was measured what is wanted? One rule for the peers' tables and for the table of all of them.

ok      the median holds what is wanted
tie     it does not, but neither side is faster as far as this run can tell: the 95 % interval of the paired ratios' median
        has 1 in it and ends within TIE of it. Where a full link is the limit of both sides, that is the best there can be.
MISS    it does not
"""

import math
import statistics

TIE = 0.01


def bar(name: str, values: list[float] | float, limit: float, least: bool = False, tie: bool = False) -> dict:
    """Prints the verdict on the median of `values` (or on one number, that of sizes which are at worst in a tie); the row."""
    values = values if isinstance(values, list) else [values]
    row = {"name": name, "ratio": statistics.median(values), "ratio_min": min(values), "ratio_max": max(values),
           "wanted": ["at least" if least else "at most", limit]}  # fmt: skip
    word = "tie" if tie else verdict(row)
    print(f"{word:<4} {name}: {row['ratio']:.{3 if word == 'tie' else 2}f} (wanted {row['wanted'][0]} {limit:g})")
    return row


def verdict(row: dict) -> str:
    """ok, tie or MISS: of a row with `ratio`, `wanted`, and, if a tie can be told, `interval`."""
    (direction, limit), ratio = row["wanted"], row["ratio"]
    if ratio >= limit if direction == "at least" else ratio <= limit:
        return "ok"
    low, high = row.get("interval", (0, math.inf))
    return "tie" if limit == 1 and 1 - TIE <= low <= 1 <= high <= 1 + TIE else "MISS"


def median_interval(values: list[float]) -> list[float]:
    """Where the true median lies with at least 95 %: between two of the sorted values, whatever their distribution.

    Below six values even the whole range has less than 95 %; it is what is returned.
    """
    n, outside, dropped = len(values), 1 / 2 ** len(values), 0
    while outside + math.comb(n, dropped + 1) / 2**n <= 0.025:
        dropped += 1
        outside += math.comb(n, dropped) / 2**n
    return [sorted(values)[dropped], sorted(values)[n - 1 - dropped]]
