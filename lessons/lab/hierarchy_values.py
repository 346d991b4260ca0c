"""What the claims of lesson 10 compare, read from its result."""


def on_nodes(compare):
    """A comparison that is decided only where ranks share the nodes of an emulated cluster."""
    return lambda r: compare(r) if r["free"] else None


def emulated(compare):
    """A comparison that is decided wherever links of a cluster are emulated or waited for."""
    return lambda r: compare(r) if r["emulated"] else None


def shortest(r: dict, name: str) -> dict:
    return r["points"][0]["measured"][name]


def longest(r: dict, name: str, sweep: str = "points") -> dict:
    return r[sweep][-1]["measured"][name]


def known(value, relation: str, other, factor: float = 1.0):
    return None if value is None else (value, relation, other, factor)


def crossing_error(r: dict) -> float | None:
    """The larger of measured / predicted size and its inverse, for the worse of two algorithms."""
    sizes = [r["crossings"][name] for name in ("three phases", "recursive doubling")]
    if any(None in pair.values() for pair in sizes):
        return None
    ratios = [pair["measured"] / pair["predicted"] for pair in sizes]
    return max(max(ratio, 1 / ratio) for ratio in ratios)
