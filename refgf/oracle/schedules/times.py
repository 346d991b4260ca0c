"""Traffic per rank, and the time of a plan by the cost model (refgf/predict/cost.py).

A message takes alpha + beta bytes from the end of the steps that its sender waits for; its sender
goes on when it has arrived. Adding costs gamma bytes. Signals, copies in memory and waiting cost
nothing, and no two messages share a link. For a ring this is `ring_allreduce_s`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from refgf.oracle.schedules.form import PlanStep
from refgf.oracle.schedules.order import Graph
from refgf.predict.cost import Link


@dataclass(frozen=True)
class Transfer:
    """One message: when it leaves and arrives (seconds), and what it is."""

    start_s: float
    end_s: float
    source: int
    dest: int
    chunks: int
    what: str
    node: int  # of the graph: the step that sends it or fetches it


def moved(rank: int, step: PlanStep) -> Iterator[tuple[int, int, int, str]]:
    """(source, dest, chunks, what) of each message that a step starts."""
    local = [span for span in step.reads if span.rank == rank]
    local = local or [span for span in step.writes if span.rank == rank]  # received, and sent on
    if step.chunks:
        for port in step.sends:
            yield rank, port.peer, step.chunks, named(local) or "what it received"
    for span in step.writes:
        if span.rank != rank:
            yield rank, span.rank, span.count, named(local) or "a sum"
    for span in step.reads:
        if span.rank != rank:
            yield span.rank, rank, span.count, named([span])


def named(spans: list) -> str:
    """i[0:2], s[4:5]."""
    return ", ".join(f"{s.buffer}[{s.start}:{s.start + s.count}]" for s in spans)


def schedule_times(graph: Graph, chunk_bytes: float, link: Link) -> tuple[float, list[Transfer]]:
    """(seconds until the last step has ended, all messages in the order of their start)."""
    ended, transfers = {}, []
    for node in graph.order:
        rank, step = graph.nodes[node]
        now = max((ended[other] for other, _ in graph.before[node]), default=0.0)
        if step.reads or step.receives:
            terms = len(step.reads) + bool(step.chunks and step.receives)
            count = step.chunks or max((span.count for span in step.reads), default=0)
            now += max(0, terms - 1) * link.sum_s(count * chunk_bytes)
        end = now
        for source, dest, count, what in moved(rank, step):
            arrival = now + link.message_s(count * chunk_bytes)
            transfers.append(Transfer(now, arrival, source, dest, count, what, node))
            end = max(end, arrival)
        ended[node] = end
    transfers.sort(key=lambda t: (t.start_s, t.source, t.dest))
    return max(ended.values(), default=0.0), transfers


def traffic(graph: Graph) -> list[tuple[int, int]]:
    """[(messages, chunks) that rank r sends]. What another rank fetches from it counts as sent."""
    found = [[0, 0] for _ in graph.plan.ranks]
    for rank, step in graph.nodes:
        for source, _, count, _ in moved(rank, step):
            found[source][0] += 1
            found[source][1] += count
    return [(messages, chunks) for messages, chunks in found]
