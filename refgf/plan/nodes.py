"""Nodes of GPUs by name, for `--machine` and for the published rows: nodes.toml."""

import tomllib
from functools import cache
from pathlib import Path

from refgf.machine.units import parse_rate, parse_time
from refgf.predict.cost import Link

LINKS = ("between", "inside")
FAR = (  # aws-p4d and aws-p5 in nodes.toml; allreduce/inter_* of aistabci/abci2.0benchmark;
    # argonne-lcf/alcf-nccl-tests; eth-cscs/cscs-docs
    "From such numbers calls took up to 8 times as long as planned on two nodes of AWS, up to 6.0 "
    "times on ABCI 2.0 (2 to 32 nodes), 15 times on 128 of Polaris, and 33 times on two of CSCS "
    "without its network's plugin: pass what all_reduce_perf printed there."
)
FILE = Path(__file__).with_name("nodes.toml")


@cache
def described() -> dict[str, dict]:
    return tomllib.loads(FILE.read_text())


def link(name: str, which: str) -> tuple[Link, str]:
    """(the link "between" nodes or "inside" one, how well its rate is known and why)."""
    latency, rate, known, why = described()[name][which]
    return link_of(latency, rate, f"{name}, {which}"), f"{known}: {why}"


def hops(name: str) -> float:
    """Up to how many times its latency between nodes a node may have; 1: nobody compared it."""
    return float(described()[name].get("hops", ["1"])[0])


def doubts(name: str) -> dict[str, str]:
    """{"between" | "inside": what published times say of that link}."""
    given = described()[name]
    found = {"between": f"{name}, between nodes: {given['hops'][1]}."} if "hops" in given else {}
    if not found:
        said = f"no published allreduce between nodes of {name} was compared with its numbers. "
        found["between"] = said + FAR
    if "doubt" in given:
        found["inside"] = f"{name}, inside a node: {given['doubt']}."
    return {which: f"WARNING: {said}" for which, said in found.items()}


def memory(name: str) -> tuple[int, ...]:
    """GiB of a GPU, of each kind that such a node may have; () unknown."""
    given = described()[name].get("memory")
    return tuple(map(int, given[0].split())) if given else ()


def link_of(latency: str, rate: str, where: str) -> Link:
    try:
        return Link(parse_time(latency), 1 / parse_rate(rate))
    except ValueError as error:
        raise ValueError(f"plan, {where}, {error}; as 5us 200gbit") from None
