"""Exercise epoch(w, gradients, global_skip, wait, rate): A11 in small."""

from collections.abc import Callable
from typing import Any

import numpy as np

from refgf.oracle.spec.daso.batches import global_sums
from refgf.oracle.spec.daso.run import DASOSettings, daso_run
from refgf.oracle.spec.exercise import Arguments, Drawn, Exercise, tenths


def epoch(
    w: np.ndarray, gradients: np.ndarray, global_skip: int, wait: int, rate: float
) -> np.ndarray:
    """A11 with one rank a node and no momentum. A3 multiplies each gradient by m."""
    batches, nodes = gradients.shape[:2]
    settings = DASOSettings(nodes, batches, rate, momentum=0.0)
    gs = [[g / nodes for g in batch] for batch in gradients]
    states = daso_run(w, gs, settings, [(global_skip, 1, wait)])
    return np.array([state["w"] for state in states])


def with_mistake(mistake: str) -> Callable[..., Any]:
    """An epoch with one of the mistakes below."""

    def wrong(w, gradients, global_skip, wait, rate):
        return replay(w, gradients, global_skip, wait, rate, mistake)

    return wrong


def replay(
    w: np.ndarray,
    gradients: np.ndarray,
    global_skip: int,
    wait: int,
    rate: float,
    mistake: str,
) -> np.ndarray:
    """An epoch with one of the mistakes below."""
    batches, nodes = gradients.shape[:2]
    ws, states, last = np.tile(w, (nodes, 1)), [], batches - 1
    in_flight: list[tuple[int, np.ndarray, int, np.ndarray]] = []  # due, sum, waited, sent
    alone = nodes == 1 and mistake != "one node"
    plan = {} if alone else dict(global_sums(batches, global_skip, wait))

    def receive(b: int) -> None:
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


def runs(*rows: tuple[int, int, int, int]) -> Drawn:
    """Cases of epoch; rows of (batches, nodes, B, W). One parameter, in the last case two."""

    def cases(random: np.random.Generator) -> list[Arguments]:
        return [
            (
                tenths(random, n, dtype=float),
                tenths(random, batches, nodes, n, dtype=float),
                global_skip,
                wait,
                random.integers(1, 10).item() / 10,
            )
            for number, (batches, nodes, global_skip, wait) in enumerate(rows, start=1)
            for n in [1 + (number == len(rows))]
        ]

    return cases


EPOCH_13 = Exercise("13.4", epoch, relative=1e-9)  # float64, operations in another order
EPOCH_13.part(
    "late sums are merged", 3, runs((3, 2, 2, 1), (9, 2, 4, 1), (12, 3, 4, 2), (13, 4, 4, 3))
)
EPOCH_13.part(
    "a sum is in flight in the last batch",
    1,
    runs((4, 2, 3, 1), (10, 3, 4, 3), (6, 2, 4, 1), (8, 4, 3, 2)),
)
EPOCH_13.part(
    "W = B: one sum is sent, one received",
    1,
    runs((4, 2, 2, 2), (9, 2, 2, 2), (8, 3, 3, 3), (5, 2, 1, 1)),
)
EPOCH_13.part("one node, one batch", 1, runs((4, 1, 3, 1), (1, 3, 4, 1), (1, 1, 4, 1)))
EPOCH_13.mistake("you sum the parameters before the update of the batch; they are sent after it")(
    with_mistake("before the update")
)
EPOCH_13.mistake(
    "you sum when the sum is received; it is a sum of what the nodes held when it was sent"
)(with_mistake("fresh sum"))
EPOCH_13.mistake(
    "you merge the sum with the parameters that the node sent; wanted those that it has now"
)(with_mistake("old parameters"))
EPOCH_13.mistake("you average gradients over all nodes; each node goes on with its own")(
    with_mistake("mean over nodes")
)
EPOCH_13.mistake("you receive before you send; a sum is sent right after the update")(
    with_mistake("receive first")
)
EPOCH_13.mistake(
    "in the last batch you merge the sum that is in flight too; the last sum replaces it"
)(with_mistake("merged too"))
EPOCH_13.mistake("the sum of the last batch is missing: the nodes end with different parameters")(
    with_mistake("no last sum")
)
EPOCH_13.mistake("one node merges its own old parameters; with one node there is nothing to sum")(
    with_mistake("one node")
)
