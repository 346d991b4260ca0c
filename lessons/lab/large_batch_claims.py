"""Lesson 11's claims: what a large batch costs, what LARS and warm-up gain, who forms the norms."""

from kit.claims import GAIN, LIMIT, NOISE, Claim, interval


def gain(result: dict, name: str, batch: int) -> dict | None:
    """The paired difference in accuracy, in points, at the smallest (0) or largest (-1) batch."""
    gains = [row for row in result["trained"]["gains"] if row["name"] == name]
    found = sorted(gains, key=lambda row: row["batch"])
    return interval(found[batch]["mean"], found[batch]["half"]) if found else None


def gains(name: str, batch: int):
    """Is this difference above 0?"""

    def compare(result: dict):
        found = gain(result, name, batch)
        return found and (found, ">", 0.0)

    return compare


def accuracy(result: dict, optimizer: str, batch: int) -> dict | None:
    """Held-out accuracy without warm-up at the smallest (0) or largest (-1) batch."""
    chosen = [
        row
        for row in result["trained"]["rows"]
        if row["optimizer"] == optimizer and not row["warm"]
    ]
    found = sorted(chosen, key=lambda row: row["batch"])
    return interval(found[batch]["mean"], found[batch]["half"]) if found else None


def large_against_small(result: dict):
    large, small = accuracy(result, "SGD", -1), accuracy(result, "SGD", 0)
    return large and small and (large, "<", small)


RUNS = "the number of runs, the epochs and the rates that were tried"
CLAIMS = (
    Claim(
        "In the same number of epochs the largest batch learns less than the smallest (SGD).",
        large_against_small,
        RUNS,
        kind=LIMIT,
    ),
    Claim(
        "At the smallest batch LARS is more accurate than SGD, each at its best rate.",
        gains("LARS, without warm-up", 0),
        RUNS,
        kind=GAIN,
    ),
    Claim(
        "At the largest batch LARS is more accurate than SGD, each at its best rate.",
        gains("LARS, without warm-up", -1),
        RUNS,
    ),
    Claim(
        "Once every rate is tuned, warm-up gains accuracy for SGD.",
        gains("warm-up, for SGD", 0),
        RUNS,
        expected=NOISE,
    ),
    Claim(
        "Norms by slices take less time than all norms on each rank.",
        lambda r: (r["norms"][-1]["times"]["slices"], "<", r["norms"][-1]["times"]["alone"]),
        "the latency of the small allreduce, and cores that ranks share",
        expected=NOISE,
    ),
    Claim(
        "By whole layers the busiest rank has more than twice its fair share of the elements.",
        lambda r: (r["norms"][-1]["busiest"], ">", 1 / r["norms"][-1]["ranks"], 2.0),
        "the number of ranks next to the largest layer's share",
    ),
)
