"""Lesson 07: GradientFlow - the whole stack, switched on technique by technique.

    python -m refgf.cluster run --like v100-56gbit -- python lessons/07_gradientflow.py
    python -m refgf.cluster run --like v100-10gbe -- \
        python lessons/07_gradientflow.py --network resnet50     (161 gradients instead of 26)
    mpiexec -n 4 python lessons/07_gradientflow.py    without nodes: links are waited for
    ... --like this-machine                           your laptop as a cluster: computes for real
    ... --checkpoints DIR                             (after a kill add --resume: the training at
                                                      the end continues at the last checkpoint)

QUESTION    Five techniques, one stack. What does each add to the others, and what is left to wait
            for?
IDEA        Chosen chunks are packed. Packed bytes wait for each other. A thread sums them with a
            ring, rounded for the wire. Each technique is one argument, and each can be off.
            (refgf/training/gradientflow.py)
PREDICTION  The timeline of lesson 04 with the bytes of lessons 05 and 06:

                step = max(end of backward, end of the last call) + choice of chunks + update

            scaling efficiency = T(exchange off) / T(exchange on) on the same p ranks, in percent.

Before you run it, write down the order: which technique gains most on AlexNet at 56 Gbit/s? And
which gains nothing there, but something on ResNet-50 at 10 Gbit/s?

This is weak scaling: each rank brings a batch of its own, whatever p is.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/07_gradientflow.py)
    1. Switch on CSC first and float16 last. Is the gain of a technique the same in another order?
       Why not?
    2. Which technique can you leave out without losing anything on this machine?
    3. From the measured alpha, beta and compute time: how many Gbit/s would be enough for dense
       float16 training?
"""

import refgf.launch  # noqa: F401  before MPI starts

from pathlib import Path

import numpy as np

import kit
from kit import flow, images, virtual
from kit.claims import GAIN, LIMIT, Claim
from lab import ladder, ladder_picture, stack_here, stack_learning
from refgf.comm.direct import direct_allreduce
from refgf.comm.native import mpi_allreduce
from refgf.comm.ring import ring_allreduce
from refgf.engine.residual import FusedResidual
from refgf.exchange.lazy import Theta
from refgf.exchange.momentum_correction import CSCSettings
from refgf.exchange.precision import LossScale
from refgf.oracle.definitions import direct_allreduce as defined_allreduce
from refgf.oracle.definitions import momentum_step, same_bits
from refgf.papers.scaling.systems import CHUNK

HALF, DENSITY = np.float16, ladder.DENSITY
SCALE = 2.0**10  # the loss scale of float16
WIDTH = 1 / 4  # of the network that computes for real
ALEXNET, RESNET = ("alexnet", "v100-56gbit"), ("resnet50", "v100-10gbe")
BASELINE = "MPI's allreduce"
OVERLAP, LAZY = "+ overlap", "+ lazy allreduce"


def scene(result: dict, network: str, like: str) -> dict | None:
    """The ladder of this network on this cluster, on the most ranks; None if not measured."""
    found = [here for here in result["places"].values() if here["like"] == like]
    found = [here for here in found if here["network"] == network]
    return max(found, key=lambda here: here["ranks"], default=None)


def between(place: tuple, later: str, relation: str, earlier: str, factor: float = 1.0):
    """The comparison of two bars of a ladder, or of a bar with "off", the step without exchange."""

    def compare(result: dict):
        here = scene(result, *place)
        steps = here and {row["name"]: row["step"] for row in here["rows"]}
        if not here or not {later, earlier} <= {*steps, "off"}:
            return None
        steps["off"] = here["alone"]
        return steps[later], relation, steps[earlier], factor

    return compare


CORES = "a core for each rank, and links slower than this machine's own copies"
CLAIMS = (
    Claim(
        "AlexNet, 56 Gbit/s: summing each gradient by MPI's own call leaves less than 45 % of the "
        "pace without exchange.",
        between(ALEXNET, BASELINE, ">", "off", 1 / 0.45),
        "the ratio of computing to bytes: an efficient network needs a slower link to show it",
    ),
    Claim(
        "AlexNet: the ring takes no longer than MPI's own call.",
        between(ALEXNET, "+ ring", "<", BASELINE, 1.02),
        "which algorithm MPI chooses",
    ),
    Claim(
        "AlexNet: half the bytes shorten the step by more than a fifth.",
        between(ALEXNET, "+ mixed precision", "<", "+ ring", 0.8),
        CORES,
    ),
    Claim(
        "AlexNet: overlap hides most of what is left, so the step is shorter by a fifth again.",
        between(ALEXNET, OVERLAP, "<", "+ mixed precision", 0.8),
        CORES,
    ),
    Claim(
        "AlexNet's 26 tensors leave nothing to lazy allreduce: it changes the step by less than "
        "10 %.",
        between(ALEXNET, LAZY, "<", OVERLAP, 1.1),
        "the latency of a call next to the bytes of a tensor",
        kind=LIMIT,
    ),
    Claim(
        "AlexNet, 56 Gbit/s: the whole stack keeps at least 80 % of the pace without exchange.",
        between(ALEXNET, "+ CSC", "<", "off", 1 / 0.8),
        CORES,
        kind=GAIN,
    ),
    Claim(
        "ResNet-50, 10 Gbit/s: with overlap, 161 eager calls take at least 1.3 times as long as "
        "lazy ones.",
        between(RESNET, OVERLAP, ">", LAZY, 1.3),
        "the latency of the network and the number of ranks",
    ),
    *stack_learning.CLAIMS,
)


