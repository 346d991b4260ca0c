"""A trace against the schedule that SPEC.md states: operations, places, and what precedes what.

    ring (R2, R5)      rank r sends slice r-t to rank r+1 and adds slice r-t-1, t = 0..p-2; rounds
                       slice r+1 (finish); sends slice r+1-t and copies slice r-t
    direct (D1, D2)    rank r sends slice q to each rank q and keeps its own; adds what it kept
                       (fold), rounds it (finish), sends it to all; copies slice q from rank q

The messages of two ranks are compared in their order; with different ranks, that of a direct
allreduce is free. What a rank sends or rounds must be there in an earlier step. A trace in which no
rank has a finish is not judged by it: without a wire type it changes nothing.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from refgf.oracle.definitions import slice_bounds
from refgf.oracle.judge.words import span

Slice = tuple[int, int]
Key = tuple  # ("send", peer, i) the i-th to this peer, ("receive", peer, i), ("fold",), ("finish",)


@dataclass
class Wanted:
    """One rank's events: {key: (operation, slice)}. after: (later, earlier) keys."""

    statement: str
    events: dict[Key, tuple[str, Slice]] = field(default_factory=dict)
    after: list[tuple[Key, Key]] = field(default_factory=list)


def ring(n: int, p: int, r: int) -> Wanted:
    parts, right, left = slice_bounds(n, p), (r + 1) % p, (r - 1) % p
    found = Wanted("R5", {("finish",): ("finish", parts[right])})
    for k in range(2 * (p - 1)):
        late, t = divmod(k, p - 1)
        found.events["send", right, k] = "send", parts[(r + late - t) % p]
        receive = "copy" if late else "add", parts[(r + late - t - 1) % p]
        found.events["receive", left, k] = receive
        if k:
            found.after.append((("send", right, k), ("receive", left, k - 1)))
    if p > 1:
        found.after.append((("finish",), ("receive", left, p - 2)))
    return found


def direct(n: int, p: int, r: int) -> Wanted:
    parts = slice_bounds(n, p)
    found = Wanted("D1, D2", {(name,): (name, parts[r]) for name in ("fold", "finish")})
    found.after.append((("finish",), ("fold",)))
    for q in (q for q in range(p) if q != r):
        found.events["send", q, 0] = "send", parts[q]
        found.events["receive", q, 0] = "keep", parts[r]
        found.events["send", q, 1] = "send", parts[r]
        found.events["receive", q, 1] = "copy", parts[q]
        found.after.append((("fold",), ("receive", q, 0)))
        found.after.append((("send", q, 1), ("fold",)))
    return found


SCHEDULES = {"ring": ring, "direct": direct}


def other_schedule(events: list[Any], size: int, n: int, algorithm: str) -> list[str]:
    """The first event of each rank that is not as stated. Messages must be as many as stated."""
    rounds, found = has_finish(events), []
    of_rank = defaultdict(list)
    for event in sorted(events, key=lambda e: e.step):
        of_rank[event.rank].append(event)
    for r in range(size):
        wanted = SCHEDULES[algorithm](n, size, r)
        if not rounds:
            wanted.events.pop(("finish",))
            wanted.after = [pair for pair in wanted.after if ("finish",) not in pair]
        if size == 1 and not any(e.operation == "fold" for e in of_rank[r]):
            wanted.events.pop(("fold",), None)  # of nothing but the own slice
            wanted.after = [pair for pair in wanted.after if ("fold",) not in pair]
        problem = first_problem(of_rank[r], wanted)
        found += [f"rank {r}{problem} ({wanted.statement})"] if problem else []
    return found


def has_finish(events: list[Any]) -> bool:
    return any(event.operation == "finish" for event in events)


def first_problem(events: list[Any], wanted: Wanted) -> str:
    """ "" or what is wrong with one rank's events, which are in the order of their steps."""
    counts, at = defaultdict(int), {}
    for e in events:
        kind = e.operation if e.peer is None else "send" if e.operation == "send" else "receive"
        stream = (kind,) if e.peer is None else (kind, e.peer)
        key = stream if e.peer is None else (*stream, counts[stream])
        counts[stream] += 1
        place = f", step {e.step}: {e.operation}{other_side(e.operation, e.peer)}"
        if key not in wanted.events or key in at:
            return f"{place}, which is one too many"
        operation, (start, stop) = wanted.events[key]
        right = e.count == stop - start and (e.offset == start or not e.count)
        if operation != e.operation or not right:
            got, asked = span(e.offset, e.offset + e.count), span(start, stop)
            return f"{place}, {got}; wanted {operation}, {asked}"
        at[key] = e
    missing = next((key for key in wanted.events if key not in at), None)
    if missing:
        operation, (start, stop) = wanted.events[missing]
        peer = missing[1] if len(missing) > 1 else None
        return f": got no {operation}{other_side(operation, peer)}; wanted it, {span(start, stop)}"
    for later, earlier in wanted.after:
        a, b = at[earlier], at[later]
        if b.count and a.count and not a.step < b.step:
            before = f"{a.operation}{other_side(a.operation, a.peer)} in step {a.step}"
            return (
                f", step {b.step}: {b.operation} of {span(b.offset, b.offset + b.count)} before "
                f"its {before} has ended"
            )
    return ""


def other_side(operation: str, peer: int | None) -> str:
    return "" if peer is None else f" {'to' if operation == 'send' else 'from'} rank {peer}"
