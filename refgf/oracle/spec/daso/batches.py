"""A1, A2, A4, A5: what happens in which batch."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from refgf.oracle.spec.exercise import Arguments, Drawn, Exercise
from refgf.oracle.spec.statement import Statement

Phase = tuple[int, int, int]  # B, L, W
BLOCKING = (0, 0, 0)

# ---- A1: groups ----


def daso_groups(p: int, nodes: int) -> list[list[int]]:
    """A1: global group j consists of the j-th rank of each node; all nodes have equally many ranks.

    Source: Heat; k = 1, which Heat does not run: chosen.
    """
    return [list(range(j, p, p // nodes)) for j in range(p // nodes)]


A1 = Statement("A1", daso_groups)


@A1.mistake("groups are blocks of neighbours, like nodes")
def groups_of_neighbours(p, nodes):
    return [list(range(j * nodes, (j + 1) * nodes)) for j in range(p // nodes)]


# ---- A2: means in the node ----


def daso_averaged(b: int, batches: int, phase: Phase) -> bool:
    """A2: gradients are averaged in the node in batches 0, L, 2L, ..., in the last one, and from
    each sending to its receipt.

    Source: described; in the last one: Heat's code. Otherwise Heat: A14.

    -> are they in batch b?
    """
    global_skip, local_skip, _ = phase
    sent = b - b % global_skip if global_skip else b
    in_flight = b - sent <= daso_wait(sent, batches, phase)
    return local_skip <= 1 or b % local_skip == 0 or in_flight or b == batches - 1


A2 = Statement("A2", daso_averaged)
A2.given("gradients are not averaged while a sum is in flight", phase=lambda phase: (*phase[:2], 0))


@A2.mistake("gradients are averaged in the node in every batch")
def always_averaged(b, batches, phase):
    return True


# ---- A4: who sends ----


def daso_sender(b: int, batches: int, global_skip: int, groups: int) -> int | None:
    """A4: one group sends its parameters after the update of batches 0, B, 2B, ... and of the last
    one of an epoch; the groups take turns, from group 0 on in each epoch.

    Source: Heat.

    B = 0: in all batches. -> the group that sends after the update of batch b; None if none does
    """
    every = max(1, global_skip)
    return math.ceil(b / every) % groups if b % every == 0 or b == batches - 1 else None


A4 = Statement("A4", daso_sender)
A4.given("nothing is sent in the last batch of an epoch", batches=lambda batches: batches + 1)
A4.given(
    "first sent after B batches, not in batch 0",
    b=lambda b: b + 1,
    batches=lambda batches: batches + 1,
)


@A4.mistake("the group is not rotated")
def not_rotated(b, batches, global_skip, groups):
    return None if daso_sender(b, batches, global_skip, groups) is None else 0


# ---- A5: when it is received ----


def daso_wait(b: int, batches: int, phase: Phase) -> int:
    """A5: they are received min(W, batches left in the epoch) batches later, fixed at sending; W <=
    B.

    Source: described: W batches later, fixed at sending; the min: Heat's code. Otherwise Heat: A13;
    W <= B chosen.

    -> how many batches after sending in batch b the sum is received
    """
    return min(phase[2], batches - 1 - b) if phase[0] else 0


A5 = Statement("A5", daso_wait)


@A5.mistake("the wait is not shortened at the end of an epoch")
def not_shortened(b, batches, phase):
    return phase[2] if phase[0] and b < batches - 1 else 0


@A5.mistake("waits one batch too many")
def waits_too_long(b, batches, phase):
    return min(phase[2] + 1, batches - 1 - b) if phase[2] else 0


# ---- exercise: when nodes sum ----


def global_sums(batches: int, global_skip: int, wait: int) -> list[tuple[int, int]]:
    """(batch of sending, batch of receipt) of each sum of an epoch."""
    sent = [b for b in range(batches) if daso_sender(b, batches, global_skip, 1) is not None]
    return [(b, b + daso_wait(b, batches, (global_skip, 1, wait))) for b in sent]


def epochs(rest: Callable[..., Any], wait: Callable[..., Any]) -> Drawn:
    """Epochs of `rest` batches more than a multiple of B. wait: (B, rest) -> W"""

    def cases(random: np.random.Generator) -> list[Arguments]:
        rows = [(4, 2), (5, 1), (int(random.integers(4, 40)), int(random.integers(2, 20)))]
        return [
            (skip * periods + rest(skip), skip, wait(skip, rest(skip))) for skip, periods in rows
        ]

    return cases


def few(random: np.random.Generator) -> list[Arguments]:
    return [(5, 1, 1), (1, 4, 1), (0, 4, 1), (int(random.integers(6, 99)), 1, 1)]


SUMS_13 = Exercise("13.2", global_sums)
SUMS_13.part(
    "the last batch is no multiple of B",
    1,
    epochs(lambda skip: skip - 1, lambda skip, rest: rest - 1),
)
SUMS_13.part(
    "the last batch is a multiple of B", 1, epochs(lambda skip: 1, lambda skip, rest: skip - 1)
)
SUMS_13.part(
    "waiting would end after the epoch",
    1,
    epochs(lambda skip: skip - 1, lambda skip, rest: skip),
)
SUMS_13.part("B = 1, one batch, no batch", 1, few)


@SUMS_13.mistake("the sum of the epoch's last batch is missing")
def without_the_last(batches, global_skip, wait):
    found = global_sums(batches, global_skip, wait)
    return [(sent, received) for sent, received in found if sent % global_skip == 0]


@SUMS_13.mistake("you list the last batch twice when it is a multiple of B")
def last_one_twice(batches, global_skip, wait):
    found = without_the_last(batches, global_skip, wait)
    return [*found, (batches - 1, batches - 1)] if batches else []


@SUMS_13.mistake("some of your sums are received after the epoch's last batch")
def ends_after_the_epoch(batches, global_skip, wait):
    found = global_sums(batches, global_skip, wait)
    return [(sent, sent if sent == batches - 1 else sent + wait) for sent, _ in found]


@SUMS_13.mistake("the sum of the last batch is received at once: there is no batch to wait for")
def last_one_waits(batches, global_skip, wait):
    found = global_sums(batches, global_skip, wait)
    return [(sent, received if sent < batches - 1 else sent + wait) for sent, received in found]


@SUMS_13.mistake("you add W to every batch: no sum is received later than in the last batch")
def all_wait(batches, global_skip, wait):
    return [(sent, sent + wait) for sent, _ in global_sums(batches, global_skip, wait)]


@SUMS_13.mistake("you send after B batches, in batch B-1; the first sum is sent in batch 0")
def after_b_batches(batches, global_skip, wait):
    sent = [b for b in range(batches) if (b + 1) % global_skip == 0 or b == batches - 1]
    return [(b, min(b + wait, batches - 1)) for b in sent]


@SUMS_13.mistake("a sum that cannot wait for W batches is sent too, and received in the last batch")
def never_sent_if_too_late(batches, global_skip, wait):
    found = ends_after_the_epoch(batches, global_skip, wait)
    return [(sent, received) for sent, received in found if received < batches]
