"""Lesson 16: steps of DDP, ZeRO-1 and FSDP on other links, PREDICTED by refgf/plan/sharding.py.

A unit is what FSDP gathers at once. It is a layer with the normalization behind it, or larger: all
convolutions of AlexNet and all its other layers, or a block of ResNet-50. Nothing is measured. Both
networks are those of the papers, on the lesson's accelerator. Computing is divided among layers by
flops. A message takes the latency of the lesson's cluster.
"""

import kit
from kit import virtual
from refgf.cluster import like as clusters
from refgf.machine.units import parse_rate
from refgf.plan import sharding
from refgf.plan.fabric import Fabric
from refgf.plan.question import Question
from refgf.plan.sharding import GATHER, REDUCE, Queue, Sharded, Unit, fsdp_s, half_s, seconds
from refgf.plan.step_times import StepTimes
from refgf.predict.cost import Link

CLUSTER = "v100-56gbit"  # where this run emulates none
RATES = ("1gbit", "10gbit", "56gbit", "200gbit", "800gbit")
NAMES = ("DDP", "ZeRO-1", "FSDP")
LAYERS, LARGER = "layers", "larger"
FLOAT32 = 4


def layer(name: str) -> str:
    return name.replace("norm", "conv")


def block(name: str) -> str:
    """conv2.1.a, norm2.1.b -> conv2.1"""
    return layer(name).rpartition(".")[0] or layer(name)


def kind(name: str) -> str:
    """conv1, norm5 -> conv; fc6 -> fc"""
    return layer(name).rstrip("0123456789")


UNITS = {
    "alexnet": {LAYERS: layer, LARGER: kind},
    "resnet50": {LAYERS: layer, LARGER: block},
}


def against_links(run: kit.Run) -> list[dict]:
    """Rows of {"network", "wrapped": LAYERS or LARGER, "units": how many, "rate", "step_s"}.

    step_s: {strategy: seconds}
    """
    run.section("Steps on other links, by formula")
    like, ranks, rows = run.regime.like or clusters.load(CLUSTER), max(2, run.size), []
    alpha_s = like.latency_s
    for name, ways in UNITS.items():
        step = step_of(like, name)
        for rate in RATES:
            link = Link(alpha_s, 1 / parse_rate(rate))
            asked = Question(step, Fabric(rate, "the lesson", link), ranks)
            whole_s = {each: seconds(each, asked, Sharded(), FLOAT32) for each in NAMES[:2]}
            half = half_s(asked)
            for wrapped, unit_of in ways.items():
                units = units_of(like, name, unit_of)
                end_s = fsdp_s(units, Queue({GATHER: half, REDUCE: half}, FLOAT32))
                row = {"network": name, "wrapped": wrapped, "units": len(units), "rate": rate}
                rows.append(row | {"step_s": whole_s | {"FSDP": end_s}})
    report(run, rows, ranks, alpha_s)
    return rows


def step_of(like, name: str) -> StepTimes:
    """A step of this network on the cluster's accelerator, without its update."""
    shapes = virtual.FULL[name]()
    _, step_s = like.step_s(name)
    gradients = shapes.step_gradients(step_s, itemsize=1)  # (ready_s, elements)
    return StepTimes(shapes.name, f"the rate of {like.name}", tuple(gradients))


def units_of(like, name: str, unit_of) -> list[Unit]:
    """In the order of forward. unit_of: name of a layer with tensors -> name of its unit."""
    shapes, found, unit = virtual.FULL[name](), {}, ""
    _, step_s = like.step_s(name)
    per_flop_s = step_s / shapes.step_flops
    for each in shapes.layers:
        unit = unit_of(each.name) if each.tensors else unit  # pooling joins the unit before it
        found.setdefault(unit, []).append(each)
    return [
        Unit(
            per_flop_s * sum(each.forward_flops for each in layers),
            per_flop_s * sum(each.backward_flops for each in layers),
            sum(tensor.elements for each in layers for tensor in each.tensors),
        )
        for layers in found.values()
    ]


def peak_share(network: str, wrapped: str, ranks: int) -> float:
    """At its peak, what a rank of FSDP holds over what a rank holds that holds all. Momentum SGD.

    Whole units are those of refgf/plan/sharding.py. Without activations and DDP's buckets.
    """
    units = units_of(clusters.load(CLUSTER), network, UNITS[network][wrapped])
    sizes = [unit.elements for unit in units]
    return 1 / ranks + sharding.whole_elements(sizes) / (3 * sum(sizes))


def report(run: kit.Run, rows: list[dict], ranks: int, alpha_s: float) -> None:
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
        f"{kit.seconds(alpha_s)}, as on the cluster."
    )
    run.say("What a rank of FSDP holds at its peak, of all weights, gradients and momentum:")
    for network, wrapped, units in dict.fromkeys(
        (row["network"], row["wrapped"], row["units"]) for row in rows
    ):
        run.say(f"{network}, {units} units: {peak_share(network, wrapped, ranks):.0%}")
