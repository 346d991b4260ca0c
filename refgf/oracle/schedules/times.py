"""Traffic per rank, and the time of a plan by the cost model (refgf/predict/cost.py).

A message takes alpha + beta bytes from the end of the steps that its sender waits for; its sender
goes on when it has arrived. Each pair of ranks has a link in each direction, which all channels
share: the bytes of a message begin when those of the one before it have left. Adding costs gamma
bytes. Signals, copies in memory and waiting cost nothing. For a ring this is `ring_allreduce_s`.
"""

import heapq
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
    waits, ended, transfers, free = [len(before) for before in graph.before], {}, [], {}
    ready = [
        (adding_s(graph, v, chunk_bytes, link), v) for v, count in enumerate(waits) if not count
    ]
    heapq.heapify(ready)  # in the order in which links are asked for
    while ready:
        now, node = heapq.heappop(ready)
        ended[node] = now
        for source, dest, count, what in moved(*graph.nodes[node]):
            start = max(now, free.get((source, dest), 0.0))
            free[source, dest] = start + link.beta_s_per_byte * count * chunk_bytes
            arrival = start + link.message_s(count * chunk_bytes)
            transfers.append(Transfer(start, arrival, source, dest, count, what, node))
            ended[node] = max(ended[node], arrival)
        for other in graph.behind[node]:
            waits[other] -= 1
            if not waits[other]:
                after = max(ended[v] for v, _ in graph.before[other])
                heapq.heappush(ready, (after + adding_s(graph, other, chunk_bytes, link), other))
    transfers.sort(key=lambda t: (t.start_s, t.source, t.dest))
    return max(ended.values(), default=0.0), transfers


def adding_s(graph: Graph, node: int, chunk_bytes: float, link: Link) -> float:
    """What a step adds before it sends."""
    _, step = graph.nodes[node]
    if not (step.reads or step.receives):
        return 0.0
    terms = len(step.reads) + bool(step.chunks and step.receives)
    count = step.chunks or max((span.count for span in step.reads), default=0)
    return max(0, terms - 1) * link.sum_s(count * chunk_bytes)


def traffic(graph: Graph) -> list[tuple[int, int]]:
    """[(messages, chunks) that rank r sends]. What another rank fetches from it counts as sent."""
    found = [[0, 0] for _ in graph.plan.ranks]
    for rank, step in graph.nodes:
        for source, _, count, _ in moved(rank, step):
            found[source][0] += 1
            found[source][1] += count
    return [(messages, chunks) for messages, chunks in found]
