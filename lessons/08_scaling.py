r"""Lesson 08: scaling - from the ranks that you have to the 2048 GPUs that you do not have.

    python -m refgf.cluster run --like v100-56gbit -- python lessons/08_scaling.py
    mpiexec -n 4 python lessons/08_scaling.py      (the links are waited for)
    ... --like this-machine                        (your cores compute; writes a machine file)
    ... --machine FILE                             (predict also for a machine measured elsewhere)

QUESTION    The papers speak of 64, 512 and 2048 GPUs. How much of that can be known with four ranks
            and a formula?
IDEA        Measure where you can, on 1, 2 and 4 ranks. Draw the formula through the points, and
            only then past them. Every input has a source. An input that is not known is a range.
            (refgf/papers/scaling/scaling.py, headlines.py, rows.py)
PREDICTION  A ring of p ranks takes T(m) = 2(p-1) alpha + 2(p-1)/p beta m. So the latencies grow
            with p. The bytes grow by a third from 4 ranks to infinitely many.

                step(p)             = end of the last call; a call starts when its gradients are
                                      ready and the call before it has ended
                scaling efficiency  = T(p ranks, exchange off) / T(p ranks, exchange on), in percent

            Points: the cluster that is emulated, the accelerator's pace and this processor's own
            work are the inputs. Past the points: published links and rates of one GPU.

The papers write "speedup" for p x scaling efficiency, the throughput of p GPUs over that of one.
410.2 of 512 is such a number, a scaling efficiency of 80 %. The emulated V100's rate, 3297 images a
second, was computed from it. So no measured point says anything about 410.2: a number that was used
as input proves nothing. The interval for 512 GPUs takes rates that others have measured.

Before you run it, write down: which technique gains on 2048 ranks what it gains on 4? Which gains
nothing there? And how much of 512 will GradientFlow reach on 512 GPUs, computed from a single GPU's
rate and the links?

This is weak scaling: each rank brings a batch of its own, whatever p is. With --like this-machine
the ranks share cores, so a technique that needs the processor slows down computing.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/08_scaling.py)
    1. At which p do the latencies of eager exchange take longer than ResNet-50 computes?
    2. Use the rate of a single GPU that follows from 410.2 and 1.5 minutes. What does the
       prediction say then, and what is it worth?
    3. Halving-doubling takes 2 log2 p steps. What does eager exchange gain by it on 2048 ranks,
       and what does lazy allreduce gain?
"""

import refgf.launch  # noqa: F401  before MPI starts

from dataclasses import replace
from pathlib import Path

import numpy as np

import kit
from kit import images
from kit.claims import GAIN, LIMIT, Claim
from lab import machine_file, rank_subset, scaling_far, scaling_here, scaling_points
from lab.scaling_picture import draw
from lab.scaling_points import Inputs
from lab.scaling_values import gain, inside, on_2048, steps
from refgf.comm import ring
from refgf.comm.schedule import collective
from refgf.oracle.definitions import ring_allreduce, ring_traffic, same_bits
from refgf.papers.scaling.simulate import from_schedules
from refgf.papers.scaling.systems import System, stack, step
from refgf.predict.cost import Line, Link, ring_allreduce_s, ring_line

THETA, THETA_HERE = 2**22, 2**18  # bytes; of the full network, of the small one
EAGER, OVERLAP, LAZY, HALF, CSC = (system.name for system in stack(np.inf))
SHARED = "computing that shares the cores with the exchange (--like this-machine)"

CLAIMS = (
    Claim(
        "Overlap shortens the step of eager exchange on all ranks.",
        lambda r: steps(r, (OVERLAP, 1), "<", (EAGER, 1)),
        unless=SHARED,
    ),
    Claim(
        "Lazy allreduce gains less than 10 % on AlexNet: 26 tensors have few latencies to save.",
        lambda r: steps(r, (LAZY, 1), ">", (OVERLAP, 1), 0.9),
        unless="short messages or many ranks, whose latencies are most of a call",
    ),
    Claim(
        "Float16 shortens the step of lazy allreduce.",
        lambda r: steps(r, (HALF, 1), "<", (LAZY, 1)),
        unless="communication that is hidden already, or casts that share the cores",
    ),
    Claim(
        "CSC shortens the step of float16.",
        lambda r: steps(r, (CSC, 1), "<", (HALF, 1)),
        unless="communication that is hidden already, or a choice that shares the cores",
    ),
    Claim(
        "Without overlap a step on all ranks takes longer than on half of them.",
        lambda r: steps(r, (EAGER, 1), ">", (EAGER, 2)),
        unless="one rank more or less: a rank sends 2(p-1)/p of its gradients",
    ),
    Claim(
        "PREDICTED for ResNet-50 on 2048 GPUs and InfiniBand: lazy allreduce is more than 5 times "
        "as efficient as overlap alone, because eager exchange pays 161 x 2(p-1) latencies.",
        lambda r: (on_2048(r, LAZY, 0), ">", on_2048(r, OVERLAP, 1), 5),
        unless="the inputs of the formula",
        kind=GAIN,
    ),
    Claim(
        "PREDICTED there: overlap over eager exchange, and float16 with CSC over lazy allreduce, "
        "gain less than 10 % each, because bytes are not what the step waits for.",
        lambda r: (max(gain(r, OVERLAP, EAGER), gain(r, CSC, LAZY)), "<", 1.1),
        unless="the inputs of the formula",
        kind=LIMIT,
    ),
    Claim(
        "GradientFlow's 410.2 lies inside the interval predicted from independent inputs.",
        lambda r: inside(r, 0),
        unless="the range of a single GPU's rate",
    ),
)


