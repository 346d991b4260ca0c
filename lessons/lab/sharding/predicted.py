"""Lesson 16: steps of DDP, ZeRO-1 and FSDP on other links, PREDICTED by refgf/plan/sharding.py.

A unit is a layer, as FSDP wraps it: a few large ones in AlexNet, many small ones in ResNet-50.
Nothing of it is measured. Both networks are those of the papers, on the lesson's accelerator.
"""

import kit
from kit import virtual
from refgf.cluster import like as clusters
from refgf.machine.units import parse_rate
from refgf.plan.fabric import Fabric
from refgf.plan.question import Question
from refgf.plan.sharding import Sharded, seconds
from refgf.plan.step_times import StepTimes
from refgf.predict.cost import Link

CLUSTER, LATENCY_S = "v100-56gbit", 30e-6  # where this run emulates none; chosen
UNITS = {"alexnet": (8, 2), "resnet50": (54, 8)}  # a layer each, and fewer, larger ones
RATES = ("1gbit", "10gbit", "56gbit", "200gbit", "800gbit")
NAMES = ("DDP", "ZeRO-1", "FSDP")
FLOAT32 = 4


def against_links(run: kit.Run) -> list[dict]:
    """Rows of {"network", "units", "rate", "step_s": {strategy: seconds}}."""
    run.section("Steps on other links, by formula")
    like, ranks, rows = run.regime.like or clusters.load(CLUSTER), max(2, run.size), []
    for name, counts in UNITS.items():
        step = step_of(like, name)
        for rate in RATES:
            link = Link(LATENCY_S, 1 / parse_rate(rate))
            asked = Question(step, Fabric(rate, "the lesson", link), ranks)
            for units in counts:
                given = Sharded(units=units)
                step_s = {each: seconds(each, asked, given, FLOAT32) for each in NAMES}
                rows.append({"network": name, "units": units, "rate": rate, "step_s": step_s})
    report(run, rows, ranks)
    return rows


def step_of(like, name: str) -> StepTimes:
    """A step of this network on the cluster's accelerator, without its update."""
    shapes = virtual.FULL[name]()
    _, step_s = like.step_s(name)
    forward_s = step_s * shapes.forward_flops / shapes.step_flops
    gradients = shapes.gradients(step_s - forward_s, forward_s)  # (ready_s, bytes)
    ready = tuple((ready_s, nbytes // FLOAT32) for ready_s, nbytes in gradients)
    return StepTimes(shapes.name, f"the rate of {like.name}", ready)


def report(run: kit.Run, rows: list[dict], ranks: int) -> None:
    table = [
        [
            row["network"],
            row["units"],
            row["rate"],
            *(kit.seconds(row["step_s"][name]) for name in NAMES),
            f"{row['step_s']['FSDP'] / row['step_s']['DDP']:.2f} x",
        ]
        for row in rows
    ]
    run.table(["network", "units", "link", *NAMES, "FSDP / DDP"], table)
    run.say(
        f"Predicted, not measured: {ranks} ranks, one on each node; a message takes "
        f"{kit.seconds(LATENCY_S)} (chosen)."
    )
