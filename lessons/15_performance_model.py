"""Lesson 15: a performance model - measured kernels predict layers that nobody has run.

    mpiexec -n 8 python lessons/15_performance_model.py
    options: --predict "50 %", -v (all tables), --width 0.25, --image-size 131, --full, --quick, ...

QUESTION    How long will a layer take that nobody has run yet, at a batch size that nobody has
            tried?
IDEA        A kernel has a roofline, its two physical limits: it computes no faster than the peak,
            and reads and writes no faster than memory. With the roofs of a data sheet that is a
            bound. To *predict* times, the lesson fits both roofs to measured kernels, so
            many kernels are faster than the roofline. Or small multi-layer perceptrons learn from
            measured kernels how fast each shape is computed. `kernel_s` below, for real in
            refgf/papers/barrachina/roofline.py and kernels.py (drawing: lessons/drawings/15.svg).

                flop/s     peak F ________________    convolution: each weight is used often
                                /
                              /  <- slope: bandwidth W      fully connected, update: each weight
                            /___________ flops a byte       is used once an image, or once a step

PREDICTION  A node has the peak F flop/s and the memory bandwidth W:

                kernel    max(flops / F, bytes / W)
                          or flops / exp(perceptron(logarithms of sizes, flops, bytes))

            Naive is flops / F. By hand, F = 40 Gflop/s and W = 10 GB/s: AlexNet's fc8 has
            4096 x 1000 weights, so forward takes 8.2 Mflop an image. For one image that is 0.2 ms,
            but reading 16.4 MB of weights takes 1.6 ms. For 64 images it is 13 ms, and flops
            decide.

Before you run it, write down: by what percentage will the roofline miss a kernel (median)? And the
perceptrons? Rank 0 measures kernels while the others sleep. After this lesson you can tell a bound
from a fitted model, and judge a model by kernels that it has not seen.

APPENDIX    From layers to steps, as Barrachina et al. build them: kernels, and a formula for the
            rings. Measured: steps of 2, 4 and 8 ranks whose rings follow backward. Computed: the
            bottleneck of a step on a cluster that nobody has built, so the resource that takes the
            largest share of its time: flops, memory, or the network with what of the exchange is
            not hidden. There are p ranks, each with a batch of its own (weak scaling), n elements
            in a layer, and links with alpha and beta. `step_s` below:

                ring      2(p-1) (alpha + 4n/p beta)
                step      max(end of the kernels, end of the last ring), rings next to backward

            The measured steps' rings follow backward, so there a step is kernels + rings. Where p
            ranks share c cores, each computes p / c times as long.

            How fast must the links of 64 V100s be, so that the network is not the bottleneck of
            ResNet-50 with 64 images a GPU?

NOW CHANGE SOMETHING    (solutions: lessons/solutions/15_performance_model.py)
    1. From which batch size on do flops, not memory, limit AlexNet's fc6 on a V100? Derive it, then
       look at the table.
    2. Let a perceptron learn the time itself, with squared errors in seconds. Which kernels does it
       predict badly?
    3. Nodes become twice as fast: how much faster must the links become to halve the step?

A COLLEAGUE SAYS the following, and is wrong. Show it. (answers: lessons/teaching/15.md)
    a. "The roofline predicts the time." -v: held-out kernels, both roofs fitted.
    b. "A model that has learned knows the machine." --quick, then without: the errors of both runs.
    c. "A fully connected layer is limited by memory, a convolution by flops." -v: fc6 by its batch.
"""

import refgf.launch  # noqa: F401  before MPI starts

from collections.abc import Iterator
import numpy as np

import kit
from lab.performance import bottleneck_study, composed_steps, held_out_steps, kernel_models
from lab.performance import layer_limits, oracle, picture
from lab.performance.bottleneck_study import V100
from lab.performance.claims import REVEAL
from refgf.papers.barrachina.kernels import KernelShape

# ---- the idea ----


def kernel_s(flops, nbytes, peak: float, bandwidth: float) -> np.ndarray:
    """The roofline: the least seconds of kernels. flops, nbytes: of each kernel, (kernels,)."""
    return np.maximum(flops / peak, nbytes / bandwidth)


def step_s(forward_s, backward_s, elements, p: int, link: tuple) -> tuple[float, float]:
    """Seconds and scaling efficiency of a step whose rings run next to the rest of backward.

    forward_s, backward_s, elements: (layers,), in forward order. link: (alpha, beta)
    """
    alpha, beta = link
    compute_s = forward_s.sum() + backward_s.sum()
    ready_s = forward_s.sum() + np.cumsum(backward_s[::-1])  # the last layer first
    ring_s = 2 * (p - 1) * (alpha + 4 * elements[::-1] / p * beta)
    end_s = 0.0
    for ready, ring, n in zip(ready_s, ring_s, elements[::-1]):
        if n > 0:  # a layer without parameters sends nothing
            end_s = max(end_s, ready) + ring
    total_s = max(compute_s, end_s)
    return total_s, compute_s / total_s if total_s > 0 else 1.0


# ---- one kernel ----


def show_kernel(run: kit.Run) -> None:
    """One convolution under the roofline of a V100."""
    shape = KernelShape("conv", 8, 27, 24, 64, 5, 1, 2)
    flops, nbytes = shape.flops("forward"), shape.bytes("forward")
    least_s = float(kernel_s(flops, nbytes, V100.flops, V100.bandwidth))
    run.say("One kernel: 5 x 5 windows on 8 images of 27 x 27 x 24, 64 output channels, forward:")
    run.say(
        f"    {flops / 1e6:.0f} Mflop, {nbytes / 1e6:.1f} MB: {flops / nbytes:.0f} flops a byte;"
    )
    limit = V100.limit(flops, nbytes)
    run.say(f"    on a V100 at least {kit.seconds(least_s)}, limited by {limit}")


# ---- the lesson ----


def measure(run: kit.Run) -> Iterator[dict]:
    found, layers = run.on_rank_0(lambda: models(run)) or ({}, None)
    yield found
    yield {"composed": composed_steps.measure(run, layers)}
    yield run.on_rank_0(lambda: bottlenecks(run)) or {}


def models(run: kit.Run) -> tuple[dict, dict]:
    """The question: measured and predicted kernels, and the layers of a step, on rank 0."""
    network, held_out = held_out_steps.network_of(run)
    oracle.check(run, network)
    show_kernel(run)
    samples, training = kernel_models.measure(run, held_out)
    fitted, seen = kernel_models.learn(run, *samples)
    where = f"1 rank of {run.size}; the others sleep"
    found = {"training": training, "kernels": seen, "where": where}
    found["steps"] = held_out_steps.predict(run, network, fitted)
    return found, composed_steps.layers_of(run, network, fitted)


def bottlenecks(run: kit.Run) -> dict:
    """The computed part of the appendix: limits of layers, the bottleneck of a step, on rank 0."""
    layers = layer_limits.find(run)
    bottleneck_study.show_step(run, step_s)
    return {"layers": layers} | bottleneck_study.study(run)


if __name__ == "__main__":
    lesson = kit.Lesson(__file__, __doc__, REVEAL)
    channels = "share of AlexNet's channels in the held-out steps"
    lesson.argument("--width", type=float, help=channels)
    pixels = "of the held-out steps, 67 or more"
    lesson.argument("--image-size", type=kit.positive, metavar="PIXELS", help=pixels)
    lesson.main(measure, picture.draw)
