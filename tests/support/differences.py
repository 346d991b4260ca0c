"""Central differences: the oracle for every backward pass."""

import numpy as np

from refgf.engine.threaded import ThreadedWorkspace
from refgf.nn.workspace import Workspace

STEP = 1e-6  # (f(x+h) - f(x-h)) / 2h errs by about 1e-16 |f| / h + h^2 f''' / 6: below 1e-9 here
LIMIT = 1e-6  # of the larger of the norms of the gradient and of the same layer's weight gradient


def workspace(images_per_block=None, threads=1, dtype=np.float64) -> Workspace:
    """A workspace in float64, with threads only where there are several."""
    if threads > 1:
        return ThreadedWorkspace(threads, dtype, images_per_block)
    return Workspace(np, dtype, images_per_block)


def bind_random(layer, seed=1):
    """Random parameters, and gradients full of NaN, which show what backward does not write."""
    rng = np.random.default_rng(seed)
    parameters = [rng.standard_normal(spec.shape) for spec in layer.tensors]
    layer.bind(parameters, [np.full(spec.shape, np.nan) for spec in layer.tensors])
    return layer


def central_difference(function, x, places):
    """d function / d x[place] for each flat place in `places`, as a vector."""
    assert x.flags.c_contiguous
    flat = x.reshape(-1)  # a view
    slopes = []
    for place in places:
        value = flat[place]
        flat[place] = value + STEP
        above = function()
        flat[place] = value - STEP
        below = function()
        flat[place] = value
        slopes.append((above - below) / (2 * STEP))
    return np.array(slopes)


def assert_gradient(gradient, function, x, scale=0.0, places=None, name=""):
    """`gradient` of function() for x agrees with central differences at `places` (None: all)."""
    places = np.arange(x.size) if places is None else places
    error = np.linalg.norm(central_difference(function, x, places) - gradient.reshape(-1)[places])
    limit = LIMIT * max(np.linalg.norm(gradient), scale)
    assert error <= limit, f"{name}: |difference| {error:.2e}, wanted at most {limit:.2e}"


def assert_layer(layer, x, training=True, before_forward=lambda: None):
    """All gradients of sum(r * layer(x)) for random r, each announced once and in order."""
    bind_random(layer)
    r = np.random.default_rng(2).standard_normal((len(x), *layer.output_shape))

    def function():
        before_forward()
        return float(np.sum(r * layer.forward(x.copy(), training)))

    function()
    announced = []
    dx = layer.backward(r.copy(), announced.append)
    assert announced == list(range(len(layer.tensors)))
    gradients = [gradient.copy() for gradient in layer.gradients]
    scale = max([np.linalg.norm(g) for g in gradients], default=0.0)
    if dx is not None:
        assert dx.shape == x.shape
        assert_gradient(dx.copy(), function, x, name=f"{layer.name} input")
    for spec, parameter, gradient in zip(layer.tensors, layer.parameters, gradients):
        assert_gradient(gradient, function, parameter, scale, name=spec.name)
