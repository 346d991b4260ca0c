"""The settings of an emulated cluster, checked before anything is started."""

import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from refgf.machine.units import format_rate, format_time, parse_rate, parse_time

MAX_NODES = 250  # more would fit on the bridge and in 10.77.0.0/16, but start slowly
RATES = (1e3, 1e12)  # bits per second that tbf takes with these buckets
MTUS = range(576, 16001)  # bytes, the MTUs of Ethernet cards
PACKET_S = 130e-6  # time the largest packet occupies a link, which is the burst of an idle link
PACKETS = range(6000, 64000)  # bytes; smaller ones cost too many headers, larger ones do not exist
LATE_S = 30e-6  # a shaper's timers are always this late on an idle virtual core ...
CATCH_UP_S = 1e-3  # ... and at times this late
QUEUE_S = 20e-3  # a packet that would wait longer in a switch is dropped


@dataclass(frozen=True)
class Settings:
    """A cluster. Rates are bytes per second and direction. `make_settings` checks its arguments."""

    nodes: int = 4
    ranks_per_node: int = 1
    rate: float = 125e6
    slow: dict[str, float] = field(default_factory=dict)  # {"node3": rate}: links with another rate
    latency_s: float = 0.0
    mtu: int = 1500
    cpus_per_node: int | None = None
    like: dict[str, Any] | None = None  # the cluster that is emulated, as in cluster/machines
    dilation: float = 1.0  # how many times slower than that cluster
    latency_waited_s: float = 0.0  # latency that the ranks wait for: this kernel has no netem

    @property
    def names(self) -> list[str]:
        """The nodes' host names."""
        return [f"node{i}" for i in range(self.nodes)]

    @property
    def ranks(self) -> int:
        """Ranks on all nodes together."""
        return self.nodes * self.ranks_per_node

    def address(self, node: int) -> str:
        """The node's IPv4 address."""
        return f"10.77.0.{node + 1}"

    def rate_of(self, node: int) -> float:
        """The rate of the node's link, bytes per second."""
        return self.slow.get(f"node{node}", self.rate)

    def packet_bytes(self, node: int) -> int:
        """The largest packet the node's network stack may pass to its link before segmentation."""
        wanted = max(PACKETS.start, 2 * self.mtu, round(self.rate_of(node) * PACKET_S))
        return min(PACKETS.stop, wanted)

    def peak_of(self, node: int) -> float:
        """The rate at which credit is spent: after a packet LATE_S late the next one catches up.

        It is above the rate, because tbf requires that, and at most twice the rate. That limit
        applies from 10 Gbit/s on, where packets are too short to catch up.
        """
        packet_s = self.packet_bytes(node) / self.rate_of(node)
        return self.rate_of(node) * min(2.0, max(1.01, packet_s / max(packet_s - LATE_S, 1e-9)))

    def burst_bytes(self, node: int) -> int:
        """Credit for a shaper that wakes late; spent at the peak rate, never at once."""
        return 2 * self.packet_bytes(node) + round(self.rate_of(node) * CATCH_UP_S)

    def to_json(self) -> str:
        """The settings as text for `from_json`."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> "Settings":
        """The settings that `to_json` wrote."""
        return Settings(**json.loads(text))

    def for_ranks(self, node: int, mpi: str) -> dict[str, Any]:
        """The content of REFGF_CLUSTER for the ranks of a node."""
        return {
            "nodes": self.nodes,
            "ranks_per_node": self.ranks_per_node,
            "rate": format_rate(self.rate),
            "rate_bytes_per_s": self.rate,
            "rates_bytes_per_s": [self.rate_of(i) for i in range(self.nodes)],
            "latency": format_time(self.latency_s),
            "latency_s": self.latency_s,
            "mtu": self.mtu,
            "slow": {name: format_rate(rate) for name, rate in self.slow.items()},
            "cpus_per_node": self.cpus_per_node,
            "mpi": mpi,
            "node": node,
            "like": self.like,
            "dilation": self.dilation,
            "latency_waited_s": self.latency_waited_s,
        }

    def __str__(self) -> str:
        slow = "".join(f", {name} {format_rate(rate)}" for name, rate in self.slow.items())
        latency = f", latency {format_time(self.latency_s)}" if self.latency_s else ""
        link = f"link {format_rate(self.rate)}{slow}{latency}, MTU {self.mtu}"
        text = f"{self.nodes} nodes x {self.ranks_per_node} ranks, {link}"
        if not self.like:
            return text
        waited = f"; ranks wait {format_time(self.latency_waited_s)} for each message between nodes"
        waited = waited if self.latency_waited_s else ""
        return f"{text}{waited}; like {self.like['name']}, {self.dilation:.4g} times slower"


def make_settings(
    nodes: int,
    ranks_per_node: int,
    rates: list[str],
    latency: str,
    mtu: int,
    cpus_per_node: int | None,
) -> Settings:
    """Settings from the command line's arguments; ValueError for a wrong one."""
    more = "next: put more ranks on a node (--ranks-per-node)"
    _require_within("--nodes", nodes, 1, MAX_NODES, f"nodes; {more}")
    _require_within("--ranks-per-node", ranks_per_node, 1, 4096, "ranks; next: try 1")
    jumbo = "next: try 1500, or 9000 for jumbo frames"
    _require_within("--mtu", mtu, MTUS.start, MTUS.stop - 1, f"bytes; {jumbo}")
    if cpus_per_node is not None:
        _require_within("--cpus-per-node", cpus_per_node, 1, 4096, "whole cores; next: try 1")
    settings = Settings(
        nodes, ranks_per_node, mtu=mtu, cpus_per_node=cpus_per_node, latency_s=parse_time(latency)
    )
    for text in rates:
        name, equals, rate = text.rpartition("=")
        if not RATES[0] <= parse_rate(rate) * 8 <= RATES[1]:
            raise ValueError(
                f"--rate: got {rate}; wanted 1kbit to 1tbit, which tc can shape; next: try 1gbit"
            )
        if not equals:
            settings = replace(settings, rate=parse_rate(rate))
        elif name in settings.names:
            settings = replace(settings, slow=settings.slow | {name: parse_rate(rate)})
        else:
            raise ValueError(
                f"--rate: got node {name!r} in {text!r}; wanted one of node0 to node{nodes - 1}; "
                f"next: try --rate node{nodes - 1}=200mbit"
            )
    return settings


def _require_within(option: str, got: int, low: int, high: int, what: str) -> None:
    if not low <= got <= high:
        raise ValueError(f"{option}: got {got}; wanted {low} to {high} {what}")
