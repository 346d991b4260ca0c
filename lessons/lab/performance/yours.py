"""Lesson 15 with --mine: your roofline of AlexNet's last layers on a V100, and your step."""

import kit
from kit.mine import Yours, on
from lab.performance.bottleneck_study import ALPHA_S, V100
from refgf.papers.barrachina.roofline import layer_times
from refgf.papers.scaling.workloads import alexnet

LAYERS = {"fc6": (9216, 4096), "fc7": (4096, 4096), "fc8": (4096, 1000)}
BATCH, BATCHES, RANKS, BETA = 64, (1, 8, 64, 512), (1, 2, 4, 8, 16, 32, 64), 1 / 7e9
NODE = V100.flops, V100.bandwidth


def measure(run: kit.Run, found: dict) -> list[dict]:
    mine, series = run.mine, []
    at, shapes = ("images", BATCHES), [(batch, *LAYERS["fc6"]) for batch in BATCHES]
    if "fully_connected" in mine:
        both = (
            [flops / nbytes for flops, nbytes in (f(*shape) for shape in shapes)]
            for f in mine.pair("fully_connected")
        )
        series.append(mine.series("fully_connected", "Flops a byte, fc6", at, *both))
    if "roofline" in mine:
        costs = [mine.ours("fully_connected")(*shape) for shape in shapes]
        ours, yours = ([f(*cost, *NODE)[0] for cost in costs] for f in mine.pair("roofline"))
        rates = [flops / t for (flops, _), t in zip(costs, yours)]
        more = {"unit": "s", "on": on(0, [f / b for f, b in costs], rates, "roofline")}
        series.append(mine.series("roofline", "fc6 forward on a V100", at, ours, yours, **more))
    if "ridge_batch" in mine:
        both = ([f(*shape, *NODE) for shape in LAYERS.values()] for f in mine.pair("ridge_batch"))
        title = "Batch from which flops limit, V100"
        series.append(mine.series("ridge_batch", title, ("layer", LAYERS), *both))
    if "step" in mine:
        workload = alexnet()
        times = layer_times(workload, BATCH, V100)
        elements = [layer.parameters for layer in workload.layers]
        given = [t.forward_s for t in times], [t.backward_s for t in times], elements
        both = ([f(*given, p, ALPHA_S, BETA)[1] for p in RANKS] for f in mine.pair("step"))
        title = "Scaling efficiency of AlexNet"
        series.append(mine.series("step", title, ("ranks", RANKS), *both, unit="%"))
    return series


YOURS = Yours(
    {
        "fully_connected": "flops a byte",
        "roofline": "the time of a layer",
        "ridge_batch": "what limits a layer",
        "step": "the efficiency of a step",
    },
    measure,
)
