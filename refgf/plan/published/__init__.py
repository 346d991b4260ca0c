"""Public scaling results as data: one TOML file a source, which its first lines name.

    name, publisher, address, date, measured    of the source
    [why]       {input: why it was assumed}; an input that is not here is stated in the source
    [[series]]  one network on one machine; inputs that stand above hold for all series
        network, batch, single    of one device: samples a step, samples/s without exchange
        per_node, node            devices that share a node, and its name in refgf/plan/nodes.toml
        between, fabric           rate of a node's link, and Ethernet or RDMA
        wire, accumulate          bytes a gradient (4), steps whose gradients are summed (1)
        rates, efficiencies       {devices: samples/s of all, or T(1) / T(p)}: what was measured
    table, method                 of refgf/papers/scaling/tables, where the numbers stand

A file of your own (`refgf predict score --rows FILE`) needs the series, and their inputs.

Numbers were read in stored copies of these texts; none is from memory. Half of the families, chosen
by a hash of their names, calibrate nothing (`held_out`). A family is a network on one kind of node
in one source: its numbers of devices, precisions and memories share what no input explains.
"""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from hashlib import sha256
from math import inf
from pathlib import Path
from typing import Any, NoReturn

from refgf.machine.units import parse_rate
from refgf.papers.scaling import tables
from refgf.papers.scaling.benchmark_rows import GPUS
from refgf.papers.scaling.shapes import Workload
from refgf.papers.scaling.transformer import bert_large
from refgf.papers.scaling.workloads import WORKLOADS, resnet
from refgf.plan import decoders, nodes

FOLDER = Path(__file__).parent
ONE_BOX, ETHERNET, RDMA = FABRICS = ("one box", "Ethernet", "RDMA")
NETWORKS = WORKLOADS | {
    "ResNet-101": partial(resnet, (3, 4, 23, 3)),
    "BERT-Base": partial(bert_large, layers=12, features=768),
    **decoders.NETWORKS,
}
CONNECTIONS = {  # as the tables spell them: (rate of a node's link, fabric)
    "10GbE with TCP/IP": ("10gbit", ETHERNET),
    "100GbE with TCP/IP": ("100gbit", ETHERNET),
    "100GbIB with RDMA": ("100gbit", RDMA),
    "10GbE": ("10gbit", ETHERNET),
    "56Gb IB": ("56gbit", RDMA),
}


@dataclass(frozen=True)
class ScalingRow:
    """One measured point.

    efficiency   T(1 device) / T(devices), of the same batch a device
    assumed      {input: why}; what is not in it is stated in the source
    """

    series: str
    source: str
    publisher: str
    address: str
    date: str
    assumed: dict[str, str]
    network: str
    batch: int
    single: float
    ranks: int
    per_node: int
    node: str
    between: str | None
    fabric: str
    efficiency: float
    wire: int = 4
    accumulate: int = 1

    @property
    def name(self) -> str:
        return f"{self.series}, {self.ranks} devices"

    @property
    def held_out(self) -> bool:
        """Never used to calibrate anything."""
        return sha256(self.family.encode()).digest()[0] % 2 == 0

    @property
    def family(self) -> str:
        """All of one source on one kind of node: other batches or memory are near copies."""
        return f"{self.source}, {self.network}, {self.node}"

    @property
    def kind(self) -> str:
        return "transformer" if self.network.startswith("BERT") else "CNN"

    @property
    def compute_s(self) -> float:
        """A step of one device, without exchange."""
        return self.accumulate * self.batch / self.single

    @property
    def step_s(self) -> float:
        return self.compute_s / self.efficiency

    def workload(self) -> Workload:
        return NETWORKS[self.network]()


@cache
def rows() -> tuple[ScalingRow, ...]:
    """All rows, in the order of their files."""
    return tuple(row for path in sorted(FOLDER.glob("*.toml")) for row in read(path))


