"""The clusters that `--like NAME` emulates: links and the pace of their GPUs, each with its source.

    like = load("v100-56gbit")          a name of machines/, or a file of the same form
    factor = like.rate / rate           time dilation: 56 if this machine's links have 1 Gbit/s

    {"refgf_cluster": 1, "name": "v100-56gbit", "accelerator": "V100", "nodes": 4,
     "rate":    {"value": "56gbit", "unit": "per node and direction", "known": "stated", ...},
     "latency": {"value": "7.9us",  "unit": "a message", "known": "computed", "source": "..."},
     "inside":  {"rate": {...}, "latency": {...}},       of a node; optional, for `plan` alone
     "steps":   {"alexnet": {"batch": 128, "images_per_s": {"value": 3297, ...}}}}

`known` is one of stated, verified, computed, inferred, unverified, measured. Everything is slowed
down by one factor, so all ratios stay (Gupta et al., NSDI 2006: time-warped emulation). The files
are read by `refgf.predict plan --machine` and by the site too.
"""

import json
import os
import sys
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from refgf.cluster.settings import Settings
from refgf.machine.units import format_rate, format_time, parse_rate, parse_time

FOLDER = Path(__file__).resolve().with_name("machines")
HERE = "this-machine"
ALL_LINKS = 4 * 125e6  # bytes per second that two cores carry with room to spare
RENAMED = {"v100-10gbe": "mgwfbp-10gbe"}
KNOWN = ("stated", "verified", "computed", "inferred", "unverified", "measured")
UNITS = {
    "rate": "bits per second of one link and direction, as 56gbit",
    "latency": "time of an empty message, as 7.9us",
    "images_per_s": "images per second of one accelerator",
    "batch": "images per accelerator and step",
}


@dataclass(frozen=True)
class Like:
    """A cluster to emulate. rate: bytes per second. steps: {network: (batch, images per second)}.

    data: the file's content, which ranks get as JSON.
    """

    name: str
    accelerator: str
    nodes: int
    rate: float
    latency_s: float
    steps: dict[str, tuple[int, float]]
    data: dict[str, Any]

    def step_s(self, network: str) -> tuple[int, float]:
        """(images, seconds) of one step without exchange. ValueError for an unknown network."""
        if network not in self.steps:
            raise ValueError(
                f"--like {self.name}: got network {network!r}; wanted one of "
                f"{', '.join(sorted(self.steps))}, whose pace it holds; next: add it to a file"
            )
        batch, images_per_s = self.steps[network]
        return batch, batch / images_per_s

    def __str__(self) -> str:
        link = f"{format_rate(self.rate)}, latency {format_time(self.latency_s)}"
        return f"{self.name} ({self.accelerator}, {link})"


def names() -> list[str]:
    """The names that `load` knows."""
    return [HERE, *sorted(path.stem for path in FOLDER.glob("*.json"))]


@cache
def current(name: str) -> str:
    """Today's name of a cluster. Of an old one rank 0 says it, once."""
    rank = os.environ.get("PMI_RANK") or os.environ.get("OMPI_COMM_WORLD_RANK") or "0"
    if name in RENAMED and rank == "0":
        why = "its numbers are MG-WFBP's, and its GPUs are inferred"
        print(f"{name} is called {RENAMED[name]} now: {why}", file=sys.stderr)
    return RENAMED.get(name, name)


def load(name: str) -> Like | None:
    """The cluster of this name or file; None for `this-machine`. ValueError says what is wrong."""
    name = current(name)
    if name == HERE:
        return None
    path = FOLDER / f"{name}.json"
    if not os.path.isfile(path):  # Path.is_file raises an error if the name is too long
        path = Path(name)
    if not os.path.isfile(path):
        raise ValueError(
            f"--like: got {name[:80]!r}; wanted {', '.join(names())}, or a file; "
            "next: try v100-56gbit"
        )
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ValueError(
            f"--like {name}: got no JSON ({error}); wanted a description as in "
            "refgf/cluster/machines; next: copy one of these"
        ) from None
    return parse(data, name)


def parse(data: object, where: str) -> Like:
    """The cluster that this content describes."""
    if not isinstance(data, dict) or data.get("refgf_cluster") != 1:
        refuse(where, "no description of version 1", 'an object with "refgf_cluster": 1')
    for key, kind in {"name": str, "accelerator": str, "nodes": int, "steps": dict}.items():
        if not isinstance(data.get(key), kind) or isinstance(data[key], bool):
            refuse(where, f"{key} = {data.get(key)!r}", f"{key} of type {kind.__name__}")
    if data["nodes"] < 1 or not data["steps"]:
        refuse(where, f"{data['nodes']} nodes, {len(data['steps'])} steps", "at least 1 of each")
    texts = {key: quantity(data, key, str, where) for key in ("rate", "latency")}
    try:
        rate, latency_s = parse_rate(texts["rate"]), parse_time(texts["latency"])
    except ValueError as error:
        raise ValueError(f"--like {where}: {error}") from None
    steps = {}
    for network, step in data["steps"].items():
        inside = f"{where}, steps of {network}"
        if not isinstance(step, dict) or not isinstance(step.get("batch"), int):
            refuse(inside, "no batch", f"batch: {UNITS['batch']}")
        images_per_s = quantity(step, "images_per_s", (int, float), inside)
        if step["batch"] < 1 or not 0 < images_per_s < 1e9:
            got = f"batch {step['batch']}, {images_per_s} images/s"
            refuse(inside, got, "a batch of 1 or more, and images/s above 0")
        steps[network] = step["batch"], float(images_per_s)
    return Like(data["name"], data["accelerator"], data["nodes"], rate, latency_s, steps, data)


def quantity(data: dict, key: str, kind: type | tuple[type, ...], where: str) -> Any:
    """The value of {"value": ..., "known": ..., "source": ...}."""
    entry = data.get(key)
    wanted = f"{key}: {UNITS[key]}, with value, known and source"
    if not isinstance(entry, dict) or not isinstance(entry.get("value"), kind):
        refuse(where, f"no number for {key}", wanted)
    if entry.get("known") not in KNOWN or not entry.get("source"):
        got = f"{key} known as {entry.get('known')!r} from {entry.get('source')!r}"
        refuse(where, got, f"one of {', '.join(KNOWN)}, and a source")
    return entry["value"]


def refuse(where: str, got: str, wanted: str) -> NoReturn:
    raise ValueError(f"--like {where}: got {got}; wanted {wanted}; next: correct the file")


def usual_rate(like: Like, nodes: int | None) -> str:
    """The rate of the links that emulate `like`: all together 4 Gbit/s, at most its own rate."""
    return format_rate(min(like.rate, ALL_LINKS / (nodes or like.nodes)))


def dilated(settings: Settings, like: Like, netem: bool) -> Settings:
    """These settings as an emulation of `like`: K = its rate / theirs. ValueError for K below 1.

    Without netem the ranks wait for the latency themselves.
    """
    factor = like.rate / settings.rate
    if factor < 1:
        raise ValueError(
            f"--like {like.name}: got links of {format_rate(settings.rate)}, a dilation of "
            f"{factor:.3g}; wanted at least 1, so links of at most {format_rate(like.rate)}; "
            "next: leave --rate out"
        )
    latency_s = factor * like.latency_s
    latency: dict[str, Any] = {"latency_s": latency_s} if netem else {"latency_waited_s": latency_s}
    return replace(settings, like=like.data, dilation=factor, **latency)
