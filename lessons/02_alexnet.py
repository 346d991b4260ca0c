"""Lesson 02: AlexNet - which layer makes which gradient, when, and how large.

    mpiexec -n 8 python lessons/02_alexnet.py
    options: --predict "after 50 %", -v (all tables), --width, --image-size, --batch, --data PATH,
             --quick, --full, --plot, --threads 8

QUESTION    A training step makes 26 gradients, and every one must be summed over all ranks. Where
            does the step spend its time? Where are the bytes? When is each gradient ready to be
            sent?
IDEA        Backward goes through the layers from the last to the first and finishes a gradient in
            each. Both kinds of layers are matrix products (drawing: lessons/drawings/02.svg):

                                   forward      weight gradient    rows of x      (x': transposed)
                fully connected    y = x w      dw = x' dy         images
                convolution        y = x w      dw = x' dy         images x pixels of y

            For a convolution, a row of x holds the K x K pixels under the kernel: `convolution`
            below. It uses each of its weights once per row: few weights, much work. A fully
            connected layer uses each once per image: many weights, little work. For real in
            refgf/nn/conv.py (the same products in another memory layout; not needed here) and
            alexnet.py, with batch instead of local response normalisation.
            Naive is a dot product for each output. By hand: conv1 has 55 x 55 x 96 = 290,400 of
            them for an image; at 1 us a call in Python that is 0.3 s. As one product of matrices
            its 211 Mflop take 5 ms at 40 Gflop/s.
PREDICTION  A layer cannot be faster than its arithmetic or its memory allows:

                time = max(flops / R, bytes / W)      R    flop/s of a matrix product, measured
                                                      W    bytes/s of a copy, measured

            A gradient is ready once backward has finished all later layers and this layer's weight
            product.

            When p ranks share a batch, however unevenly, they add the same numbers as one rank
            would, in another order. A bound on rounding says how far apart the results may be.

Before you run it, write down: AlexNet has 62 million parameters and takes 1.1 billion multiply-adds
per image, forward. What share of the parameters do the five convolutions hold? What share of the
multiply-adds do they take? After what share of the backward pass are nine tenths of the gradients'
bytes ready? (--predict takes the answer to the last question.)

This is strong scaling: in the last section p ranks share one batch of 2p + 1 images. The times are
those of one rank of this machine; the others sleep. After this lesson you can say which layer makes
which gradient when, how long it takes at best, and whether p ranks compute what one computes.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/02_alexnet.py)
    1. From how many images per rank on do the fully connected layers take longer to compute than to
       read? Predict it with the R and W that -v prints, then try --batch N --output results/mine.
    2. A colleague lets every rank divide its loss by its own batch, and divides the sum by p. For
       which shards is that right? (The last table of -v shows it.)
    3. All gradients lie in one array, the pool, in backward's order: the last layer first. A
       colleague puts the first layer first. When could the first of four equal quarters be sent?
    4. refgf/engine/minimal.py makes two outputs from four products instead of six: check it on
       paper. With it conv2's time falls below the prediction, although no product became faster.
       Why? Its 5 x 5 kernels take 8 products for 4 rows. What share is left for 27 rows?

A COLLEAGUE SAYS the following, and is wrong. Show it. (answers: lessons/teaching/02.md)
    a. "The layer with the most parameters takes the most time." -v: both shares of each layer.
    b. "Twice the images take twice the time, in every layer." --batch 1 -v, then --batch 32 -v.
    c. "The mean of the ranks' means is the mean." 3 ranks, -v: the last column of the last table.
"""

import refgf.launch  # noqa: F401  before MPI starts

from collections.abc import Iterator
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

import kit
from kit import images
from lab.alexnet import oracle, picture, ranks, times
from lab.alexnet.claims import REVEAL

# ---- the idea ----


def convolution(
    x: np.ndarray, w: np.ndarray, stride: int = 1, pad: int = 0
) -> tuple[np.ndarray, Callable]:
    """x (N, H, W, C), w (K, K, C, O) -> y (N, OH, OW, O), and the function dy -> dw (K, K, C, O)"""
    k, outputs = w.shape[0], w.shape[-1]
    x = np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    under = np.lib.stride_tricks.sliding_window_view(x, (k, k), axis=(1, 2))
    under = under[:, ::stride, ::stride].transpose(0, 1, 2, 4, 5, 3)  # (N, OH, OW, K, K, C)
    rows = under.reshape(-1, w[..., 0].size)  # im2col: (N*OH*OW, K*K*C), every pixel K*K times
    y = rows @ w.reshape(-1, outputs)

    def weight_gradient(dy: np.ndarray) -> np.ndarray:
        return (rows.T @ dy.reshape(-1, outputs)).reshape(w.shape)

    return y.reshape(*under.shape[:3], outputs), weight_gradient


# ---- one step: forward, backward, and a clock ----


def timed_step(run: kit.Run, network, images, labels: np.ndarray) -> list[tuple]:
    """[(event, seconds since the event before)] of a step without exchange and update.

    First come the events (layer, "forward"), then (number of a gradient, "ready") and
    (layer, "backward").
    """
    events, last_s = [], run.clock()

    def mark(name, what):
        nonlocal last_s
        now_s = run.clock()
        events.append(((name, what), now_s - last_s))
        last_s = now_s

    network.loss(images, labels, len(images), mark)
    network.backward(lambda i: mark(i, "ready"), mark)
    return events


# ---- the lesson ----


def measure(run: kit.Run) -> Iterator[dict]:
    batch = ranks.few_images(run, 2 * run.size + 1)
    oracle.check_gradients(run)
    yield {"layers": times.measure(run, timed_step)}
    yield {"ranks_against_one": ranks.compare_with_one(run, *batch)}


if __name__ == "__main__":
    lesson = kit.Lesson(__file__, __doc__, REVEAL)
    number, add = kit.positive, lesson.argument
    add("--width", type=float, help="share of AlexNet's channels in the timed step (1)")
    add("--image-size", type=number, metavar="PIXELS", help="67 or more (227)")
    add("--batch", type=number, help="images of the timed step (8; with --full 32)")
    add("--data", type=Path, metavar="PATH", help="images of the last section; default: digits")
    add("--skip-bad-images", action="store_true", help="skip images that cannot be read")
    lesson.estimate = partial(images.estimated_bytes, full_size=True)
    lesson.main(measure, picture.draw)
