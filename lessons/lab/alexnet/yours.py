"""Lesson 02 with --mine: your convolution timed, and when your timeline has each gradient."""

from functools import partial

import numpy as np

import kit
from kit.mine import Yours, on
from refgf.nn.conv import Convolution, Filters
from refgf.nn.workspace import Workspace

LAYERS = {  # side, channels, outputs, kernel, stride, padding: AlexNet's at an eighth of its width
    "conv1": (67, 3, 12, 11, 4, 0),
    "conv2": (27, 12, 32, 5, 1, 2),
    "conv3": (13, 32, 48, 3, 1, 1),
}
IMAGES = 2


def measure(run: kit.Run, found: dict) -> list[dict]:
    return run.on_rank_0(lambda: of_rank_0(run, found)) or []


def of_rank_0(run: kit.Run, found: dict) -> list[dict]:
    mine, series = run.mine, []
    if "output_size" in mine:
        shapes = [(side, kernel, *more) for side, _, _, kernel, *more in LAYERS.values()]
        both = ([size(*shape) for shape in shapes] for size in mine.pair("output_size"))
        series.append(mine.series("output_size", "Output pixels", ("layer", LAYERS), *both))
    for name in ("convolution", "weight_gradient"):
        if name in mine:
            series += timed(run, name)
    if "ready_order" in mine:
        rows = [row for row in found["layers"]["rows"] if row["parameters"]]
        backward_s = [row["seconds"][1] for row in rows]
        halves = [t / 2 for t in backward_s], [t / 2 for t in backward_s]
        made = [ready(*halves) for ready in mine.pair("ready_order")]
        at = "layer, as it is ready", [rows[i]["name"] for i, _ in made[0]]
        both, title = ([t for _, t in each] for each in made), "Weight gradients are ready"
        sent = np.cumsum([4e-6 * rows[i]["parameters"] for i, _ in made[1]])
        place = on(1, [1e3 * t for _, t in made[1]], sent)
        series.append(mine.series("ready_order", title, at, *both, unit="s", on=place))
    return series


def timed(run: kit.Run, name: str) -> list[dict]:
    """Times of this function and of the layer of refgf/nn, and how far the results are apart."""
    random, times, far = np.random.default_rng(2), {"ours": [], "yours": []}, []
    shapes = {
        layer: shape for layer, shape in LAYERS.items() if name == "convolution" or not shape[5]
    }
    for side, channels, outputs, kernel, stride, pad in shapes.values():
        filters = Filters(outputs, kernel, stride, pad)
        layer = Convolution("c", (side, side, channels), filters, Workspace(), bias=False)
        x = random.standard_normal((IMAGES, side, side, channels), np.float32)
        w = random.standard_normal((kernel, kernel, channels, outputs), np.float32)
        layer.bind([w], [np.zeros_like(w)])
        y = layer.forward(x, True)
        dy = random.standard_normal(y.shape, np.float32)
        if name == "convolution":
            ours, yours = (
                partial(layer.forward, x, True),
                partial(run.mine[name], x, w, stride, pad),
            )
            wanted, got = y, yours()
        else:
            layer.backward_weight(dy, layer.gradients[0])
            ours = partial(layer.backward_weight, dy, layer.gradients[0])
            yours = partial(run.mine[name], x, dy, kernel, stride)
            wanted, got = layer.gradients[0], yours()
        far.append(apart(got, wanted))
        for whose, function in (("ours", ours), ("yours", yours)):
            times[whose].append(seconds(run, function))
    at, zeros = ("layer", shapes), [0.0] * len(shapes)
    return [
        run.mine.series(name, f"Time of {IMAGES} images, {name}", at, *times.values(), unit="s"),
        run.mine.series(name, f"Results above rounding, {name}", at, zeros, far),
    ]


def seconds(run: kit.Run, function) -> kit.Timing:
    """The Timing of repeats on this rank alone; the first one warms up."""
    times_s = []
    for _ in range(1 + run.quick(3, 7)):
        start_s = run.clock()
        function()
        times_s.append(run.clock() - start_s)
    middle, *_ = np.percentile(times_s[1:], [50])
    return kit.Timing(float(middle), min(times_s[1:]), max(times_s[1:]), len(times_s) - 1)


def apart(got, wanted: np.ndarray) -> float:
    """The largest difference relative to the largest number; 0 within float32's rounding."""
    got = np.asarray(got)
    if got.shape != wanted.shape:
        return float("inf")
    far = float(np.abs(got - wanted).max() / np.abs(wanted).max())
    return 0.0 if far < 1e-4 else far


YOURS = Yours(
    {
        "output_size": "pixels of a layer",
        "convolution": "timed, layer by layer",
        "weight_gradient": "timed",
        "ready_order": "when gradients are ready",
    },
    measure,
)
