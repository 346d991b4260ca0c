"""Other rules for lesson 16: what is counted of a rank's share, what a step returns, who sends."""

import numpy as np

from refgf.oracle.spec.change import CHANGES, Change
from refgf.oracle.spec.zero.lesson_16 import HELD_16, SENT_16, STEP_16

# ---- what a rank holds ----


def in_bytes(function):
    def held(*a):
        weights, gradients, state = function(*a)
        return 2 * weights, 2 * gradients, 4 * state

    return held


def altogether(function):
    return lambda *a: sum(function(*a))


HOLDS = "Elements that a rank holds. -> (of weights, of gradients, of the optimiser's state)"
BYTES = {
    HOLDS: "Bytes that a rank holds. -> (of weights, of gradients, of the optimiser's state)\n\n"
    "    Weights and gradients are float16, 2 bytes each. The state is float32, 4 bytes.",
}
ALL = {
    "stage: int, states: int) -> tuple[int, int, int]:": "stage: int, states: int) -> int:",
    HOLDS: "Elements that a rank holds: weights, gradients and the optimiser's state, together.",
}

# ---- what a step returns ----


def of_means(function):
    def sharded_step(w, velocities, gradients, rate, momentum):
        means = [gradient / np.float32(len(gradients)) for gradient in gradients]
        return function(w, velocities, means, rate, momentum)

    return sharded_step


def as_change(function):
    def sharded_step(w, *a):
        new, velocities = function(w, *a)
        return w - new, velocities

    return sharded_step


RETURNS = "One step of ZeRO-1 over p ranks. -> (new weights (n,), new velocities)"
MEANS = {
    "A rank sums its slice of all gradients, and\n    updates": (
        "A rank takes the mean over the p ranks of its\n    slice of all gradients, and updates"
    ),
    "v <- momentum v + sum,": "v <- momentum v + mean,",
    "The sums may be in any order.": "Gradients may be added in any order.",
    "a rank updates with the sum of all ranks' gradients, not with its own gradient": (
        "a rank updates with the mean of all ranks' gradients, not with its own gradient"
    ),
    "do not divide by p: the losses are already divided by the global batch": "",
}
CHANGED = {
    RETURNS: "One step of ZeRO-1 over p ranks. -> (what to subtract from w (n,), new velocities)",
    "All ranks take all slices of\n    the new weights.": (
        "All ranks take all slices\n    of rate v, which are returned as one array."
    ),
    "and w[start:stop] = ... changes the slice of a copy of w.": (
        "and x[start:stop] = ... fills a slice of an array x."
    ),
}

# ---- who sends ----


def all_ranks(function):
    return lambda n, p, stage: p * function(n, p, stage)


def float16_bytes(function):
    return lambda *a: 2 * function(*a)


SENT = "Elements that a rank sends in a step, where p divides n."
TOGETHER = {SENT: "Elements that all p ranks together send in a step, where p divides n."}
FLOAT16 = {SENT: "Bytes that a rank sends in a step in float16, where p divides n."}

CHANGES["16"] = [
    [
        [Change(HELD_16, "here the bytes count, 2 or 4", in_bytes, words=BYTES)],
        [Change(HELD_16, "here all three are added", altogether, words=ALL)],
    ],
    [
        [Change(STEP_16, "here a rank takes the mean of the gradients", of_means, words=MEANS)],
        [Change(STEP_16, "here what is subtracted is returned", as_change, words=CHANGED)],
    ],
    [
        [Change(SENT_16, "here all ranks together count", all_ranks, words=TOGETHER)],
        [Change(SENT_16, "here bytes in float16 count", float16_bytes, words=FLOAT16)],
    ],
]
