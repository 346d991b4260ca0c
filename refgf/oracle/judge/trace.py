"""Checking a trace: who sent what to whom, in which order.

A trace is lines of JSON, one per event,

    {"rank": 0, "step": 3, "operation": "send", "peer": 1, "offset": 8, "count": 4, "dtype": "float32"}

operation: "send"; or what a receiver does with what arrives: "add", "copy", "keep" (puts it aside); or something
without a peer (null): "finish" (rounds to the wire type), "fold" (adds what was put aside in rank order). Events of one
rank with the same step happen together (a Sendrecv is one send and one receive); steps follow each other.
"""

import json
from collections import defaultdict
from dataclasses import dataclass

from refgf.oracle.definitions import direct_traffic, ring_traffic
from refgf.oracle.judge.files import LARGEST_FILE, BadFile, parse_json, read_bytes

RECEIVES = ("add", "copy", "keep")
LOCAL = ("finish", "fold")
TYPES = ("float16", "bfloat16", "float32", "float64")
TRAFFIC = {"ring": ring_traffic, "direct": direct_traffic}


@dataclass(frozen=True)
class Event:
    rank: int
    step: int
    operation: str
    peer: int | None
    offset: int
    count: int
    dtype: str


def read_trace(path):
    """-> list of Event, in the order of the file. Raises BadFile."""
    events = []
    for number, line in enumerate(
        read_bytes(path, min(LARGEST_FILE, 1 << 28)).splitlines(), start=1
    ):
        if line.strip():
            events.append(parse_event(f"{path}, line {number}", line))
    return events


def parse_event(place, line):
    fields = parse_json(place, line)
    if not isinstance(fields, dict) or set(fields) != set(Event.__dataclass_fields__):
        raise BadFile(
            f"{place}: wanted an object with exactly {', '.join(Event.__dataclass_fields__)}"
        )
    event = Event(**fields)
    numbers = [event.rank, event.step, event.offset, event.count]
    if not all(type(v) is int and 0 <= v < 1 << 53 for v in numbers):
        raise BadFile(f"{place}: rank, step, offset and count are numbers from 0")
    if event.operation not in ("send", *RECEIVES, *LOCAL) or event.dtype not in TYPES:
        told = f"operation {str(event.operation)[:20]!r}, dtype {str(event.dtype)[:20]!r}"
        raise BadFile(f"{place}: {told}: one of them is not known")
    if event.operation in LOCAL and event.peer is not None:
        raise BadFile(f"{place}: {event.operation} has no peer; wanted null")
    if event.operation not in LOCAL and not (type(event.peer) is int and 0 <= event.peer < 1 << 31):
        raise BadFile(f"{place}: {event.operation} needs a peer, the number of a rank")
    return event


def check_trace(events, size=None, n=None, algorithm=None, dtype=None):
    """Sentences about what is wrong; empty when nothing is.

    size: ranks; n: elements; algorithm: "ring" or "direct"; dtype: in which all messages travel. Elements times the
    size of that type are the bytes.
    """
    size = size or 1 + max((e.rank for e in events), default=0)
    told = outside(events, size, n) or other_types(events, dtype)
    return told or [
        *unmatched(events, size),
        *deadlock(events, size),
        *other_traffic(events, size, n, algorithm),
    ]


def other_types(events, dtype):
    """Messages in another type, so with other bytes, than the wire's."""
    sent = [e for e in events if e.operation == "send" and dtype not in (None, e.dtype)]
    return [f"rank {e.rank}, step {e.step}: sends {e.dtype}, wanted {dtype}" for e in sent[:8]]


def outside(events, size, n):
    for e in events:
        if e.rank >= size or (e.peer is not None and (e.peer >= size or e.peer == e.rank)):
            return [
                f"rank {e.rank}, step {e.step}: {e.operation} with peer {e.peer}; there are ranks 0 to {size - 1}"
            ]
        if n is not None and e.offset + e.count > n:
            return [
                f"rank {e.rank}, step {e.step}: elements {e.offset}..{e.offset + e.count} of {n}"
            ]
    return []


def by_step(events, size):
    """[rank][i] -> events of that rank's i-th step, in order of the steps."""
    steps = [defaultdict(list) for _ in range(size)]
    for e in events:
        if e.operation not in LOCAL:
            steps[e.rank][e.step].append(e)
    return [[steps[r][s] for s in sorted(steps[r])] for r in range(size)]


def unmatched(events, size):
    """Every send has its receive, of its length, in the order of both ranks' steps."""
    sends, receives = defaultdict(list), defaultdict(list)
    for rank_steps in by_step(events, size):
        for e in (e for step in rank_steps for e in step):
            (sends[e.rank, e.peer] if e.operation == "send" else receives[e.peer, e.rank]).append(e)
    told = []
    for pair in sorted({*sends, *receives}):
        for i in range(max(len(sends[pair]), len(receives[pair]))):
            sent, received = (
                group[pair][i] if i < len(group[pair]) else None for group in (sends, receives)
            )
            told += mismatch(pair, sent, received)
    return told[:8]


def mismatch(pair, sent, received):
    source, dest = pair
    if received is None:
        return [
            f"rank {source}, step {sent.step}: sends {sent.count} elements to rank {dest}, which receives none"
        ]
    if sent is None:
        return [
            f"rank {dest}, step {received.step}: receives from rank {source}, which never sends"
        ]
    if (sent.count, sent.dtype) != (received.count, received.dtype):
        return [
            f"rank {source}, step {sent.step}: sends {sent.count} {sent.dtype} to rank {dest}, which at step "
            f"{received.step} expects {received.count} {received.dtype}"
        ]
    return []


def deadlock(events, size):
    """With rendezvous sends, which end only when their receive has begun, does every rank reach its end?"""
    steps = by_step(events, size)
    position, moved = [0] * size, True
    open_ends = [list(rank_steps[0]) if rank_steps else [] for rank_steps in steps]
    while moved:
        moved = False
        for r in range(size):
            for e in [e for e in open_ends[r] if e.operation == "send"]:
                partner = next(
                    (o for o in open_ends[e.peer] if o.operation != "send" and o.peer == r), None
                )
                if partner:
                    open_ends[r].remove(e)
                    open_ends[e.peer].remove(partner)
                    moved = True
            while position[r] < len(steps[r]) and not open_ends[r]:
                position[r] += 1
                open_ends[r] = list(steps[r][position[r]]) if position[r] < len(steps[r]) else []
                moved = True
    waiting = [e for ends in open_ends for e in ends]
    told = [
        f"rank {e.rank} at step {e.step} waits to {'send to' if e.operation == 'send' else 'receive from'} rank "
        f"{e.peer}"
        for e in waiting
    ]
    return ["deadlock if sends block: " + "; ".join(told[:8])] if told else []


def other_traffic(events, size, n, algorithm):
    """Messages and elements sent per rank, against the statement about them (R6, D4)."""
    if algorithm is None or n is None:
        return []
    told = []
    for r in range(size):
        sent = [e.count for e in events if e.rank == r and e.operation == "send"]
        wanted = TRAFFIC[algorithm](n, size, r)
        if (len(sent), sum(sent)) != wanted:
            told.append(
                f"rank {r}: sent {len(sent)} messages, {sum(sent)} elements; wanted {wanted[0]}, {wanted[1]}"
            )
    return told[:8]


def write_trace(path, events):
    """events: dicts or Events."""
    with open(path, "w") as file:
        file.writelines(json.dumps(e if isinstance(e, dict) else vars(e)) + "\n" for e in events)
