"""What the claims of lesson 13 compare: functions of its result, for `kit.claims.Claim`."""

import numpy as np


def row(result: dict, name: str) -> dict | None:
    """The row of a run on virtual accelerators; None: not measured."""
    rows = result["times"]["rows"] if result["times"]["like"] else []
    return next((row for row in rows if row["name"] == name), None)


def batch(left: str, relation: str, right: str, factor: float = 1.0):
    """The comparison of the batch times of two rows."""

    def compare(result: dict):
        mine, other = row(result, left), row(result, right)
        return mine and other and (mine["batch"], relation, other["batch"], factor)

    return compare


def predictions(relation: str, limit: float):
    """The comparison of a limit with the largest ratio of prediction and measurement."""

    def compare(result: dict):
        rows = result["times"]["rows"] if result["times"]["like"] else []
        pairs = [(row["predicted_s"], row["batch"]["median_s"]) for row in rows]
        return (max(max(a / b, b / a) for a, b in pairs), relation, limit) if pairs else None

    return compare


def drift(left: str, relation: str, right: str):
    """The comparison of the largest distances of two phases, over seeds."""

    def compare(result: dict):
        found = [
            sorted(max(distances) for distances in result["drift"].get(name, []))
            for name in (left, right)
        ]
        if not all(found):
            return None
        mine, other = (
            {"median_s": float(np.median(x)), "low_s": x[0], "high_s": x[-1]} for x in found
        )
        return mine, relation, other

    return compare


def paired(name: str, relation: str, points: float):
    """The comparison of a paired difference in accuracy, with its interval, and some points."""

    def compare(result: dict):
        difference = result["accuracy"]["paired"].get(name)
        return difference and (difference, relation, points)

    return compare