# ---- one step: the formula through a point ----


def predict(system: System, x: Inputs) -> float:
    """Seconds of a step: the ring's formula on the link, and the processor's own work.

    Dense: the work is additions and casts, part of each call in proportion to its bytes. CSC: the
    work is accumulating, choosing and packing, here after the last gradient. That is an upper
    bound, because a thread accumulates during backward.
    """
    ring_s = ring_line(x.ranks, x.link)
    if system.percent:
        after_s = x.update_s + x.work_s
        system = replace(system, chunk=x.chunk, selection_s=after_s)
        return step(x.ready, system, ring_s, x.compute_s).step_s
    nbytes = system.itemsize * sum(elements for _, elements in x.ready)
    call_s = Line(ring_s.a_s, ring_s.b_s_per_byte + max(0.0, x.work_s) / nbytes)
    return step(x.ready, system, call_s, x.compute_s).step_s + x.update_s


def measure(run: kit.Run) -> dict:
    machine = run.options.machine and machine_file.given(run.options.machine)
    check(run)
    here, theta = run.regime.like is None, run.options.theta
    systems = stack((THETA_HERE if here else THETA) if theta is None else theta)
    if here:
        measured = {"here": scaling_here.measure(run, systems)}
    else:
        run.section("AlexNet on the emulated cluster")
        measured = {"points": scaling_points.measure(run, systems, predict)}
        scaling_points.report(run, measured["points"])
    far = run.on_rank_0(lambda: scaling_far.past_the_points(run, machine))
    return measured | (far or {})


# ---- the oracle: the sums on fewer ranks, and the formula for more ----


def check(run: kit.Run) -> None:
    """The ring on fewer ranks is as defined; its formula is the time of its schedule."""
    run.section("The oracle")
    for p in scaling_points.sizes(run.size):
        rank_subset.first(run, p, check_subset)
    link = Link(3e-5, 8e-9, 2e-10)
    for p in run.quick((1, 2, 3, 8), range(1, 33)):
        schedules = [ring.allreduce(r, p, 1000) for r in range(p)]
        if abs(ring_allreduce_s(p, 1000, 4, link) - from_schedules(schedules, 4, link)) > 1e-12:
            raise AssertionError(f"ring on {p} ranks: got a formula that differs from the schedule")
    run.say("the formula of the ring is the time of its schedule, uneven slices included")


def check_subset(run: kit.Run) -> None:
    """The ring on these ranks gives the definition's bits and sends the definition's messages."""
    p, rank = run.size, run.rank
    for n in (0, p - 1, 1000):
        everybody = [np.random.default_rng([n, r]).standard_normal(n, np.float32) for r in range(p)]
        x, messages, nbytes = everybody[rank].copy(), run.comm.messages, run.comm.bytes
        collective(run.comm, ring.allreduce)(x)
        place = f"ring allreduce of {n} elements on rank {rank} of {p}"
        if not same_bits(x, ring_allreduce(everybody)[rank]):
            raise AssertionError(f"{place}: got other bits than defined")
        wanted, elements = ring_traffic(n, p, rank)
        got = run.comm.messages - messages, run.comm.bytes - nbytes
        if got != (wanted, 4 * elements):
            wanted = f"wanted {wanted}, {4 * elements}"
            raise AssertionError(f"{place}: got {got} messages, bytes; {wanted}")
    run.say(f"ring on {p} ranks, n = 0, p-1, 1000: bits, messages and bytes as defined")


if __name__ == "__main__":
    lesson = kit.Lesson(
        __file__,
        __doc__,
        like="v100-56gbit",
        claims=CLAIMS,
        picture="Bars: a step on all ranks for five techniques, with the prediction through each; "
        "scaling efficiency against ranks. More figures: bands up to 2048 GPUs, published numbers.",
    )
    images.arguments(lesson)
    lesson.argument(
        "--theta",
        type=kit.threshold_bytes,
        metavar="BYTES",
        help="threshold of lazy allreduce (4 MiB; 256 KiB with --like this-machine)",
    )
    lesson.argument(
        "--machine",
        type=Path,
        metavar="FILE",
        help="predict also for this machine: a file that this lesson wrote",
    )
    lesson.main(measure, draw)
