"""Checking a trace: which rank sent what to which, in which order.

A trace has one line of JSON per event,

    {"rank": 0, "step": 3, "operation": "send", "peer": 1, "offset": 8, "count": 4,
     "dtype": "float32"}

operation   "send"
            what a receiver does with a message: "add", "copy", "keep" (buffers it)
            without a peer (null): "finish" (rounds to the wire type), "fold" (reduces the buffered
            messages in rank order)

Events of one rank with the same step happen together: a Sendrecv is one send and one receive. Steps
follow each other.
"""

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from refgf.oracle.definitions import direct_traffic, ring_traffic
from refgf.oracle.foreign.untrusted import LARGEST_FILE, BadFile, parse_json, read_bytes
from refgf.oracle.judge.trace_order import has_finish, other_schedule
from refgf.oracle.judge.words import span

RECEIVES = ("add", "copy", "keep")
LOCAL = ("finish", "fold")
TYPES = ("float16", "bfloat16", "float32", "float64")
TRAFFIC = {"ring": ring_traffic, "direct": direct_traffic}
LARGEST_TRACE = min(LARGEST_FILE, 1 << 28)  # bytes
LARGEST_NUMBER, LARGEST_RANK = 1 << 53, 1 << 31
SHOWN = 8  # problems of one kind that are reported


@dataclass(frozen=True)
class TraceEvent:
    rank: int
    step: int
    operation: str
    peer: int | None
    offset: int
    count: int
    dtype: str


Events = list[TraceEvent]


def read_trace(path: Path | str) -> Events:
    """The events in the order of the file. Raises BadFile."""
    events = []
    lines = read_bytes(path, LARGEST_TRACE).splitlines()
    for number, line in enumerate(lines, start=1):
        if line.strip():
            events.append(parse_event(f"{path}, line {number}", line))
    return events


def parse_event(place: str, line: bytes | str) -> TraceEvent:
    """One line of a trace. place: named in the error."""
    fields, names = parse_json(place, line), TraceEvent.__dataclass_fields__
    if not isinstance(fields, dict) or set(fields) != set(names):
        raise BadFile(f"{place}: wanted an object with exactly {', '.join(names)}")
    event = TraceEvent(**fields)
    numbers = [event.rank, event.step, event.offset, event.count]
    if not all(type(v) is int and 0 <= v < LARGEST_NUMBER for v in numbers):
        raise BadFile(f"{place}: wanted rank, step, offset and count as numbers from 0")
    if event.operation not in ("send", *RECEIVES, *LOCAL) or event.dtype not in TYPES:
        got = f"operation {str(event.operation)[:20]!r}, dtype {str(event.dtype)[:20]!r}"
        raise BadFile(f"{place}: got {got}; wanted an operation and a type of SPEC.md")
    if event.operation in LOCAL and event.peer is not None:
        raise BadFile(f"{place}: got a peer for {event.operation}; wanted null")
    is_rank = type(event.peer) is int and 0 <= event.peer < LARGEST_RANK
    if event.operation not in LOCAL and not is_rank:
        raise BadFile(f"{place}: got no rank as peer of {event.operation}; wanted one")
    return event


def check_trace(
    events: Events,
    size: int | None = None,
    n: int | None = None,
    algorithm: str | None = None,
    dtype: str | None = None,
) -> list[str]:
    """Sentences about problems; empty if there are none. `compared` says what they are about.

    size: ranks; n: elements; algorithm: "ring" or "direct"; dtype: type of all messages. Elements
    times the size of that type are the bytes.
    """
    size = size or 1 + max((e.rank for e in events), default=0)
    found = outside(events, size, n) or other_types(events, dtype)
    if found:
        return found
    found = [*unmatched(events, size), *deadlock(events, size)]
    if algorithm is None or n is None:
        return found
    found += other_traffic(events, size, n, algorithm)
    return found or other_schedule(events, size, n, algorithm)[:SHOWN]


def compared(events: Events, n: int | None, algorithm: str | None, dtype: str | None) -> list[str]:
    """What a right trace was compared with, and what not."""
    sends = [e for e in events if e.operation == "send"]
    kind = f" in {dtype}" if dtype else ""
    lines = [
        f"the trace is right as far as it was compared: {len(sends)} messages{kind}",
        "compared: each message is received with its length and type; no deadlock if sends block",
    ]
    if algorithm:
        stated = {"ring": "R2, R5, R6", "direct": "D1, D2, D4"}[algorithm]
        lines.append(
            f"compared with {stated} for {n} elements: messages, elements, operations, places, "
            "and that nothing is sent before it is there"
        )
    lines += [] if dtype else ["not compared: the type of the messages; next: --dtype float32"]
    if not algorithm:
        lines.append(
            "not compared: operations, places, messages and elements; "
            "next: --algorithm ring --size N"
        )
    elif not has_finish(events):
        lines.append(
            "not compared: the rounding of the finished slice on its owner, because the trace has "
            "no finish; right without a wire type only"
        )
    return [*lines, "not compared: the values, which a trace does not hold"]


