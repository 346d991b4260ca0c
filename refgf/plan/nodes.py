"""Nodes of GPUs by name, for `--machine` and for the published rows: nodes.toml."""

import tomllib
from functools import cache
from pathlib import Path

from refgf.machine.units import parse_rate, parse_time
from refgf.plan.fabric import Fabric
from refgf.predict.cost import Link

FILE = Path(__file__).with_name("nodes.toml")


@cache
def described() -> dict[str, dict]:
    return tomllib.loads(FILE.read_text())


def load(name: str, between: list[str] | None = None, source: str = "") -> Fabric:
    """The links of this node; between: another latency and rate between nodes, as 5us 200gbit."""
    data = described()[name]
    found, told = {}, {}
    for link in ("between", "inside"):
        latency, rate, known, why = data[link]
        told[link] = f"{known}: {why}"
        found[link] = link_of(latency, rate, f"{name}, {link}")
    if between:
        found["between"], told["between"] = link_of(*between, "--between"), source
    made = Fabric(name, told["between"], found["between"], found["inside"])
    return Fabric(**vars(made) | {"inside_source": told["inside"]})


def link_of(latency: str, rate: str, where: str) -> Link:
    try:
        return Link(parse_time(latency), 1 / parse_rate(rate))
    except ValueError as error:
        raise ValueError(f"plan, {where}, {error}; as 5us 200gbit") from None