def read(path: Path) -> Iterator[ScalingRow]:
    """The rows of one file."""
    data = tomllib.loads(path.read_text())
    source = {key: data.get(key, "") for key in ("publisher", "address", "date")}
    source |= {"source": data.get("name", path.stem)}
    above = {key: value for key, value in data.items() if key not in ("series", "why", *INFORMED)}
    each = series_of_table(data) if "table" in data else data["series"]
    for one in each:
        given = above | one
        given["series"] = given.pop("name")
        rates, shares = given.pop("rates", {}), given.pop("efficiencies", {})
        alone = given["single"]
        measured = {int(p): rate / int(p) / alone for p, rate in rates.items()}
        for ranks, share in (measured | {int(p): share for p, share in shares.items()}).items():
            fabric = given.get("fabric") if ranks > given["per_node"] else ONE_BOX
            between = given.get("between") if ranks > given["per_node"] else None
            used = {key: why for key, why in data.get("why", {}).items() if key in given}
            changed = {"fabric": fabric, "between": between, "efficiency": share, "ranks": ranks}
            yield ScalingRow(**source | {"assumed": used} | given | changed)


def rows_of(path: str) -> tuple[ScalingRow, ...]:
    """The rows of someone's own file. ValueError says what is wrong in it."""
    try:
        found = tuple(read(Path(path)))
        for row in found:
            parse_rate(row.between or "1gbit")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        refuse(path, f"{type(error).__name__}: {error}", "series with all inputs and rates")
    for row in found:
        for name, known in (("network", NETWORKS), ("node", nodes.described())):
            if getattr(row, name) not in known:
                refuse(path, f"{name} {getattr(row, name)!r}", f"one of {', '.join(known)}")
        if row.fabric not in FABRICS or (row.fabric == ONE_BOX) != (row.between is None):
            got = f"{row.name} with fabric {row.fabric!r}, between {row.between!r}"
            refuse(path, got, "Ethernet or RDMA, and a rate as 100gbit")
        if row.wire not in (2, 4) or row.accumulate < 1 or row.batch < 1:
            got = f"{row.name} with wire, accumulate, batch = {row.wire, row.accumulate, row.batch}"
            refuse(path, got, "2 or 4 bytes a gradient, and at least 1 of the others")
        if row.ranks > row.per_node and row.ranks % row.per_node:
            refuse(path, f"{row.ranks} devices, {row.per_node} a node", "full nodes")
        if row.ranks < 2 or not 0 < row.efficiency < inf or not 0 < row.single < inf:
            got = f"{row.name} with T(1) / T(p) = {row.efficiency:.4g} of {row.single:.4g} a second"
            refuse(path, got, "2 devices or more, and rates above 0")
    if not found or len({row.name for row in found}) < len(found):
        refuse(path, f"{len(found)} rows", "rows, each with a name of its own")
    return found


def refuse(path: str, got: str, wanted: str) -> NoReturn:
    form = "python -m pydoc refgf.plan.published has the form"
    raise ValueError(f"score --rows {path}: got {got}; wanted {wanted}; next: {form}")


INFORMED = ("name", "publisher", "address", "date", "measured", "table", "method")


def series_of_table(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Series whose numbers stand in refgf/papers/scaling/tables."""
    table, method = tables.read(data["table"]), data["method"]
    if "network" in table:
        at = table["systems"].index(method)
        for network in table["network"]:
            for link, wire, compute_s, *measured_s in network["rows"]:
                between, fabric = CONNECTIONS[link]
                name = f"MG-WFBP, {network['name']}, {link}, {8 * wire} bits"
                given = {"name": name, "network": network["name"], "batch": network["batch"]}
                share = {16: compute_s / measured_s[at]}
                links = {"between": between, "fabric": fabric, "wire": wire}
                single = {"single": network["batch"] / compute_s}
                yield given | links | single | {"efficiencies": share}
        return
    for network, measured in table.items():
        for connection, methods in measured["measured"].items():
            between, fabric = CONNECTIONS[connection]
            rates = dict(zip(GPUS, methods[method]))
            if fabric != RDMA:  # inside one box all connections are the same
                del rates[data["per_node"]]
            given = {"name": f"ddl-benchmarks, {network}, {connection}", "network": network}
            alone = {"batch": measured["batch"], "single": measured["single"]}
            yield given | alone | {"between": between, "fabric": fabric, "rates": rates}
