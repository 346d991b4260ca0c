"""Variants of a step that are measured in turn, and the processor's own work in them.

    found = in_turn(run, {name: function}, rounds)      {name: {"timing", "messages", "bytes"}}
    processor(row["own_share"])                         a table's note on a row

A step on an emulated cluster waits for links and sleeps instead of computing. What else it
takes is this machine's processor, which is not slowed down: casts, additions, copies of messages. A
row of which this own work is a large part is the processor's, and not the cluster's.
"""

from collections.abc import Callable
from functools import partial

import kit

MOST_OWN = 0.25  # of a time: from this share of own work on a row is marked


def is_own(share: float | None) -> bool:
    """Is this row the processor's? None: own work was not measured."""
    return (share or 0.0) > MOST_OWN


def processor(*shares: float) -> str:
    """A table's note on a row in which one of these shares is the processor's."""
    return "processor" if any(map(is_own, shares)) else ""


def star(share: float | None) -> str:
    """The same as a star behind the row's name, which `say_star` explains."""
    return " *" if is_own(share) else ""


def say_star(run: kit.Run, rows: list[dict], whose: str) -> None:
    """Below a table: what a star means, if a row has one. whose: "this step is the processor's"."""
    if any(is_own(row["own_share"]) for row in rows):
        run.say(f"* more than {MOST_OWN:.0%} of {whose}")


def in_turn(run: kit.Run, functions: dict[str, Callable], rounds: int, warmup: int = 0) -> dict:
    """{name: {"timing", "messages", "bytes"}}, one call of each function in every round.

    In turn, because a slow moment of the machine then hits all of them. messages and bytes: sent
    by this rank in the last call. Collective.
    """
    counts = {}

    def counted(name) -> None:
        run.comm.reset()
        functions[name]()
        counts[name] = {"messages": run.comm.messages, "bytes": run.comm.bytes}

    timings = run.alternate({name: partial(counted, name) for name in functions}, rounds, warmup)
    return {name: {"timing": timings[name]} | counts[name] for name in functions}
