"""Other rules for lesson 13: how a wait is written, what a merge is given, whose history counts,
what an outer step is given or returns.
"""

import numpy as np

from refgf.oracle.spec.change import CHANGES, Change
from refgf.oracle.spec.daso.arithmetic import MERGE_13
from refgf.oracle.spec.daso.batches import SUMS_13
from refgf.oracle.spec.daso.epoch import EPOCH_13
from refgf.oracle.spec.diloco.outer import OUTER_13

# ---- how a wait is written ----


def as_wait(function):
    return lambda *a: [(sent, received - sent) for sent, received in function(*a)]


def from_the_end(function):
    def global_sums(batches, global_skip, wait):
        pairs = function(batches, global_skip, wait)
        return [(batches - 1 - sent, batches - 1 - received) for sent, received in pairs]

    return global_sums


PAIRS = "[(batch when sent, batch when received), ...]: all sums over nodes in an epoch, in order."
WAIT = {
    PAIRS: "[(batch when sent, batches until received), ...]: all sums over nodes in an epoch, in\n"
    "    order.",
}
FROM_THE_END = {
    PAIRS: "[(batches left when sent, batches left when received), ...]: all sums over nodes in\n"
    "    an epoch, in order. In the last batch 0 are left, in the one before it 1, and so on.",
}

# ---- what a merge is given ----


def of_the_mean(function):
    return lambda w, mean, nodes, waited: function(w, mean * np.float32(nodes), nodes, waited)


def given_the_mean(w, total, nodes, waited):
    return w, total / np.float32(nodes), nodes, waited


def with_share(function):
    def merge(w, total, nodes, waited):
        return function(w, total, nodes, waited), 2 * waited / (2 * waited + nodes)

    return merge


MEAN = {
    "total: the sum of the parameters of all nodes (this one too), which was\n    sent": (
        "total: the mean of the parameters of all nodes (this one too), which\n    was sent"
    ),
    "each node merges it (exercise 3).": "each node merges it (exercise 3, given the mean).",
}
SHARE = {
    "A node's parameters after it has received a sum. float32 (n,) -> float32 (n,)": (
        "(parameters, share): a node's parameters after it has received a sum, float32 (n,), and\n"
        "    the weight of w over the sum of all weights."
    ),
    "waited: int) -> np.ndarray:": "waited: int) -> tuple[np.ndarray, float]:",
    "The result is a weighted mean:": "The new parameters are a weighted mean:",
}

# ---- whose history counts ----


def node_by_node(function):
    return lambda *a: function(*a).transpose(1, 0, 2)


def with_the_start(function):
    def epoch(w, gradients, *plan):
        start = np.broadcast_to(w, (1, *gradients.shape[1:]))
        return np.concatenate([start, function(w, gradients, *plan)])

    return epoch


HISTORY = "The parameters of every node after every batch of an epoch. -> (batches, m, n)"
NODES = {HISTORY: "The parameters of every node after every batch of an epoch. -> (m, batches, n)"}
START = {
    HISTORY: "The parameters of every node before an epoch and after each of its batches.\n"
    "    -> (batches + 1, m, n)",
}

# ---- what an outer step is given, or returns ----


def of_their_mean(function):
    return lambda start, v, mean, *how: function(start, v, mean[None], *how)


def given_their_mean(start, v, ws, rate, momentum):
    return start, v, ws.mean(axis=0), rate, momentum


def as_move(function):
    def outer_step(start, v, ws, rate, momentum):
        after, velocity = function(start, v, ws, rate, momentum)
        return after - start, velocity

    return outer_step


THEIR_MEAN = {
    "v: np.ndarray, ws: np.ndarray,": "v: np.ndarray, mean: np.ndarray,",
    "ws: (m, n), those of each node now, H steps of its own later.": (
        "mean: (n,), the mean of those that the nodes have now, H steps of their own later."
    ),
    "d is the mean over the nodes of start - w.": "d is start - mean.",
    "d is the mean over the nodes, not their sum": "",
    "d is start minus w, not w minus start": "d is start minus mean, not mean minus start",
}
MOVE = {
    "(start, v) after an outer step of DiLoCo.": (
        "(move, v) of an outer step of DiLoCo; start + move is the new start."
    ),
    "Nesterov's step: start - rate": "Nesterov's step: move = -rate",
}

CHANGES["13"] = [
    [
        [Change(SUMS_13, "here the batches that it waits count", as_wait, words=WAIT)],
        [Change(SUMS_13, "here the batches that are left count", from_the_end, words=FROM_THE_END)],
    ],
    [
        [Change(MERGE_13, "here a mean is given", of_the_mean, given_the_mean, MEAN)],
        [Change(MERGE_13, "here w's share comes with it", with_share, words=SHARE)],
    ],
    [
        [Change(EPOCH_13, "here each node has its history", node_by_node, words=NODES)],
        [Change(EPOCH_13, "here the start comes with it", with_the_start, words=START)],
    ],
    [
        [Change(OUTER_13, "here their mean is given", of_their_mean, given_their_mean, THEIR_MEAN)],
        [Change(OUTER_13, "here the move is returned", as_move, words=MOVE)],
    ],
]
