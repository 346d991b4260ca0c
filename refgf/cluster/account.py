"""Compares each link's byte counters with the bytes in the ranks' traces: did the traffic cross it?

For each node and direction        payload <= counter              else bytes took another path
for each node, both together       counter <= 1.1 payload + 300 B a message + 1 MB

The difference is made of headers (66 of 1514 bytes), acknowledgements of the other direction, MPI's
envelopes and handshakes, start and end of the job, and the ranks' output. The upper bound does not
apply if a rank sent traffic that its trace does not count (`opaque`: MPI's own collectives).
"""

import json
from dataclasses import dataclass
from pathlib import Path

from refgf.cluster.settings import Settings

SHARE, PER_MESSAGE_BYTES, CONSTANT_BYTES = 1.1, 300, 1_000_000


@dataclass(frozen=True)
class Traffic:
    """What crossed a node's link: bytes and messages out of it and into it."""

    out: int = 0
    into: int = 0
    messages: int = 0


def read_traces(folder: Path) -> dict[int, dict]:
    """{rank: content of rank<r>.json}."""
    traces = [json.loads(path.read_text()) for path in sorted(folder.glob("rank*.json"))]
    return {trace["rank"]: trace for trace in traces}


def crossing(traces: dict[int, dict]) -> dict[str, Traffic]:
    """{node: traffic of its ranks with other nodes}, by the host names in the traces."""
    host = {rank: trace["host"] for rank, trace in traces.items()}
    totals = {name: [0, 0, 0] for name in host.values()}
    for rank, trace in traces.items():
        for peer, (messages, nbytes) in trace["peers"].items():
            here, there = host[rank], host[int(peer)]
            if here != there:
                totals[here][0] += nbytes
                totals[there][1] += nbytes
                totals[here][2] += messages
                totals[there][2] += messages
    return {name: Traffic(*total) for name, total in totals.items()}


@dataclass(frozen=True)
class Account:
    """The counters of all links and the traces of the ranks."""

    settings: Settings
    counted: list[tuple[int, int]]  # per node: bytes sent, bytes received
    traces: dict[int, dict]  # by rank

    @property
    def complete(self) -> bool:
        """Has every rank left a trace?"""
        return set(self.traces) == set(range(self.settings.ranks))

    @property
    def opaque(self) -> bool:
        """Has any rank sent bytes that its trace does not count?"""
        return any(trace.get("opaque") for trace in self.traces.values())

    def faults(self) -> list[str]:
        """One sentence for each link whose counters do not fit the traces."""
        if not self.complete:
            return []
        others = sorted({t["host"] for t in self.traces.values()} - set(self.settings.names))
        if others:
            return [
                f"account: got ranks on {', '.join(others)}; wanted only nodes of this cluster; "
                "next: start no ranks elsewhere"
            ]
        payloads = crossing(self.traces)
        return [
            fault
            for name, counted in zip(self.settings.names, self.counted)
            if (fault := _fault(name, counted, payloads.get(name, Traffic()), self.opaque))
        ]

    def text(self, code: int) -> str:
        """A table of the links for the user. code: exit code of the command."""
        lines = [
            f"cluster: {self.settings}",
            "link      sent MB  received MB   traced payload: sent MB  received MB  messages",
        ]
        payloads = crossing(self.traces) if self.complete else {}
        for name, (sent, received) in zip(self.settings.names, self.counted):
            line = f"{name:8} {sent / 1e6:8.2f} {received / 1e6:12.2f}"
            if self.complete:
                t = payloads.get(name, Traffic())
                line += f" {t.out / 1e6:25.2f} {t.into / 1e6:12.2f} {t.messages:9}"
            lines.append(line)
        return "\n".join([*lines, self._verdict(code)])

    def _verdict(self, code: int) -> str:
        if self.faults():
            return "FAILED: " + "; ".join(self.faults())
        if self.complete and self.opaque:
            return "the links carried the traced bytes, and more: MPI's own calls are not traced"
        if self.complete:
            return "the links carried what the ranks sent, and the headers of TCP and Ethernet"
        found = f"{len(self.traces)} of {self.settings.ranks} ranks" if self.traces else "no rank"
        failure = f", the command failed with exit code {code}" if code else ""
        return f"counters only: {found} left a trace{failure}"


def _fault(name: str, counted: tuple[int, int], payload: Traffic, opaque: bool) -> str | None:
    wanted = (payload.out, payload.into)
    for verb, counter, least in zip(("sent", "received"), counted, wanted):
        if counter < least:
            return (
                f"{name}'s link {verb}: got {counter} bytes; wanted the ranks' {least} or more, so "
                "the rest took another path; next: unset what lets MPI leave TCP (UCX_TLS, "
                "FI_PROVIDER, OMPI_MCA_btl)"
            )
    nbytes = sum(wanted)
    limit = SHARE * nbytes + PER_MESSAGE_BYTES * payload.messages + CONSTANT_BYTES
    if sum(counted) > limit and not opaque:
        return (
            f"{name}'s link: got {sum(counted)} bytes; wanted at most {limit:.0f} for its ranks' "
            f"{nbytes} in {payload.messages} messages; next: look for traffic that no trace counts"
        )
    return None
