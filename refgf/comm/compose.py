"""Schedules made of other ones, for trees and hierarchies.

send, receive        steps with one half of a message
reversed_schedule    the same messages in the opposite direction: a reduction becomes a broadcast
on_ranks             the same schedule for a group of ranks and a part of the vector
"""

from collections.abc import Sequence

from refgf.comm.schedule import LOCAL_OPERATIONS, NOTHING, Schedule, Step


def send(part: slice, to: int) -> Step:
    """A step that only sends."""
    return Step(to, part, None, NOTHING, "copy")


def receive(part: slice, sender: int, op: str) -> Step:
    """A step that only receives."""
    return Step(None, NOTHING, sender, part, op)


def reversed_schedule(schedule: Schedule) -> Schedule:
    """The same messages in the opposite direction and order, copied on arrival.

    The reversal of a reduction is a broadcast.
    """
    messages = [step for step in schedule if step.op not in LOCAL_OPERATIONS]
    return [Step(s.receive_from, s.receive, s.send_to, s.send, "copy") for s in messages[::-1]]


def on_ranks(ranks: Sequence[int], schedule: Schedule, start: int = 0) -> Schedule:
    """The same schedule for a group of ranks and a part of the vector.

    Rank i of `schedule` becomes ranks[i], and element 0 becomes element `start`. Hierarchies are
    built this way from rings inside and between nodes. Not for schedules with the operation
    `reduce`, which depends on the order of the ranks.
    """
    assert all(step.op != "reduce" for step in schedule)

    def shift(part: slice) -> slice:
        return slice(part.start + start, part.stop + start)

    def rename(rank: int | None) -> int | None:
        return None if rank is None else ranks[rank]

    return [
        Step(rename(s.send_to), shift(s.send), rename(s.receive_from), shift(s.receive), s.op)
        for s in schedule
    ]
