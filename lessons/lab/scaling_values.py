"""Values that the claims of lesson 08 compare, read from the lesson's result.

None: this run has not measured it.
"""

from math import log

from lab.scaling_far import IB


def steps(result: dict, left, relation: str, right, factor: float = 1.0):
    """A comparison of measured steps. left, right: (technique, 1: all ranks; 2: half of them)."""
    points, found = result.get("points", []), []
    for name, back in (left, right):
        rows = points[-back]["rows"] if len(points) >= back else []
        found += [row["timing"] for row in rows if row["name"] == name]
    return (found[0], relation, found[1], factor) if len(found) == 2 else None


def on_2048(result: dict, name: str, end: int) -> float:
    """Scaling efficiency predicted for ResNet-50 on 2048 GPUs, InfiniBand. end: 0 low, 1 high."""
    return result["far"]["ResNet-50"][IB]["systems"][name][-1][end]


def gain(result: dict, new: str, old: str) -> float:
    """The same efficiency with technique `new` over that with `old`; the larger of both ends."""
    return max(on_2048(result, new, end) / on_2048(result, old, end) for end in (0, 1))


def inside(result: dict, number: int):
    """Is the published number inside its interval? On a scale of ratios.

    Compares twice its distance from the middle of the interval with the interval's width.
    """
    headline = result["headlines"][number]
    low, high, published = (headline[key] for key in ("low", "high", "published"))
    return abs(log(published**2 / (low * high))), "<", log(high / low)
