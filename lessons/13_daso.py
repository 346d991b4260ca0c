"""Lesson 13: DASO - nodes that synchronise only now and then, and a little late.

    mpiexec -n 4 python lessons/13_daso.py        waits for messages instead of sending slowly
    python -m refgf.cluster run --like mgwfbp-10gbe --nodes 2 --ranks-per-node 2 --rate 1gbit -- \
        python lessons/13_daso.py
    options: --predict "25 %", -v (all tables), --like this-machine (computes for real),
             --ranks-per-node K, --quick, --full, --plot, ...

QUESTION    In synchronous training all nodes wait in every step for the slow links between them.
            What if they kept computing, and used the other nodes' result when it arrives? How much
            time does that save, and what does it cost?
IDEA        The ranks of a node average their gradients in every batch. Every B batches, one rank of
            each node sums PARAMETERS over the nodes in the background; these groups take turns. W
            batches later the sum, stale by then, is merged with the node's current parameters:
            w <- (2W w + sum) / (2W + m). Training begins and ends with blocking sums (warm-up,
            cool-down), and each epoch ends with one. (Coquelin et al. 2022; drawing:
            lessons/drawings/13.svg; `daso_epoch` below, for real in refgf/papers/daso/daso.py;
            what the authors' public code does otherwise: heat.py there)

                batch        0       1       2       3       4       5       ...   last (B=4, W=1)
                in a node    average average average average average average       average
                over nodes   send    merge                   send    merge         wait for a sum
                in flight       |=sum=|                         |=sum=|
PREDICTION  m nodes, n parameters. A batch takes c without exchange, the update included. Averaging
            gradients in the node takes l. A sum over the nodes takes

                G = 2 (m-1) (alpha + 4 n / m / rate) + the work of adding and copying

            and s to broadcast in the node, and h to copy, check and merge. So a batch takes

                synchronous           c + l + G          all gradients: in the node, then between
                blocking, bfloat16    c + l + G/2 + h + s        and the work of rounding
                B, W                  c + l + (max(0, G - W (c + l)) + h + s) / B
                an epoch's last       c + l + G + h + s          it waits for a whole sum

            Naive is to wait for each sum. By hand: c = 40, l = 10, G = 100, h = 2 and s = 6 ms make
            150 ms a synchronous batch. B = 1, W = 1 still waits 50 ms for each sum: 108 ms. B = 4,
            W = 2 waits for none, except at an epoch's end: 52 ms.

            The processor's work is measured without a network, or inside a node.

Before you run it, write down: on links where communication is about 57 % of a synchronous step, how
much shorter is a batch with B = 4, W = 1? What of a sum can never be hidden? And is the network as
good after the same number of epochs?

This is weak scaling: each rank brings its own batch, for any p. Where there is only one node, nodes
are pretended: then only messages between these nodes wait for the link. Averaging in the node is
not to scale: it crosses this machine's memory, and GPUs of a node have faster links. After this
lesson you can predict a batch from c, l, G, h and s, and judge a whole training against the
strongest baseline.

APPENDIX    DiLoCo (Douillard et al. 2023; refgf/papers/diloco): a node trains alone for H steps.
            Then all nodes wait for a sum of their differences, and take an outer Nesterov step with
            it. So bytes are divided by H, and no sum is late. With outer rate 1 and no momentum it
            is local SGD. With d for l and a pass that scales, a batch with H = 8 takes

                c + d + (G + outer step) / 8

            Its outer rate here, 0.7, and its outer momentum, 0.9, are those used with H = 500. Do
            they suit H = 8? Before an evaluation it takes an outer step, even if it is less than H
            steps after the last.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/13_daso.py)
    1. After how many batches do a node's own parameters weigh as much as the sum of m nodes? What
       remains of a node's own step when 100 nodes merge after W = 1?
    2. A sum takes as long as 3 batches. Which W hides it? With W = 1, from which B does only 1/20
       of a batch of it remain?
    3. Let the same group sum every time. Which parameters change, and who sends how much?

A COLLEAGUE SAYS the following, and is wrong. Show it. (answers: lessons/teaching/13.md)
    a. "What runs in the background is free." -v: B = 1 against B = 4, the column "waits".
    b. "Asynchronous beats synchronous." Which baseline is the strongest, and for a whole training?
    c. "Nodes that synchronise late learn the same, or nothing." -v, then --rate 0.004 -v: drift and
       pairs.
"""

import refgf.launch  # noqa: F401  before MPI starts

from collections.abc import Iterator
import numpy as np

import kit
from kit import images, placement
from lab.daso import learning, oracle, plan, rare, times
from lab.daso.claims import REVEAL
from lab.daso.picture import draw
from refgf.papers.daso.phases import BLOCKING, Phase

# ---- the idea, for all ranks in one process ----


def daso_epoch(w, points, global_skip: int, wait: int, rate: float) -> np.ndarray:
    """w: (n,). points[batch, node, rank]: (n,), the loss is |w - point|^2 / 2. -> (nodes, n)"""
    batches, nodes = points.shape[:2]
    ws = np.tile(w, (nodes, 1))  # the ranks of a node hold the same parameters
    in_flight = {}  # batch of receipt: (sum, batches since it was sent)
    for b in range(batches):
        gradients = ws[:, None] - points[b]  # (nodes, ranks, n)
        ws = ws - rate * gradients.mean(axis=1)  # averaged in the node
        if nodes > 1 and (b % global_skip == 0 or b == batches - 1):
            waited = min(wait, batches - 1 - b)  # the epoch's last sum is blocking
            in_flight[b + waited] = ws.sum(axis=0), waited
        if b in in_flight:
            total, waited = in_flight.pop(b)
            ws = (2 * waited * ws + total) / (2 * waited + nodes)  # the older, the less it weighs
    return ws


# ---- one batch ----

PHASES = {
    "blocking, bfloat16": BLOCKING,
    "B = 1, W = 1": Phase(1),
    "B = 4, W = 1": Phase(4),
}
ALSO = {"B = 8, W = 2": Phase(8, 1, 2)}  # with --full


def predicted_s(terms: dict[str, float], phase: Phase) -> float:
    """The predicted time of a batch inside a long epoch. terms: see PREDICTION."""
    inside = terms["compute"] + terms["node"]
    merged = terms["merge"] + terms["spread"]
    if phase.blocking:
        return inside + terms["sum bfloat16"] + merged
    waited = max(0.0, terms["sum"] - phase.wait * inside)
    return inside + (waited + merged) / phase.global_skip


# ---- the lesson ----


def measure(run: kit.Run) -> Iterator[dict]:
    train, held_out = images.load(run)
    nodes = placement.nodes(run, 2 if run.size % 2 == 0 else 1)
    plan.show(run, nodes, Phase(4))
    oracle.check(run, train, nodes)
    phases = PHASES | run.quick({}, {}, ALSO)
    timed = times.measure(run, train, nodes, phases, predicted_s)
    yield {"nodes": nodes, "times": timed}
    drift = learning.watch_drift(run, train, nodes)
    yield {"drift": drift}
    yield {"lost_updates": learning.lost_updates(run, train, nodes)}
    accuracy = learning.compare_accuracy(run, train, held_out, nodes)
    yield {"accuracy": accuracy}
    yield {"rare": rare.show(run, nodes, timed, drift, accuracy)}


if __name__ == "__main__":
    lesson = kit.Lesson(__file__, __doc__, REVEAL, like="mgwfbp-10gbe")
    images.arguments(lesson, rate=0.04)
    lesson.parser.set_defaults(width=1 / 16, batch=16)
    placement.argument(lesson)
    lesson.main(measure, draw)
