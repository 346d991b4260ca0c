"""Lesson 07: GradientFlow - the whole stack, switched on technique by technique.

    python -m refgf.cluster run --like v100-56gbit -- python lessons/07_gradientflow.py
    ... --like mgwfbp-10gbe -- python lessons/07_gradientflow.py --network resnet50 (161 gradients)
    mpiexec -n 4 python lessons/07_gradientflow.py    without nodes: links are waited for
    options: --predict "lazy allreduce", -v (all tables), --theta BYTES, --pairs N (of trainings,
             0: none), --like this-machine (your laptop as a cluster), --quick, --plot, ...

QUESTION    Five techniques, one stack. What does each add to the others, and what is left to wait
            for?
IDEA        All techniques stack on one function, the allreduce: each takes one and is one. `half`,
            `lazy` and `sparse` below, for real in refgf/training/gradientflow.py (drawing:
            lessons/drawings/07.svg).

                sparse(lazy(half(total), sizes, theta), chosen, residuals)
                  |      |    |     +-- lesson 01: the sum over all ranks
                  |      |    +-------- lesson 05: round what is sent to float16
                  |      +------------- lesson 03: wait for more than theta bytes
                  +-------------------- lesson 06: send chosen chunks only, keep the others

            Any of them can be left out. Overlap (lesson 04) is not in this line, because it changes
            when a call is made, not what it sums.
            Naive is none of them: each gradient is summed in float32 by a call of its own, after
            backward. By hand: AlexNet has 250 MB of gradients. On 4 ranks a ring sends 1.5 times as
            much, and a link of 56 Gbit/s (7 GB/s) needs 53 ms for it, where computing takes 39 ms.

PREDICTION  The timeline of lesson 04 with the bytes of lessons 05 and 06:

                T(m) = 2(p-1) alpha + 2(p-1)/p m / B + the processor's own time for m bytes
                step = max(end of backward, end of the last call) + choice of chunks + update

            scaling efficiency = T(exchange off) / T(exchange on) on the same p ranks, in percent.

Before you run it, write down the order: which technique gains most on AlexNet at 56 Gbit/s? And
which gains least there, but much on ResNet-50 at 10 Gbit/s? (One is measured, the other
predicted; --network resnet50 turns that round.)

This is weak scaling: each rank brings a batch of its own, whatever p is. CSC trains with a density
of 10 % after a warm-up of two epochs; lessons 06 and 12 train other networks, 12 without a warm-up,
and lose other accuracies. After this lesson you can stack the techniques, predict the order of
their gains on two networks, and say what an efficiency is not.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/07_gradientflow.py)
    1. Switch on CSC first and float16 last. Is the gain of a technique the same in another order?
       Why not?
    2. Once all five are on, which can you leave out without losing anything: at 56 Gbit/s, and at
       20 times that rate? By the formulas, without this processor's work.
    3. From the measured alpha, beta and compute time: how many Gbit/s would be enough for dense
       float16 training?

A COLLEAGUE SAYS the following, and is wrong. Show it. (answers: lessons/teaching/07.md)
    a. "Gains add up." --theta inf --pairs 0: what does lazy allreduce give back?
    b. "Each technique gains something everywhere." --pairs 0 with --network resnet50, and with
       --like this-machine.
    c. "A shorter step reaches the accuracy earlier." --pairs 4 -v: the paired differences.
"""

import refgf.launch  # noqa: F401  before MPI starts

from collections.abc import Iterator
from pathlib import Path

import numpy as np

import kit
from kit import images
from lab.stack import bars, picture, scenes
from lab.stack.claims import REVEAL
from refgf.comm.ring import ring_allreduce
from refgf.exchange.lazy import Theta
from refgf.exchange.momentum_correction import CSCSettings
from refgf.exchange.precision import LossScale

# ---- the idea, for all ranks in one process: an allreduce turns p arrays (n,) into their sum ----


def total(xs: list[np.ndarray]) -> np.ndarray:
    return sum(xs[1:], xs[0])


def half(allreduce):
    def rounded(x):
        return x.astype(np.float16).astype(x.dtype)

    return lambda xs: rounded(allreduce([rounded(x) for x in xs]))


def lazy(allreduce, sizes: list[int], theta: float, itemsize: int = 2):
    def calls(xs):
        sums, start, stops = [xs[0][:0]], 0, np.cumsum(sizes).tolist()
        for stop in stops:  # the gradient that ends here is ready
            waiting_bytes = itemsize * (stop - start)
            if waiting_bytes > theta or waiting_bytes and stop == stops[-1]:
                sums.append(allreduce([x[start:stop] for x in xs]))
                start = stop
        return np.concatenate(sums)

    return calls


def sparse(allreduce, chosen: np.ndarray, residuals: list[np.ndarray]):  # chosen: bool (n,)
    def packed(xs):
        sums, waiting = np.zeros_like(xs[0]), [x + kept for x, kept in zip(xs, residuals)]
        sums[chosen] = allreduce([x[chosen] for x in waiting])
        residuals[:] = [np.where(chosen, 0, x) for x in waiting]
        return sums

    return packed


# ---- one step: the stack for real, each technique one argument ----


def stacks(run: kit.Run, theta: float, csc: CSCSettings) -> dict[str, dict]:
    """The arguments of each bar, in the paper's order: a technique more than in the bar before."""
    found, stack = bars.native(run, theta), {}
    for name, technique in {
        bars.RING: {"allreduce": ring_allreduce, "grouping": Theta(0)},
        bars.HALF: {"wire": np.float16, "loss_scale": LossScale(bars.SCALE)},
        bars.OVERLAP: {"overlap": True},
        bars.LAZY: {"grouping": Theta(theta)},
        bars.CSC: {"csc": csc},
    }.items():
        found[name] = stack = stack | technique
    return found


# ---- the lesson ----


def measure(run: kit.Run) -> Iterator[dict]:
    yield from scenes.measure(run, stacks)


if __name__ == "__main__":
    lesson = kit.Lesson(__file__, __doc__, REVEAL, like="v100-56gbit")
    images.arguments(lesson, networks=images.NETWORKS)
    option = lesson.argument
    option("--theta", type=kit.threshold_bytes, default=2**22, help="of lazy allreduce, in bytes")
    option("--checkpoints", type=Path, metavar="DIR", help="of the training at the end")
    option("--resume", action="store_true", help="continue the training of these checkpoints")
    option("--pairs", type=int, metavar="N", help="trainings, dense and sparse (1; 0: none)")
    option("--accuracy", type=float, default=90.0, metavar="PERCENT", help="to be reached (90)")
    lesson.main(measure, picture.draw)
