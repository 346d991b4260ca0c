"""Lesson 15's study: which resource of a predicted cluster limits a training step."""

from functools import partial

import kit
from refgf.papers.barrachina import roofline
from refgf.papers.scaling.systems import System
from refgf.papers.scaling.systems import step as predicted_step
from refgf.papers.scaling.workloads import alexnet, resnet50
from refgf.predict.cost import Link

V100 = roofline.Node(15.7e12, 900e9)  # data sheet, float32
# Fitted to 16 GPUs on 56 Gbit/s InfiniBand (verified: MG-WFBP's code; 235.8 us / 30).
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


def study(run: kit.Run) -> dict:
    """Scale each resource from 1/16 to 16 times; then map bottlenecks over batch and link rate."""
    run.section(
        f"The study (PREDICTED): {BASE['ranks']} V100s, {BASE['batch']} images each, 56 Gbit/s, "
        f"{SYSTEM.name}, 4 MiB"
    )
    factors, sweeps = [2.0**k for k in run.quick((-4, 0, 4), range(-4, 5))], {}
    for name, make in NETWORKS.items():
        workload, rows = make(), []
        for resource, base in BASE.items():
            points = [
                point(workload, **{resource: type(base)(base * factor)}) for factor in factors
            ]
            sweeps.setdefault(name, {})[resource] = [
                {
                    "factor": f,
                    "images_per_s": p.samples_per_s,
                    "shares": p.shares,
                    "bottleneck": p.bottleneck,
                }
                for f, p in zip(factors, points)
            ]
            rows.append(
                [
                    resource,
                    *(
                        f"{p.samples_per_s:,.0f} {p.bottleneck}"
                        for p in points[:: max(1, len(points) // 4)]
                    ),
                ]
            )
        run.table(
            [name, *(f"x {f:g}" for f in factors[:: max(1, len(factors) // 4)])],
            rows,
        )
    batches = [2**k for k in run.quick((3, 9), range(2, 11))]
    links = [1e8 * 2.0**k for k in run.quick((3, 9), range(12))]
    maps = {
        name: [
            [point(make(), batch=batch, link=link).bottleneck for batch in batches]
            for link in links
        ]
        for name, make in NETWORKS.items()
    }
    enough = {
        name: next(
            (link for link in links if point(make(), link=link).bottleneck != "network"), None
        )
        for name, make in NETWORKS.items()
    }
    listed = ", ".join(
        f"{name} from {8e-9 * w:.3g} Gbit/s" if w else f"{name} beyond these links"
        for name, w in enough.items()
    )
    run.say("images/s, and the bottleneck, with one resource at x times its base")
    run.say(f"the network stops being the bottleneck at {BASE['batch']} images a rank:\n{listed}")
    return {
        "sweeps": sweeps,
        "map": {"batches": batches, "links": links, "bottlenecks": maps},
        "base": BASE,
    }
