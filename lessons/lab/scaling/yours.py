"""Lesson 08 with --mine: your predictions of ResNet-50 from one rank to 512."""

import kit
from kit.mine import Yours
from refgf.papers.scaling.workloads import resnet50

RANKS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
FORWARD_S, BACKWARD_S = 0.08, 0.16  # a rank's batch on a GPU of 2018: an assumption
LINK = 2e-5, 0.8e-9  # seconds; seconds per byte, 10 Gbit/s


def measure(run: kit.Run, found: dict) -> list[dict]:
    mine, series = run.mine, []
    workload, one_s = resnet50(), FORWARD_S + BACKWARD_S
    ready_s = [t for t, _ in workload.gradients(BACKWARD_S, FORWARD_S)]
    nbytes = [4 * tensor.elements for tensor in workload.tensors]
    at = "ranks", RANKS
    if "ring_seconds" in mine:
        both = ([f(p, sum(nbytes), *LINK) for p in RANKS] for f in mine.pair("ring_seconds"))
        title = "Ring of ResNet-50's gradients, predicted"
        series.append(mine.series("ring_seconds", title, at, *both, unit="s"))
    if "step_seconds" in mine:
        both = (
            [f(p, one_s, ready_s, nbytes, *LINK) for p in RANKS] for f in mine.pair("step_seconds")
        )
        title = "Step of ResNet-50, eager, predicted"
        series.append(mine.series("step_seconds", title, at, *both, unit="s"))
    if "predicted_efficiency" in mine:
        for weak, title in ((True, "weak"), (False, "strong")):
            both = (
                [f(p, one_s, sum(nbytes), *LINK, weak) for p in RANKS]
                for f in mine.pair("predicted_efficiency")
            )
            title = f"Efficiency without overlap, {title} scaling"
            series.append(mine.series("predicted_efficiency", title, at, *both, unit="%"))
    if "speedup_and_efficiency" in mine:
        steps_s = [mine.ours("step_seconds")(p, one_s, ready_s, nbytes, *LINK) for p in RANKS]
        both = (
            [f(p, one_s, step_s, True)[0] for p, step_s in zip(RANKS, steps_s)]
            for f in mine.pair("speedup_and_efficiency")
        )
        title = "Speedup of eager exchange, weak scaling"
        series.append(mine.series("speedup_and_efficiency", title, at, *both))
    return series


YOURS = Yours(
    {
        "ring_seconds": "a ring on 1 to 512 ranks",
        "step_seconds": "a step there",
        "predicted_efficiency": "weak and strong scaling there",
        "speedup_and_efficiency": "the speedup of that step",
    },
    measure,
)
