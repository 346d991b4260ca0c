"""All ranks' schedules in one process, without MPI: their exact bits, and whether they can end.

    replay(schedules, xs)    the result of every rank
    check(schedules)         ValueError unless every send meets its receive and no rank deadlocks

Both let the ranks take turns under the same rule: a send blocks until its receiver has reached the
matching receive (rendezvous), as MPI does with long messages. A schedule that works only because
MPI buffers short messages is refused.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from refgf.comm.arguments import Wire
from refgf.comm.schedule import LOCAL_OPERATIONS, NOTHING, Schedule, Step, apply
from refgf.comm.slices import length


def replay(
    schedules: Sequence[Schedule], xs: Sequence[np.ndarray], wire: Wire = None
) -> list[np.ndarray]:
    """Run schedules[r] on a copy of xs[r] (n,) for every rank r; return the copies.

    The same arithmetic in the same order as `execute`, so the bits are those of a run over MPI.
    Errors: those of `check`.
    """
    xs = [x.copy() for x in xs]
    wire = np.dtype(wire or xs[0].dtype)
    received: list[dict[int, np.ndarray]] = [{} for _ in xs]
    in_flight: dict[tuple[int, int], list[np.ndarray]] = {}  # by sender, receiver; oldest first
    with np.errstate(over="ignore", invalid="ignore"):
        for event, rank, step in _turns(schedules):
            if event == "begin":
                if step.send_to is not None:
                    message = xs[rank][step.send].astype(wire)
                    in_flight.setdefault((rank, step.send_to), []).append(message)
            elif step.receive_from is not None:
                arrived = in_flight[step.receive_from, rank].pop(0)
                apply(step, xs[rank], arrived, received[rank], wire)
            elif step.op in LOCAL_OPERATIONS:
                apply(step, xs[rank], xs[rank][NOTHING], received[rank], wire)
    return xs


def check(schedules: Sequence[Schedule]) -> None:
    """Raise ValueError unless every send meets a receive of its length and all ranks finish."""
    for _ in _turns(schedules):
        pass


def _turns(schedules: Sequence[Schedule]) -> Iterator[tuple[str, int, Step]]:
    """Yield ("begin" or "end", rank, step) in an order in which the ranks may run."""
    position = [0] * len(schedules)
    unmatched: list[dict[str, int]] = [{} for _ in schedules]  # {half that waits: its partner}
    begun = [False] * len(schedules)
    moved = True
    while moved:
        moved = False
        for rank, schedule in enumerate(schedules):
            while position[rank] < len(schedule):
                step = schedule[position[rank]]
                if not begun[rank]:
                    begun[rank] = moved = True
                    unmatched[rank] = _halves(step)
                    yield "begin", rank, step
                to = unmatched[rank].get("send to", len(schedules))
                if to < len(schedules) and unmatched[to].get("receive from") == rank:
                    _require_same_length(rank, step, schedules[to][position[to]], len(schedules))
                    del unmatched[rank]["send to"], unmatched[to]["receive from"]
                    moved = True
                if unmatched[rank]:
                    break
                yield "end", rank, step
                position[rank] += 1
                begun[rank] = False
    stuck = [
        f"rank {r} at step {position[r]} waits to "
        + " and to ".join(f"{half} {partner}" for half, partner in unmatched[r].items())
        for r in range(len(schedules))
        if unmatched[r]
    ]
    if stuck:
        raise ValueError(
            f"check: got a deadlock, {'; '.join(stuck)}; wanted every send to meet its receive "
            "even if sends block; next: pair them in one Sendrecv step, or let odd ranks receive "
            "first"
        )


def _halves(step: Step) -> dict[str, int]:
    halves = {"send to": step.send_to, "receive from": step.receive_from}
    return {half: partner for half, partner in halves.items() if partner is not None}


def _require_same_length(rank: int, step: Step, partner: Step, size: int) -> None:
    got, wanted = length(step.send), length(partner.receive)
    if got != wanted:
        raise ValueError(
            f"check on rank {rank} of {size}: got {got} elements to send to rank {step.send_to}; "
            f"wanted {wanted}, which that rank receives; next: compare both ranks' slices"
        )