def measure(run: kit.Run) -> dict:
    flow.require_folder(run)
    if run.options.width is None and run.regime.like is None:
        run.options.width = run.quick(1 / 8, WIDTH)
    network, theta = run.options.network, run.options.theta
    train, held_out = images.load(run)
    check_against_oracle(run, train)
    if run.regime.like is None:
        here = stack_here.measure(run, train, stacks(run, theta, flow.csc(run, train, DENSITY)))
        here["network"] = network
    else:
        norms = virtual.real_norms(run, train, 1904)
        csc = CSCSettings(DENSITY, chunk=run.quick(256, CHUNK), residual=FusedResidual)
        words = f"{images.NETWORKS[network]} like {run.regime.like}"
        run.section(f"{words}, theta {kit.number_of_bytes(theta)}")
        here = ladder.measure(run, network, stacks(run, theta, csc), norms)
    ladder.show(run, here)
    here |= {"like": run.regime.record()["like"], "dilation": run.regime.dilation}
    here |= {"ranks": run.size, "theta": theta}
    earlier = run.earlier()
    learning = earlier.get("learning")
    if run.options.pairs != 0:
        learning = stack_learning.measure(run, train, held_out, here)
    title = f"{images.NETWORKS[network]}; {run.place}"
    return {"places": earlier.get("places", {}) | {title: here}, "learning": learning}


# ---- one step: the stack, each technique one argument ----


def stacks(run: kit.Run, theta: float, csc: CSCSettings) -> dict[str, dict]:
    """The arguments of each bar, which adds one technique to the bar before, in the paper's order.

    The first bar is left out where there is no MPI.
    """
    added = {
        BASELINE: {"allreduce": mpi_allreduce, "grouping": Theta(0)},
        "+ ring": {"allreduce": ring_allreduce, "grouping": Theta(0)},
        "+ mixed precision": {"wire": HALF, "loss_scale": LossScale(SCALE)},
        OVERLAP: {"overlap": True},
        LAZY: {"grouping": Theta(theta)},
        "+ CSC": {"csc": csc},
    }
    if run.mpi_allreduce() is None:
        del added[BASELINE]
    result, so_far = {}, {}
    for name, technique in added.items():
        so_far = so_far | technique
        result[name] = so_far
    return result


# ---- the oracle ----


def check_against_oracle(run: kit.Run, data) -> None:
    """Switching on a technique changes no bit that it should not change.

    The direct allreduce sums in rank order, so the grouping does not matter.
    """
    run.section("The oracle")
    rate, batches = 0.01, list(images.steps(run, data, run.quick(2, 3)))

    def trained(**arguments):
        with flow.new(run, data, allreduce=direct_allreduce, **arguments) as stack:
            for batch in batches:
                stack.step(*batch, rate=rate)
            stack.require_same_parameters()
            return stack.model.parameters.flat.copy()

    dense = trained()
    equal = {
        "lazy = eager": trained(grouping=Theta(2**14)),
        "overlapped = sequential": trained(grouping=Theta(2**14), overlap=True),
        "float32 wire = no wire type": trained(wire=np.float32),
        "CSC at 100 % (history) = dense": trained(csc=flow.csc(run, data, 100, "history")),
    }
    for claim, parameters in equal.items():
        if not same_bits(parameters, dense):
            raise AssertionError(f"training on rank {run.rank}: got other bits; wanted {claim}")
    with flow.new(run, data, allreduce=direct_allreduce, weight_decay=0.0) as stack:
        w = stack.model.parameters.flat.copy()
        stack.model.network.loss(*batches[0])
        stack.model.network.backward(lambda i: None)
        total = defined_allreduce(run.gather(stack.model.gradients.flat.copy()))[0]
        for i in range(len(stack.model.gradients.specs)):
            stack.ready(i)
        stack.model.update(rate, stack.finish())
        wanted = momentum_step(w, np.zeros_like(w), total, rate, 0.9)[0]
        if not same_bits(stack.model.parameters.flat, wanted):
            raise AssertionError(f"one step on rank {run.rank}: got other weights than defined")
    run.say(f"bit for bit after {len(batches)} steps; one step as defined:\n{'; '.join(equal)}")


if __name__ == "__main__":
    lesson = kit.Lesson(
        __file__,
        __doc__,
        like="v100-56gbit",
        claims=CLAIMS,
        picture="Bars: the time of a step for each stack, with the prediction through each; "
        "efficiency against nodes; accuracy against time.",
    )
    images.arguments(lesson, networks=images.NETWORKS)
    lesson.argument(
        "--theta",
        type=kit.threshold_bytes,
        default=2**22,
        metavar="BYTES",
        help="threshold of lazy allreduce",
    )
    lesson.argument(
        "--checkpoints",
        type=Path,
        metavar="DIR",
        help="save checkpoints of the training at the end here",
    )
    lesson.argument(
        "--resume", action="store_true", help="continue the training of these checkpoints"
    )
    lesson.argument(
        "--pairs",
        type=int,
        metavar="N",
        help="trainings, dense and sparse (2; --full 10; 0: keep those of an earlier run)",
    )
    lesson.argument(
        "--accuracy",
        type=float,
        default=90.0,
        metavar="PERCENT",
        help="the accuracy of the time to an accuracy",
    )
    lesson.main(measure, ladder_picture.draw)
