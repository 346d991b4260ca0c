"""The numbers of lesson 05 that its claims compare; every function returns a comparison or None."""

from lab import half_rounding, half_times

RING, DIRECT = half_rounding.KINDS
PAIRS = 10  # that an interval of accuracies needs


def times(kind: str, relation: str, factor: float = 1.0):
    """float16's seconds of this kind ("exchange", "own") against float32's."""

    def compare(result: dict):
        steps = result["times"]["steps"]
        return steps["float16"][kind], relation, steps["float32"][kind], factor

    return compare


def short_call(relation: str, factor: float):
    """The shortest call in float16 against the one in float32."""

    def compare(result: dict):
        row = result["times"]["calls"][str(half_times.SHORT)]
        return row["float16"], relation, row["float32"], factor

    return compare


def growth(result: dict):
    """The growth of the ring's error, from the fewest ranks to the most, against direct's."""
    ranks = result["rounding"]["ranks"]
    few, many = (result["rounding"]["errors"][str(p)] for p in (ranks[0], ranks[-1]))
    predicted = ((ranks[-1] + 1) / (ranks[0] + 1)) ** 0.5
    return many[RING] / few[RING], ">", many[DIRECT] / few[DIRECT], 0.8 * predicted


def noise(factor: float):
    """The noise of the largest batch against the ring's rounding error of its gradient."""

    def compare(result: dict):
        row = list(result["noise"]["rows"].values())[-1]
        return row["noise"], ">", row[RING], factor

    return compare


def lost(scale: float, relation: str, other: float, factor: float):
    """The shares of the gradients that become zero with two loss scales."""

    def compare(result: dict):
        share = {float(key): row["zero"] for key, row in result["scales"]["rows"].items()}
        return share[scale], relation, share[other], factor

    return compare


def accuracy(name: str, relation: str, points: float):
    """The interval of the final accuracy minus float32's against so many points."""

    def compare(result: dict):
        found = result["learning"]
        if found["pairs"] < PAIRS:
            return None
        return found["differences"][name], relation, points

    return compare
