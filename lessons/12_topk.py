"""Lesson 12: top-k - fine-grained sparsity, next to the coarse-grained sparsity of lesson 06.

    mpiexec -n 8 python lessons/12_topk.py    waits for messages instead of sending slowly
    python -m refgf.cluster run --like v100-56gbit --ranks-per-node 2 -- python lessons/12_topk.py
    options: --predict topk, -v (all tables), --ranks-per-node K, --like this-machine, --quick, ...

QUESTION    CSC sends the most important chunks. Why not the most important single gradients? Far
            fewer elements would do.
IDEA        Each rank sends its k largest values and their indices. All ranks gather these pairs
            and add them up. What was not sent stays in a residual for the next step:

                rank 0   .  5  .  .  .  .  7  .  .  .       2 of 10, with indices 1 and 6
                rank 1   .  .  .  2  .  .  4  .  .  .       2 of 10, with indices 3 and 6
                sum      .  5  .  2  .  . 11  .  .  .       3 of 10: other ranks, other elements

            Finding the k largest needs no sorting. MSTopK (Shi et al. 2021) bisects a threshold
            and counts how many magnitudes reach it: `mstopk` below, and `topk_sums` with it.
            HiTopKComm first sums densely inside each node of g ranks. Each rank then chooses from
            its slice of that sum, so only one set of pairs a node is sent to other nodes (drawing:
            lessons/drawings/12.svg; both for real: refgf/papers/mstopk/topk.py). Last, a node's
            ranks gather its dense slices: chosen, because public code gathers pairs there instead
            (`hitopk_pairs_s` in refgf/papers/mstopk/cost.py).

PREDICTION  n gradients in float32, a density of d percent, k = n d / 100; p = m g ranks on m nodes.
            Bytes that a rank sends in a step, and bytes that leave a node:

                              a rank sends                              leave a node
                dense ring    2 (p-1)/p 4n                              2 (p-1)/p 4n
                CSC           2 (p-1)/p 4n d/100, and norms             2 (p-1)/p 4n d/100
                top-k         (p-1) (4 + 4) k                           (p-1) (4 + 4) k
                HiTopKComm    2 (g-1)/g 4n + (m-1) (4 + 4) k/g          (m-1) (4 + 4) k

            Naive is top-k: each rank's pairs go to all others. By hand: 10 % of 1,000,000 gradients
            are 0.8 MB of pairs. On 4 ranks each sends 2.4 MB, where a dense ring sends 6 MB. On 16
            ranks it is 12 MB against 7.5 MB. On 4 nodes of 4, HiTopKComm lets only 2.4 MB leave a
            node, not 12.

            What is learned for these bytes is measured: CSC with and without a warm-up of its
            density, top-k of the same density, and of the same bytes (a density p times smaller).

Before you run it, write down: whose messages take the least time at 10 %: dense ring, CSC, top-k or
HiTopKComm? At how many ranks does top-k at 1 % send as many bytes as the dense ring?
With as many bytes as CSC, does top-k learn more or less than CSC?

This is weak scaling: each rank brings its own batch, for any p. The links are those of 56 Gbit/s
because their dilation, 56, slows a V100's 900 GB/s of memory (assumed) to 16 GB/s; with -v the run
prints what one core reads. The closer the two are, the more choosing is to scale. After this lesson
you can predict the bytes of top-k, CSC and a ring for any p, and say what accuracy they buy.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/12_topk.py)
    1. How many non-zeros has a sum of top-k from p ranks, at least and at most? Count them for
       data that all ranks share.
    2. Remove the error feedback: send the k largest and drop the rest. On which problem does
       training never converge?
    3. From how many ranks does top-k at 1 % send more than the dense ring? And with 16-bit values?

A COLLEAGUE SAYS the following, and is wrong. Show it. (answers: lessons/teaching/12.md)
    a. "One percent of the gradients is one percent of the bytes." -v: bytes that leave a node.
    b. "Finding the k largest costs nothing next to a network." -v: "How long does choosing take?"
    c. "A node's ranks each send their own pairs, there is no other way." -v; then --ranks-per-node
       1 -v.
"""

import refgf.launch  # noqa: F401  before MPI starts

from collections.abc import Iterator
import numpy as np

import kit
from kit import images, placement
from lab.topk import choice, exchange, learning, oracle, traffic
from lab.topk.claims import REVEAL
from lab.topk.picture import draw
from refgf.comm import gather
from refgf.papers.mstopk.topk import TopK

# ---- the idea, for all ranks in one process ----


def mstopk(x: np.ndarray, k: int, rounds: int = 30) -> np.ndarray:
    """k indices of x (n,), nearly those of the largest magnitudes, found without sorting."""
    magnitude = np.abs(x)
    sure, maybe = np.zeros(x.size, bool), np.ones(x.size, bool)  # at most k reach, more than k
    low, high = 0.0, magnitude.max(initial=0)
    threshold = magnitude.sum() / max(1, x.size)  # the mean
    for _ in range(rounds):
        reach = magnitude >= threshold  # one pass over memory, in order
        if np.count_nonzero(reach) > k:
            low, maybe = threshold, reach
        else:
            high, sure = threshold, reach
        threshold = (low + high) / 2
    missing = k - np.count_nonzero(sure)
    return np.union1d(np.flatnonzero(sure), np.flatnonzero(maybe & ~sure)[:missing])


def topk_sums(gradients, residuals, k: int) -> tuple[np.ndarray, np.ndarray]:
    """(p, n) twice -> (sums (n,), new residuals (p, n))."""
    waiting = residuals + gradients  # what was not sent before counts too
    sums = np.zeros_like(waiting[0])
    for mine in waiting:
        chosen = mstopk(mine, k)
        sums[chosen] += mine[chosen]  # k values and k indices are sent to all ranks
        mine[chosen] = 0
    return sums, waiting


# ---- one step: an exchange sums gradients (n,) in place, and has the residual ----


def exchanges(run: kit.Run, nodes: list[list[int]], n: int, percent: float) -> tuple:
    """Top-k among all ranks; HiTopKComm: dense inside the nodes, pairs between them."""
    topk = TopK(n, percent, gather.allgather(run.comm), xp=run.xp)
    return topk, placement.hitopk(run.comm, nodes, n, percent)


# ---- the lesson ----


def measure(run: kit.Run) -> Iterator[dict]:
    train, held_out = images.load(run)
    nodes = placement.equal_nodes(run)
    oracle.check(run, nodes, exchanges)
    n = exchange.elements(run, train)
    yield {"choice": choice.measure(run, n)}
    yield {"exchange": exchange.measure(run, nodes, n)}
    yield {"traffic": traffic.against_ranks(run, n, len(nodes[0]))}
    yield {"learning": learning.measure(run, train, held_out)}


if __name__ == "__main__":
    lesson = kit.Lesson(__file__, __doc__, REVEAL, like="v100-56gbit")
    images.arguments(lesson)
    lesson.parser.set_defaults(width=1 / 16)
    placement.argument(lesson)
    lesson.main(measure, draw)
