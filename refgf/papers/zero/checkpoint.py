"""A checkpoint of what ranks share: each saves its pieces; any number of ranks takes theirs.

    saved by 3 ranks     | 0    | 1    | 2    |    pieces of the pool, (start, stop)
    loaded by 2 ranks    | 0       | 1        |

A `ZeRO1` or `ZeRO3` has `pieces`, the elements of the pool that are this rank's, and `kept`, arrays
{name: (k,)} of these, one piece after the other.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from refgf.device import Array, array_module, to_host


class Sharing(Protocol):
    @property
    def pieces(self) -> list[tuple[int, int]]: ...
    @property
    def kept(self) -> dict[str, Array]: ...


def saved(zero: Sharing) -> dict[str, Any]:
    """{"pieces": [(start, stop)], "arrays": {name: (k,)}}, copied: each rank saves its own."""
    arrays = {name: to_host(x).copy() for name, x in zero.kept.items()}
    return {"pieces": list(zero.pieces), "arrays": arrays}


def load(zero: Sharing, every: Sequence[dict[str, Any]]) -> None:
    """Take this rank's elements from what all ranks had `saved`, in any order.

    ValueError, and nothing changed, unless each element is there once.
    """
    arrays, taken, times = zero.kept, [], np.zeros(sum(b - a for a, b in zero.pieces), int)
    for state in every:
        names = set(state["arrays"])
        if names != set(arrays):
            raise ValueError(
                f"load: got arrays {sorted(names)}; wanted {sorted(arrays)}; next: the optimiser "
                "that saved them"
            )
        for theirs, mine in common(state["pieces"], zero.pieces):
            times[mine] += 1
            taken.append((state["arrays"], theirs, mine))
    if (wrong := np.count_nonzero(times != 1)) > 0:
        raise ValueError(
            f"load: got {wrong} of this rank's {times.size} elements never or twice; wanted each "
            "once; next: pass what every rank saved, of the same network"
        )
    for saved_arrays, theirs, mine in taken:
        for name, x in arrays.items():
            x[mine] = array_module(x).asarray(saved_arrays[name][theirs])


def common(
    first: Sequence[tuple[int, int]], second: Sequence[tuple[int, int]]
) -> Iterator[tuple[slice, slice]]:
    """The elements that both have: where they lie in the first's arrays, and in the second's."""
    before = 0
    for start, stop in first:
        behind = 0
        for low, high in second:
            a, b = max(start, low), min(stop, high)
            if a < b:
                theirs = slice(before + a - start, before + b - start)
                yield theirs, slice(behind + a - low, behind + b - low)
            behind += high - low
        before += stop - start
