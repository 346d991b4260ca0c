"""What an emulated cluster is made of. Everything is checked here, before anything is started."""

import json
from dataclasses import asdict, dataclass, field, replace

from refgf.machine.units import format_rate, format_time, parse_rate, parse_time

MAX_NODES = 250  # a bridge takes 1023 cables and 10.77.0.0/16 more addresses, but 250 nodes is where starting gets slow
MTUS = range(576, 16001)  # what Ethernet cards take
PACKET_S = 130e-6  # how long the largest packet occupies a link: what an idle link sends at once
PACKETS = range(6000, 64000)  # bytes; below, the kernel is busy with headers, and it knows none above
LATE_S, CATCH_UP_S = 30e-6, 1e-3  # a shaper's timers are late: always so much on an idle virtual core, at times so much
QUEUE_S = 20e-3  # a packet that would wait longer in a switch is dropped


@dataclass(frozen=True)
class Settings:
    """A cluster of `nodes` nodes; rates are bytes per second and direction. Make it with `checked`."""

    nodes: int = 4
    ranks_per_node: int = 1
    rate: float = 125e6
    slow: dict = field(default_factory=dict)  # {"node3": bytes per second}: links with a rate of their own
    latency_s: float = 0.0
    mtu: int = 1500
    cpus_per_node: int | None = None

    @property
    def names(self) -> list[str]:
        return [f"node{i}" for i in range(self.nodes)]

    @property
    def ranks(self) -> int:
        return self.nodes * self.ranks_per_node

    def address(self, node: int) -> str:
        return f"10.77.0.{node + 1}"

    def rate_of(self, node: int) -> float:
        return self.slow.get(f"node{node}", self.rate)

    def packet_bytes(self, node: int) -> int:
        """The largest packet the node's network stack may hand to its link in one piece (before it is segmented)."""
        return min(PACKETS.stop, max(PACKETS.start, 2 * self.mtu, round(self.rate_of(node) * PACKET_S)))

    def peak_of(self, node: int) -> float:
        """The rate at which credit is spent: a packet that was sent LATE_S late is made up for by the next one.

        At most twice the rate (from 10 Gbit/s on, where packets are too short for that), and above it, as tbf wants.
        """
        packet_s = self.packet_bytes(node) / self.rate_of(node)
        return self.rate_of(node) * min(2.0, max(1.01, packet_s / max(packet_s - LATE_S, 1e-9)))

    def burst_bytes(self, node: int) -> int:
        """Credit for a shaper that is woken too late; spent at the peak rate, never at once."""
        return 2 * self.packet_bytes(node) + round(self.rate_of(node) * CATCH_UP_S)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> "Settings":
        return Settings(**json.loads(text))

    def for_ranks(self, node: int, mpi: str) -> dict:
        """What the ranks of a node find in REFGF_CLUSTER."""
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
        }

    def __str__(self) -> str:
        slow = "".join(f", {name} {format_rate(rate)}" for name, rate in self.slow.items())
        latency = f", latency {format_time(self.latency_s)}" if self.latency_s else ""
        return f"{self.nodes} nodes x {self.ranks_per_node} ranks, link {format_rate(self.rate)}{slow}{latency}, MTU {self.mtu}"


def checked(nodes: int, ranks_per_node: int, rates: list[str], latency: str, mtu: int, cpus_per_node) -> Settings:
    """Settings from what was typed; ValueError says what is wrong with it."""
    _within("--nodes", nodes, 1, MAX_NODES, "an address for each; next: put more ranks on a node (--ranks-per-node)")
    _within("--ranks-per-node", ranks_per_node, 1, 4096, "at least one rank; next: try 1")
    _within("--mtu", mtu, MTUS.start, MTUS.stop - 1, "bytes; next: try 1500, or 9000 for jumbo frames")
    if cpus_per_node is not None:
        _within("--cpus-per-node", cpus_per_node, 1, 4096, "whole cores; next: try 1")
    settings = Settings(nodes, ranks_per_node, mtu=mtu, cpus_per_node=cpus_per_node, latency_s=parse_time(latency))
    for text in rates:
        name, equals, rate = text.rpartition("=")
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


def _within(option: str, got: int, low: int, high: int, what: str) -> None:
    if not low <= got <= high:
        raise ValueError(f"{option}: got {got}; wanted {low} to {high}: {what}")
