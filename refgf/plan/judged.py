"""How right the formulas were on real clusters: published steps next to their intervals.

The inputs are the published ones, with the ranges that a plan has for numbers without an error.
"""

from refgf.papers.mgwfbp.merge import greedy_merge
from refgf.papers.scaling.confronted import STEPS_16, between, on_real_clusters, times_too_fast
from refgf.plan.fabric import CHOSEN
from refgf.plan.question import PACE

RANGES = (CHOSEN["alpha"], CHOSEN["beta"], PACE[False])
FASTEST, SLOWEST = zip(*RANGES)


def tables() -> dict[str, tuple[list[float], int]]:
    """{published table: (errors of the predicted speeds, number inside the interval)}."""
    middle, fast, slow = (
        on_real_clusters(greedy_merge, *factors) for factors in ((), (FASTEST,), (SLOWEST,))
    )
    return {name: (middle[name], between(fast[name], slow[name])) for name in middle}


def steps() -> dict[str, str | int]:
    """The largest table of steps: how many took longer than predicted, how many were inside."""
    middle, fast, slow = (
        times_too_fast(greedy_merge, *factors) for factors in ((), (FASTEST,), (SLOWEST,))
    )
    slower = sum(error > 0 for error in middle)
    counts = {"steps": len(middle), "slower_than_predicted": slower}
    return {"published": STEPS_16, **counts, "inside_the_interval": between(fast, slow)}
