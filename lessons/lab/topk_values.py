"""Lesson 12: the values that its claims compare, read from the result. None: not measured."""


def choosing(result: dict, name: str) -> dict:
    """The Timing of choosing 1 % of the longest vector."""
    rows = [row for row in result["choice"] if row["percent"] == 1.0]
    return max(rows, key=lambda row: row["n"])["times"][name]


def exchange(result: dict, key: str, name: str, percent: float = 1.0):
    """A value of the exchange of this name and density."""
    rows = result["exchange"]["rows"]
    return next(r[key] for r in rows if (r["name"], r["percent"]) == (name, percent))


def messages(result: dict, name: str, relation: str, other: str, percent: float = 1.0):
    """Compares the messages at 1 % with another exchange's. One rank sends none."""
    if result["exchange"]["nodes"] * result["exchange"]["ranks_per_node"] == 1:
        return None
    key = "messages"
    return exchange(result, key, name), relation, exchange(result, key, other, percent)


def in_nodes(result: dict, key: str, percent: float, relation: str):
    """Compares HiTopKComm with top-k, if there are several nodes of several ranks."""
    if 1 in (result["exchange"]["nodes"], result["exchange"]["ranks_per_node"]):
        return None
    hitopk, topk = (exchange(result, key, name, percent) for name in ("HiTopKComm", "top-k"))
    return hitopk, relation, topk


def learned(result: dict, name: str, relation: str):
    """Compares the paired difference in accuracy from CSC, an interval, with zero."""
    points = result["learning"]["differences"].get(name)
    return points and (points, relation, 0.0)
