"""Did the traffic cross the links? Each link's byte counters against what the ranks' traces say they sent.

For each node and direction        payload <= counter              else bytes went another way
for each node, both together       counter <= 1.1 payload + 300 B a message + 1 MB

Above the payload lie the headers (66 of 1514 bytes), the acknowledgements of the other direction, MPI's envelopes and
hand-shakes, start and end of the job, and what the ranks print. The upper bound does not hold where a rank says that
uncounted traffic ran beside the traced one (`opaque`: MPI's own collectives on data).
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
    """{node: what its ranks sent to and got from other nodes}, by the host names in the traces."""
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
    """counted: per node (bytes sent, bytes received) by the link's counters; traces: of all ranks, or none."""

    settings: Settings
    counted: list[tuple[int, int]]
    traces: dict[int, dict]

    @property
    def complete(self) -> bool:
        return set(self.traces) == set(range(self.settings.ranks))

    @property
    def opaque(self) -> bool:
        """Has any rank sent something that it did not note?"""
        return any(trace.get("opaque") for trace in self.traces.values())

    def faults(self) -> list[str]:
        """One sentence for each link whose counters do not fit the traces."""
        if not self.complete:
            return []
        strangers = sorted({t["host"] for t in self.traces.values()} - set(self.settings.names))
        if strangers:
            return [f"ranks ran on {', '.join(strangers)}, which is no node of this cluster"]
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
            "link      sent MB  received MB   payload that the ranks noted: sent MB  received MB  messages",
        ]
        payloads = crossing(self.traces) if self.complete else {}
        for name, (sent, received) in zip(self.settings.names, self.counted):
            line = f"{name:8} {sent / 1e6:8.2f} {received / 1e6:12.2f}"
            if self.complete:
                t = payloads.get(name, Traffic())
                line += f" {t.out / 1e6:39.2f} {t.into / 1e6:12.2f} {t.messages:9}"
            lines.append(line)
        return "\n".join([*lines, self._verdict(code)])

    def _verdict(self, code: int) -> str:
        if self.faults():
            return "FAILED: " + "; ".join(self.faults())
        if self.complete and self.opaque:
            return "the links carried at least what the ranks noted; they sent more than that, so there is no upper limit"
        if self.complete:
            return "the links carried what the ranks sent, and the headers of TCP and Ethernet"
        found = f"{len(self.traces)} of {self.settings.ranks} ranks left a trace" if self.traces else "no rank left a trace"
        return f"counters only: {found}" + (f", the command failed with exit code {code}" if code else "")


def _fault(name: str, counted: tuple[int, int], payload: Traffic, opaque: bool) -> str | None:
    for verb, counter, wanted in (("sent", counted[0], payload.out), ("received", counted[1], payload.into)):
        if counter < wanted:
            return (
                f"{name}'s link {verb} {counter} bytes, its ranks {wanted}: the rest went another way; next: look for a "
                f"setting of your own that lets MPI leave TCP (UCX_TLS, FI_PROVIDER, OMPI_MCA_btl)"
            )
    bytes_ = payload.out + payload.into
    limit = SHARE * bytes_ + PER_MESSAGE_BYTES * payload.messages + CONSTANT_BYTES
    if sum(counted) > limit and not opaque:
        return (
            f"{name}'s link carried {sum(counted)} bytes, its ranks {bytes_} in {payload.messages} messages: more than "
            f"{limit:.0f} cannot be explained; next: look for traffic that no trace counts"
        )
    return None
