"""Lesson 15's appendix, computed: the bottleneck of a training step on a predicted cluster.

It is the resource that takes the largest share of the step: roofline.Point.bottleneck.
"""

from functools import partial

import numpy as np

import kit
from refgf.papers.barrachina import roofline
from refgf.papers.scaling.systems import System
from refgf.papers.scaling.systems import step as predicted_step
from refgf.papers.scaling.workloads import alexnet, resnet50
from refgf.predict.cost import Link

V100 = roofline.Node(15.7e12, 900e9)  # data sheet, float32
# Computed from the line that MG-WFBP's code has for 16 GPUs on 56 Gbit/s: 235.8 us / 30.
ALPHA_S = 7.9e-6
# V100s on 56 Gbit/s
BASE = {"batch": 64, "flops": 15.7e12, "memory": 900e9, "link": 7e9, "ranks": 64}
SYSTEM = System("lazy allreduce, float32", threshold_bytes=2**22)
NETWORKS = {"AlexNet": alexnet, "ResNet-50": resnet50}


def point(workload, **changes) -> roofline.Point:
    """The prediction for BASE with these changes."""
    given = BASE | changes
    node, link = roofline.Node(given["flops"], given["memory"]), Link(ALPHA_S, 1 / given["link"])
    return roofline.study(
        workload, given["batch"], node, link, given["ranks"], partial(predicted_step, system=SYSTEM)
    )


def show_step(run: kit.Run, step_s) -> None:
    """A step of BASE with a ring for each layer. step_s: the lesson's."""
    workload, batch = NETWORKS["ResNet-50"](), BASE["batch"]
    times = roofline.layer_times(workload, batch, V100)
    forward_s, backward_s = (
        np.array([getattr(layer, f"{way}_s") for layer in times]) for way in ("forward", "backward")
    )
    elements, link = [layer.parameters for layer in workload.layers], (ALPHA_S, 1 / BASE["link"])
    total_s, efficiency = step_s(forward_s, backward_s, np.array(elements), BASE["ranks"], link)
    run.section(f"Appendix: a step of {BASE['ranks']} V100s, composed (PREDICTED)")
    run.say(f"{workload.name}, {batch} images each, 56 Gbit/s, a ring for each layer:")
    run.say(f"    {kit.seconds(total_s)}, scaling efficiency {efficiency:.0%}")


def study(run: kit.Run) -> dict:
    """Scale each resource from 1/16 to 16 times; then map bottlenecks over batch and link rate."""
    run.section("Appendix: the bottleneck of a step on a cluster (PREDICTED)")
    run.say(f"{BASE['ranks']} V100s, {BASE['batch']} images each, 56 Gbit/s, {SYSTEM.name}, 4 MiB")
    sweeps = {name: sweep(run, name, make()) for name, make in NETWORKS.items()}
    run.say("images/s, and the bottleneck (the largest share of the step),")
    run.say("with one resource at x times its base")
    run.say(f"ResNet-50, without exchange: at most {alone(sweeps, BASE):.0f} images/s a V100")
    batches = [2**k for k in run.quick((3, 9), range(2, 11))]
    links = [1e8 * 2.0**k for k in run.quick((3, 9), range(12))]
    maps, enough = {}, {}
    for name, make in NETWORKS.items():
        maps[name] = [
            [point(make(), batch=batch, link=link).bottleneck for batch in batches]
            for link in links
        ]
        fast = (link for link in links if point(make(), link=link).bottleneck != "network")
        enough[name] = next(fast, None)
    run.say(f"{BASE['batch']} images a rank, rates of links that double:")
    run.say("the slowest with which the network is not the bottleneck")
    for name, link in enough.items():
        run.say(f"{name}: {f'{8e-9 * link:.3g} Gbit/s' if link else 'faster than all these'}")
    found = {"batches": batches, "links": links, "bottlenecks": maps}
    return {"sweeps": sweeps, "map": found, "enough": enough, "base": BASE}


def alone(sweeps: dict, base: dict) -> float:
    """Images/s of ResNet-50 on one V100, as its data sheet allows, without exchange."""
    here = next(point for point in sweeps["ResNet-50"]["ranks"] if point["factor"] == 1)
    return here["images_per_s"] / base["ranks"] / (1 - here["shares"]["network"])


def sweep(run: kit.Run, name: str, workload) -> dict:
    """{resource: the study's point for each factor}"""
    factors, found, table = [2.0**k for k in run.quick((-4, 0, 4), range(-4, 5))], {}, []
    shown = slice(None, None, max(1, len(factors) // 4))
    for resource, base in BASE.items():
        points = [point(workload, **{resource: type(base)(base * f)}) for f in factors]
        found[resource] = [
            {
                "factor": factor,
                "images_per_s": p.samples_per_s,
                "shares": p.shares,
                "bottleneck": p.bottleneck,
            }
            for factor, p in zip(factors, points)
        ]
        cells = [f"{p.samples_per_s:,.0f} {p.bottleneck}" for p in points[shown]]
        table.append([resource, *cells])
    run.table([name, *(f"x {factor:g}" for factor in factors[shown])], table)
    return found
