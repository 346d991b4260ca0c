"""What lesson 06's claims compare, read from its result as the JSON holds it.

Each function returns None where this run has not measured it.
"""


def of_step(r: dict, density: float | None, key: str) -> dict | None:
    """A timing of the sweep over densities; density None: of dense steps."""
    rows = r["times"]["rows"] if "times" in r else []
    return next((row[key] for row in rows if row["density"] == density), None)


def largest_error(r: dict) -> float | None:
    """Of the predicted steps, relative."""
    return max(row["error"] for row in r["times"]["rows"]) if "times" in r else None


def small(r: dict, number: int) -> dict | None:
    """The exchange of the small network: 0 dense, 1 with as many chunks as AlexNet has."""
    return r["small"]["rows"][number]["timing"] if "small" in r else None


def moved(r: dict, form: str) -> float:
    """How far one gradient has moved its weight in all."""
    return next(row["in_all"] for row in r["forms"] if row["form"] == form)


def learned(r: dict, group: str, name: str, key: str = "loss") -> dict | None:
    """A paired difference with its interval."""
    return r["study"][group].get(name, {}).get(key)


def better_control(r: dict) -> dict | None:
    """Of the choices that ignore importance, the one whose training loss is lower."""
    kinds = [learned(r, "choice", name) for name in ("at random", "in turn")]
    return None if None in kinds else min(kinds, key=lambda kind: kind["median_s"])


def compare(left, relation: str, right, *factor) -> tuple | None:
    """The comparison, if both sides were measured."""
    return None if left is None or right is None else (left, relation, right, *factor)