def other_types(events: Events, dtype: str | None) -> list[str]:
    """Messages in another type, so with other bytes, than the wire's."""
    sent = [e for e in events if e.operation == "send" and dtype not in (None, e.dtype)]
    return [f"rank {e.rank}, step {e.step}: sends {e.dtype}, wanted {dtype}" for e in sent[:SHOWN]]


def outside(events: Events, size: int, n: int | None) -> list[str]:
    """Ranks and elements that do not exist."""
    for e in events:
        place = f"rank {e.rank}, step {e.step}"
        if e.rank >= size or (e.peer is not None and (e.peer >= size or e.peer == e.rank)):
            return [f"{place}: {e.operation} with peer {e.peer}; there are ranks 0 to {size - 1}"]
        if n is not None and e.offset + e.count > n:
            return [f"{place}: {span(e.offset, e.offset + max(1, e.count))} of {n}"]
    return []


def by_step(events: Events, size: int) -> list[list[Events]]:
    """[rank][i] -> events of that rank's i-th step, in order of the steps."""
    steps = [defaultdict(list) for _ in range(size)]
    for e in events:
        if e.operation not in LOCAL:
            steps[e.rank][e.step].append(e)
    return [[steps[r][s] for s in sorted(steps[r])] for r in range(size)]


def unmatched(events: Events, size: int) -> list[str]:
    """Every send has its receive, of its length, in the order of both ranks' steps."""
    sends, receives = defaultdict(list), defaultdict(list)
    for rank_steps in by_step(events, size):
        for e in (e for step in rank_steps for e in step):
            if e.operation == "send":
                sends[e.rank, e.peer].append(e)
            else:
                receives[e.peer, e.rank].append(e)
    found = []
    for pair in sorted({*sends, *receives}):
        for i in range(max(len(sends[pair]), len(receives[pair]))):
            groups = sends[pair], receives[pair]
            sent, received = (group[i] if i < len(group) else None for group in groups)
            found += mismatch(pair, sent, received)
    return found[:SHOWN]


def mismatch(
    pair: tuple[int, int], sent: TraceEvent | None, received: TraceEvent | None
) -> list[str]:
    """What is wrong with a message of a pair (source, dest); empty if nothing is."""
    source, dest = pair
    if sent is None:
        place = f"rank {dest}, step {received.step}"
        return [f"{place}: receives from rank {source}, which never sends"]
    place = f"rank {source}, step {sent.step}"
    if received is None:
        return [f"{place}: sends {sent.count} elements to rank {dest}, which receives none"]
    if (sent.count, sent.dtype) != (received.count, received.dtype):
        return [
            f"{place}: sends {sent.count} {sent.dtype} to rank {dest}, which at step "
            f"{received.step} expects {received.count} {received.dtype}"
        ]
    return []


def deadlock(events: Events, size: int) -> list[str]:
    """Does every rank reach its end with rendezvous sends?

    Such a send ends only when its receive has begun.
    """
    steps = by_step(events, size)
    position, moved = [0] * size, True
    pending = [list(rank_steps[0]) if rank_steps else [] for rank_steps in steps]
    while moved:
        moved = False
        for r in range(size):
            for e in [e for e in pending[r] if e.operation == "send"]:
                receives = (o for o in pending[e.peer] if o.operation != "send" and o.peer == r)
                partner = next(receives, None)
                if partner:
                    pending[r].remove(e)
                    pending[e.peer].remove(partner)
                    moved = True
            while position[r] < len(steps[r]) and not pending[r]:
                position[r] += 1
                pending[r] = list(steps[r][position[r]]) if position[r] < len(steps[r]) else []
                moved = True
    found = [waiting(e) for events in pending for e in events]
    return ["deadlock if sends block: " + "; ".join(found[:SHOWN])] if found else []


def waiting(event: TraceEvent) -> str:
    verb = "send to" if event.operation == "send" else "receive from"
    return f"rank {event.rank} at step {event.step} waits to {verb} rank {event.peer}"


def other_traffic(events: Events, size: int, n: int, algorithm: str) -> list[str]:
    """Messages and elements sent per rank, against the statement about them (R6, D4)."""
    found = []
    for r in range(size):
        sent = [e.count for e in events if e.rank == r and e.operation == "send"]
        messages, elements = TRAFFIC[algorithm](n, size, r)
        if (len(sent), sum(sent)) != (messages, elements):
            got = f"sent {len(sent)} messages, {sum(sent)} elements"
            found.append(f"rank {r}: {got}; wanted {messages}, {elements}")
    return found[:SHOWN]


def write_trace(path: Path | str, events: list[TraceEvent | dict]) -> None:
    lines = (json.dumps(e if isinstance(e, dict) else vars(e)) for e in events)
    Path(path).write_text("".join(line + "\n" for line in lines))
