"""Other rules for lesson 12: how choice, interval and step are written, whose bytes count."""

import numpy as np

from refgf.oracle.spec.change import CHANGES, Change
from refgf.oracle.spec.topk.choice import TOP_K_12
from refgf.oracle.spec.topk.mstopk import THRESHOLD_12
from refgf.oracle.spec.topk.steps import STEP_12
from refgf.oracle.spec.topk.traffic import BYTES_12

# ---- how a choice is written ----


def as_mask(function):
    def top_k(x, k):
        mask = np.zeros(len(x), bool)
        mask[function(x, k)] = True
        return mask

    return top_k


def with_values(function):
    def top_k(x, k):
        chosen = function(x, k)
        return chosen, x[chosen]

    return top_k


CHOICE = "The indices of the k elements of largest magnitude, ascending. -> int64 (k,)"
VALUES = "you return values; wanted their indices"
MASK = {
    CHOICE: "A mask of the k elements of largest magnitude: True where one is chosen. -> bool (n,)",
    "your indices are in the order of magnitude; wanted ascending": "",
    VALUES: "",
}
BOTH = {
    CHOICE: "The indices of the k elements of largest magnitude, ascending, and their values.\n"
    "    -> (int64 (k,), float64 (k,))",
    "def top_k(x: np.ndarray, k: int) -> np.ndarray:": (
        "def top_k(x: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:"
    ),
    VALUES: "",
}

# ---- how an interval is written ----


def middle(function):
    return lambda *search: sum(function(*search)) / 2


def with_reached(function):
    def threshold(x, k, rounds):
        low, high = function(x, k, rounds)
        return low, high, np.count_nonzero(np.abs(x) >= low)

    return threshold


SEARCH = "MSTopK's search for a threshold that k magnitudes reach, by bisection. -> (low, high)"
RETURNS = "rounds: int) -> tuple[float, float]:"
MIDDLE = {
    SEARCH: "MSTopK's search for a threshold that k magnitudes reach, by bisection. -> the middle\n"
    "    of low and high after the last round",
    RETURNS: "rounds: int) -> float:",
}
REACHED = {
    SEARCH: "MSTopK's search for a threshold that k magnitudes reach, by bisection. -> (low,\n"
    "    high, how many magnitudes reach low)",
    RETURNS: "rounds: int) -> tuple[float, float, int]:",
}

# ---- how a step is written ----


def mean(function):
    def topk_step(gradients, residuals, k):
        total, rests = function(gradients, residuals, k)
        return total / np.float32(len(gradients)), rests

    return topk_step


def with_sent(function):
    def topk_step(gradients, residuals, k):
        total, rests = function(gradients, residuals, k)
        return total, [g + h - rest for g, h, rest in zip(gradients, residuals, rests)]

    return topk_step


STEP = "-> (sum (n,), new residuals)"
MEAN = {
    STEP: "-> (mean (n,), new residuals)",
    "All ranks add up what all have sent.\n    The sum: float32": (
        "All ranks add up what all have sent,\n    and then divide the sum by p, in float32.\n"
        "    The mean: float32"
    ),
    "you return the mean over the ranks; wanted the sum": "",
}
SENT = {
    STEP: "-> (sum (n,), what each rank sends)",
    "New residuals: p arrays, float32 (n,).": (
        "What each rank sends: p arrays, float32 (n,), 0 where it sends nothing."
    ),
    "what you do not send is lost: it is the residual of the next step": "",
    "you do not clear what was sent: it would be sent a second time": "",
    "you clear on all ranks what any rank has sent: a rank clears only what it has sent itself": "",
}

# ---- whose bytes count ----


def of_all_ranks(function):
    def step_bytes(n, percent, p, value_bytes):
        return tuple(p * nbytes for nbytes in function(n, percent, p, value_bytes))

    return step_bytes


def wide_indices(function):
    def step_bytes(n, percent, p, value_bytes):
        dense, sparse = function(n, percent, p, value_bytes)
        return dense, sparse / (value_bytes + 4) * (value_bytes + 8)

    return step_bytes


ALL = {"Bytes that one of p ranks sends in a step.": "Bytes that all p ranks send, in one step."}
WIDE = {
    "An index has 4.": "An index has 8.",
    "you forget the indices: 4 bytes for each value that is sent": "",
    "an index has 4 bytes, whatever the bytes of a value": "",
}

CHANGES["12"] = [
    [
        [Change(TOP_K_12, "here a choice is a mask", as_mask, words=MASK)],
        [Change(TOP_K_12, "here the values come with it", with_values, words=BOTH)],
    ],
    [
        [Change(THRESHOLD_12, "here the middle counts", middle, words=MIDDLE)],
        [Change(THRESHOLD_12, "here a count comes with it", with_reached, words=REACHED)],
    ],
    [
        [Change(STEP_12, "here the sum is divided by the ranks", mean, words=MEAN)],
        [Change(STEP_12, "here what was sent is returned", with_sent, words=SENT)],
    ],
    [
        [Change(BYTES_12, "here the bytes of all ranks count", of_all_ranks, words=ALL)],
        [Change(BYTES_12, "here an index has 8 bytes", wide_indices, words=WIDE)],
    ],
]
