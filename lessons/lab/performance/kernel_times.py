"""Times kernels for lesson 15: one layer of refgf.nn of a given shape, forward and backward.

    samples = kernels.measure(shapes, kernel_times.timer(run))   refgf/papers/barrachina/kernels.py
    layer, x, dy = kernel_times.layer_of(shape, workspace)

A time is this thread's processor time, the minimum of a few repeats. Time that other programs take
does not count, but the cache lines that they evict do. Of a GPU it is the time until the GPU is
done. Before each pass the caches are as in a training step: the previous layer has just written the
input (or its gradient), and has written so much else that the weights are no longer cached.
"""

import time
from collections.abc import Callable

import numpy as np

import kit
from refgf.device import to_host
from refgf.nn.conv import Convolution, Filters
from refgf.nn.layers import FullyConnected
from refgf.nn.workspace import Workspace
from refgf.oracle.definitions import conv, conv_backward, gamma
from refgf.papers.barrachina.kernels import KernelShape

SWEPT_BYTES = 16 << 20
# Repeats of a shape in a round, within a budget in seconds, after one warm-up.
LEAST, MOST, BUDGET_S = 1, 6, 0.01


def clock_of(run: kit.Run) -> Callable:
    """What counts: processor time; of a GPU, which other ranks may share, all time."""
    return run.clock if run.on_gpu else time.thread_time


def layer_of(shape: KernelShape, workspace: Workspace, random=None):
    """(layer, x, dy) of normal numbers. random=None: all 0.5; times do not depend on them."""
    if shape.kind == "fc":
        layer = FullyConnected("fc", (shape.channels,), shape.outputs, workspace)
    else:
        image = (shape.side, shape.side, shape.channels)
        filters = Filters(shape.outputs, shape.kernel, shape.stride, shape.padding)
        layer = Convolution("conv", image, filters, workspace, input_gradient=not shape.first)

    def numbers(dims):
        return (
            workspace.xp.full(dims, 0.5, workspace.dtype)
            if random is None
            else workspace.xp.asarray(random.standard_normal(dims).astype(workspace.dtype))
        )

    layer.bind(
        [numbers(spec.shape) for spec in layer.tensors],
        [numbers(spec.shape) for spec in layer.tensors],
    )
    return (
        layer,
        numbers((shape.batch, *layer.input_shape)),
        numbers((shape.batch, *layer.output_shape)),
    )


def timer(run: kit.Run):
    """shape -> (forward_s, backward_s), for refgf.papers.barrachina.kernels.measure."""
    workspace, clock = Workspace(run.xp), clock_of(run)
    much = run.xp.zeros(SWEPT_BYTES, np.uint8)

    def seconds_of(function, newest) -> float:
        much[...] = 0
        newest[...] = 0.5
        start_s = clock()
        function()
        return clock() - start_s

    def time_of(shape: KernelShape) -> tuple[float, float]:
        layer, x, dy = layer_of(shape, workspace)
        times, start_s = [], clock()
        while len(times) <= LEAST or (len(times) <= MOST and clock() - start_s < BUDGET_S):
            forward_s = seconds_of(lambda: layer.forward(x, True), x)
            times.append((forward_s, seconds_of(lambda: layer.backward(dy, lambda k: None), dy)))
        return tuple(map(min, zip(*times[1:])))

    return time_of


def check(run: kit.Run, shape: KernelShape) -> None:
    """Compare forward and backward in float64 with the definition.

    Both err by at most gamma_n times the magnitudes of the products.
    """
    layer, *arrays = layer_of(shape, Workspace(run.xp, np.float64), np.random.default_rng(1))
    (x, dy), (bias, weight) = (map(to_host, each) for each in (arrays, layer.parameters))
    w = weight.reshape(shape.kernel, shape.kernel, shape.channels, shape.outputs)
    x4, dy4 = (
        a.reshape(shape.batch, side, side, -1)
        for a, side in ((x, shape.side), (dy, shape.output_side))
    )
    where = {"stride": shape.stride, "pad": shape.padding}
    got = [layer.forward(arrays[0], True).reshape(dy4.shape).copy()]
    got += [layer.backward(arrays[1], lambda k: None), layer.gradients[1], layer.gradients[0]]
    wanted = conv(x4, w, bias, **where), *conv_backward(x4, w, dy4, **where)
    sizes = (
        conv(abs(x4), abs(w), abs(bias), **where),
        *conv_backward(abs(x4), abs(w), abs(dy4), **where),
    )
    terms = shape.patch + 1, shape.kernel**2 * shape.outputs, shape.rows, shape.rows
    for mine, theirs, size, n in zip(got, wanted, sizes, terms):
        if (
            mine is not None
            and not (
                abs(to_host(mine).reshape(theirs.shape) - theirs) <= 2 * gamma(n, 2.0**-53) * size
            ).all()
        ):
            raise AssertionError(f"{shape}: got other numbers than the definition")


def step_times(run: kit.Run, network, batch: int, repeats: int) -> tuple[dict, list[float]]:
    """({layer: [forward_s, backward_s]}, seconds of each repeat): a step without exchange, update.

    Processor time; of the layers the minimum of the repeats.
    """
    shape, clock = (batch, *network.image_shape), clock_of(run)
    images = run.array(np.random.default_rng(1).standard_normal(shape, dtype=np.float32))
    labels, times = np.zeros(batch, int), {layer.name: [] for layer in network.layers}
    for _ in range(repeats + 1):
        last_s = clock()

        def mark(name, what):
            nonlocal last_s
            now_s = clock()
            times[name].append(now_s - last_s)
            last_s = now_s

        network.loss(images, labels, batch, mark)
        network.backward(lambda i: None, mark)
    # Each layer has two times a step. The first step is a warm-up.
    layers = {name: [min(t[2::2]), min(t[3::2])] for name, t in times.items()}
    whole = [sum(sum(t[i : i + 2]) for t in times.values()) for i in range(2, 2 * repeats + 2, 2)]
    return layers, whole
