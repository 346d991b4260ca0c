r"""Lesson 08: scaling - from the ranks that you have to the 2048 GPUs that you do not have.

    python -m refgf.cluster run --like v100-56gbit -- python lessons/08_scaling.py
                            (4 nodes; `run --nodes 8` needs 20 GB of memory and twice the time)
    mpiexec -n 4 python lessons/08_scaling.py      (the links are waited for)
    options: --predict "50 %, 90 %", -v (all tables), --theta BYTES, --headlines (also the papers'
             own numbers, predicted), --machine FILE (predict also for a machine measured
             elsewhere), --like this-machine (your cores compute; writes such a file), --quick, ...

QUESTION    The papers speak of 64, 512 and 2048 GPUs. How much of that can be known with a few
            ranks and a formula?
IDEA        Measure where you can, on 1, 2, 4 or 8 ranks. Draw the formula through the points, and
            only then past them: `scaling_efficiency` below, for real in refgf/predict/timeline.py
            and refgf/papers/scaling/scaling.py (drawing: lessons/drawings/08.svg). Every input has
            a source. An input that is not known is a range.
PREDICTION  A ring of p ranks takes T(m) = 2(p-1) alpha + 2(p-1)/p beta m. So the latencies grow
            with p. The bytes grow by a third from 4 ranks to infinitely many.

                step(p)             = end of the last call; a call starts when its gradients are
                                      ready and the call before it has ended
                scaling efficiency  = T(p ranks, exchange off) / T(p ranks, exchange on), in percent

            Naive is a straight line through measured times. By hand, a ring of 8 MB, 1 GB/s and
            10 us: 4 ranks take 12.06 ms, 8 take 14.14, so the line says 1,075 ms for 2048. The
            formula says 57 ms: 41 of latencies and 16 of bytes. Latencies were 0.5 % on 4 ranks and
            are 72 % now.

The papers write "speedup" for p x scaling efficiency, the throughput of p GPUs over that of one.
410.2 of 512 is such a number. The emulated V100's rate was computed from it, so no measured point
says anything about 410.2: a number that was used as input proves nothing. With --headlines the
interval for 512 GPUs takes rates of one GPU that others have measured.

The formula knows no contention. SimGrid, a simulator, sends the same ring's messages through links
that they share. If it is installed (apt-get install libsimgrid-dev), it shows where the formula
errs. On a fat tree with half as many links up as down, the formula is right for ranks in the order
of their nodes. For ranks dealt round robin over the switches every message crosses the tree.
docs/scale.md takes the formulas to 10,000 ranks.

Before you run it, write down: the scaling efficiency on all your ranks, of eager exchange and with
everything switched on. Which technique gains on 2048 ranks what it gains on 4? Which gains nothing
there?

This is weak scaling: each rank brings a batch of its own, whatever p is. With --like this-machine
the ranks share cores, so a technique that needs the processor slows down computing. After this
lesson you can tell speedup from efficiency and weak from strong scaling, and judge a prediction by
its inputs.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/08_scaling.py)
    1. At which p do the latencies of eager exchange take longer than ResNet-50 computes?
    2. Use the rate of a single GPU that follows from 410.2 and 1.5 minutes. What does the
       prediction say then, and what is it worth?
    3. Halving-doubling takes 2 log2 p steps. What does eager exchange gain by it on 2048 ranks,
       and what does lazy allreduce gain?

A COLLEAGUE SAYS the following, and is wrong. Show it. (answers: lessons/teaching/08.md)
    a. "What helps on 4 ranks helps on 2048." -v: the points, next to "PREDICTED: ResNet-50".
    b. "The prediction hits the published number, so the model is right." --headlines -v: the column
       "widest input".
    c. "An efficiency belongs to a program." --like mgwfbp-10gbe, then --like this-machine.
"""

import refgf.launch  # noqa: F401  before MPI starts

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

import kit
from kit import images
from lab.scaling import far, here, machine_file, models, oracle, points
from lab.scaling.claims import REVEAL
from lab.scaling.picture import draw
from refgf.papers.scaling.systems import System, stack, step
from refgf.predict.cost import Line, ring_line

THETA, THETA_HERE = 2**22, 2**18  # bytes; of the full network, of the small one

# ---- the idea, for all ranks in one process ----


def ring_s(p: int, nbytes: np.ndarray, alpha_s: float, beta_s_per_byte: float) -> np.ndarray:
    """Seconds of a ring allreduce of this many bytes: 2(p-1) messages, each of a p-th of them."""
    return 2 * (p - 1) * (alpha_s + beta_s_per_byte * nbytes / p)


def scaling_efficiency(ranks, compute_s, ready_s, nbytes, alpha_s, beta_s_per_byte) -> np.ndarray:
    """Percent without and with overlap; compute_s is every rank's (weak scaling). -> (ranks, 2)

    ready_s, nbytes: of each gradient, in backward's order (gradients,)
    """
    steps_s = []
    for p in ranks:
        calls_s = ring_s(p, nbytes, alpha_s, beta_s_per_byte) * (nbytes > 0)  # eager: one call each
        end_s = 0.0
        for ready, call in zip(ready_s, calls_s):
            end_s = max(end_s, ready) + call  # calls queue behind each other
        steps_s.append([compute_s + calls_s.sum(), max(compute_s, end_s)])
    return 100 * compute_s / np.array(steps_s)


# ---- one step: the formula through a point ----


def predict(system: System, x: points.StepInputs) -> float:
    """Seconds of a step: the ring's formula on the link, and the processor's own work.

    Dense: the work is additions and casts, part of each call in proportion to its bytes. CSC: a
    thread accumulates and packs during backward; choosing and the update come after it.
    """
    ring_s = ring_line(x.ranks, x.link)
    if system.percent:
        system = replace(system, chunk=x.chunk, selection_s=x.after_s)
        return step(x.ready, system, ring_s, x.compute_s).step_s
    nbytes = system.itemsize * sum(elements for _, elements in x.ready)
    call_s = Line(ring_s.a_s, ring_s.b_s_per_byte + max(0.0, x.work_s) / nbytes)
    return step(x.ready, system, call_s, x.compute_s).step_s + x.update_s


# ---- the lesson ----


def measure(run: kit.Run) -> Iterator[dict]:
    machine = run.options.machine and machine_file.given(run.options.machine)
    oracle.check(run)
    real, theta = run.regime.like is None, run.options.theta
    systems = stack((THETA_HERE if real else THETA) if theta is None else theta)
    if real:
        yield {"here": here.measure(run, systems)}
    else:
        yield {"points": points.measure(run, systems, predict)}
    yield run.on_rank_0(lambda: {"models": models.compare(run)}) or {}
    yield run.on_rank_0(lambda: far.past_the_points(run, machine)) or {}


if __name__ == "__main__":
    lesson = kit.Lesson(__file__, __doc__, REVEAL, like="v100-56gbit")
    images.arguments(lesson)
    theta = "threshold of lazy allreduce (4 MiB; 256 KiB with --like this-machine)"
    lesson.argument("--theta", type=kit.threshold_bytes, metavar="BYTES", help=theta)
    machine = "predict also for this machine: a file that this lesson wrote"
    lesson.argument("--machine", type=Path, metavar="FILE", help=machine)
    headlines = "also the papers' own numbers, each with a prediction, and two more figures"
    lesson.argument("--headlines", action="store_true", help=headlines)
    lesson.main(measure, draw)
