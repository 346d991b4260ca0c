"""What the GPU's benchmarks share: sides that take turns, and the file of their ratios."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.speed import benchmark, judge  # noqa: F401  for those that import this

TURNS = 10
WARM_UP = 3  # the first turns compile kernels and fill memory pools


def alternate(
    sides: dict, turns: int = TURNS, begin: Callable[[], None] = lambda: None
) -> dict[Any, list[float]]:
    """Seconds of each side and turn, without `begin`, which comes before each.

    A side returns when the GPU has finished its work.
    """
    seconds = {name: [] for name in sides}
    for _ in range(WARM_UP + turns):
        for name, step in sides.items():
            begin()
            start_s = time.perf_counter()
            step()
            seconds[name].append(time.perf_counter() - start_s)
    return {name: times_s[WARM_UP:] for name, times_s in seconds.items()}


def over(ours: list[float], theirs: list[float]) -> list[float]:
    """The ratios of the turns."""
    return [one / other for one, other in zip(ours, theirs, strict=True)]


def save(rows: list[dict], path: str | None) -> None:
    """Write the rows of judge.py to a file, if one is named."""
    if path:
        Path(path).write_text(json.dumps({"rows": rows}, indent=1) + "\n")
