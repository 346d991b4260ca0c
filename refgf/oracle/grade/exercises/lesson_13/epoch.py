"""Exercise epoch(w, gradients, global_skip, wait, rate)."""

import numpy as np

from refgf.oracle.definitions import DASOSettings, daso_run
from refgf.oracle.grade.exercises.before import Exercise, Mistake, Part
from refgf.oracle.grade.exercises.lesson_13.global_sums import global_sums
from refgf.oracle.spec.exercise import tenths

MERGED, REPLACED = "late sums are merged", "a sum is in flight in the last batch"
TOGETHER, SINGLE = "W = B: one sum is sent, one received", "one node, one batch"


def epoch(w, gradients, global_skip, wait, rate):
    """A11 with one rank a node and no momentum. A3 multiplies each gradient by m."""
    batches, nodes = gradients.shape[:2]
    settings = DASOSettings(nodes, batches, rate, momentum=0.0)
    gs = [[g / nodes for g in batch] for batch in gradients]
    states = daso_run(w, gs, settings, [(global_skip, 1, wait)])
    return np.array([state["w"] for state in states])


def replay(w, gradients, global_skip, wait, rate, mistake):
    """An epoch with one of the mistakes below."""
    batches, nodes = gradients.shape[:2]
    ws, in_flight, states = np.tile(w, (nodes, 1)), [], []
    plan = {} if nodes == 1 and mistake != "one node" else global_sums(batches, global_skip, wait)
    plan, last = dict(plan), batches - 1

    def receive(b):
        nonlocal ws
        order = -1 if mistake == "merged too" else 1  # the last sum first
        for due, total, waited, sent in in_flight[::order]:
            if due == b:
                total = ws.sum(axis=0) if mistake == "fresh sum" else total
                own = sent if mistake == "old parameters" else ws
                ws = (2 * waited * own + total) / (2 * waited + nodes)

    for b in range(batches):
        before = ws
        mine = gradients[b].mean(axis=0) if mistake == "mean over nodes" else gradients[b]
        ws = ws - rate * mine
        if mistake == "receive first":
            receive(b)
            in_flight = [late for late in in_flight if late[0] > b]
        if b in plan and not (mistake == "no last sum" and b == last):
            keeps_old = mistake in ("merged too", "no last sum")
            in_flight = in_flight if keeps_old or b < last else []
            sent = before if mistake == "before the update" else ws
            in_flight.append((plan[b], sent.sum(axis=0), plan[b] - b, sent))
        receive(b)
        states.append(ws)
    return np.array(states)


def sends_before_the_update(*case):
    return replay(*case, mistake="before the update")


def sums_at_the_receipt(*case):
    return replay(*case, mistake="fresh sum")


def merges_old_parameters(*case):
    return replay(*case, mistake="old parameters")


def averages_over_nodes(*case):
    return replay(*case, mistake="mean over nodes")


def receives_before_sending(*case):
    return replay(*case, mistake="receive first")


def merges_in_the_last_batch_too(*case):
    return replay(*case, mistake="merged too")


def without_the_last_sum(*case):
    return replay(*case, mistake="no last sum")


def one_node_merges(*case):
    return replay(*case, mistake="one node")


def runs(*rows):
    """Cases of epoch; rows of (batches, nodes, B, W)."""

    def cases(random):
        return [
            (
                tenths(random, 1, dtype=float),
                tenths(random, batches, nodes, 1, dtype=float),
                global_skip,
                wait,
                random.integers(1, 10).item() / 10,
            )
            for batches, nodes, global_skip, wait in rows
        ]

    return cases


EPOCH = Exercise(
    "epoch",
    epoch,
    (
        Part(MERGED, 3, runs((3, 2, 2, 1), (9, 2, 4, 1), (12, 3, 4, 2), (13, 4, 4, 3))),
        Part(REPLACED, 1, runs((4, 2, 3, 1), (10, 3, 4, 3), (6, 2, 4, 1), (8, 4, 3, 2))),
        Part(TOGETHER, 1, runs((4, 2, 2, 2), (9, 2, 2, 2), (8, 3, 3, 3), (5, 2, 1, 1))),
        Part(SINGLE, 1, runs((4, 1, 3, 1), (1, 3, 4, 1), (1, 1, 4, 1))),
    ),
    (
        Mistake(
            "you sum the parameters before the update of the batch; they are sent after it",
            sends_before_the_update,
            (MERGED, REPLACED, TOGETHER, SINGLE),
        ),
        Mistake(
            "you sum when the sum is received; it is a sum of what the nodes held when it was sent",
            sums_at_the_receipt,
            (MERGED, REPLACED, TOGETHER),
        ),
        Mistake(
            "you merge the sum with the parameters that the node sent; wanted those that it has "
            "now",
            merges_old_parameters,
            (MERGED, REPLACED, TOGETHER),
        ),
        Mistake(
            "you average gradients over all nodes; each node goes on with its own",
            averages_over_nodes,
            (MERGED, REPLACED, TOGETHER),
        ),
        Mistake(
            "you receive before you send; a sum is sent right after the update",
            receives_before_sending,
            (REPLACED, TOGETHER),
        ),
        Mistake(
            "in the last batch you merge the sum that is in flight too; the last sum replaces it",
            merges_in_the_last_batch_too,
            (REPLACED, TOGETHER),
        ),
        Mistake(
            "the sum of the last batch is missing: the nodes end with different parameters",
            without_the_last_sum,
            (MERGED, REPLACED, TOGETHER, SINGLE),
        ),
        Mistake(
            "one node merges its own old parameters; with one node there is nothing to sum",
            one_node_merges,
            (SINGLE,),
        ),
    ),
    relative=1e-9,  # float64, and the operations may be in another order
)
