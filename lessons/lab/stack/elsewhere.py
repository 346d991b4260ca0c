"""Lesson 07's bars by the formulas alone: computing and links, without this processor's work."""

import kit
from kit.virtual import FULL
from kit.words import seconds
from lab.stack.bars import CSC, HALF, LAZY, OVERLAP, RING
from refgf.cluster import like
from refgf.papers.scaling.systems import stack, step
from refgf.predict.cost import Link, ring_line

OTHER = {"alexnet": ("resnet50", "mgwfbp-10gbe", 8), "resnet50": ("alexnet", "v100-56gbit", 4)}
NAMES = RING, HALF, OVERLAP, LAZY, CSC


def predict(network: str, cluster: str, ranks: int, theta: float) -> dict:
    """{"network", "like", "ranks", "rows": [{"name", "predicted_s"}]}"""
    found, shapes = like.load(cluster), FULL[network]()
    _, step_s = found.step_s(network)
    forward_s = step_s * shapes.forward_flops / shapes.step_flops
    ready = shapes.gradients(step_s - forward_s, forward_s, itemsize=1)
    line = ring_line(ranks, Link(found.latency_s, 1 / found.rate))
    rows = [
        {"name": bar, "predicted_s": step(ready, system, line, step_s).step_s}
        for bar, system in zip(NAMES, stack(theta), strict=True)
    ]
    return {"network": network, "like": cluster, "ranks": ranks, "rows": rows}


def show(run: kit.Run, other: dict) -> None:
    """Two lines: the other network's bars, and how to measure them."""
    bars = ", ".join(
        f"{row['name'].strip('+ ')} {seconds(row['predicted_s'])}" for row in other["rows"]
    )
    where = f"{other['network']} like {other['like']}, {other['ranks']} ranks"
    run.tell(f"PREDICTED for {where}, by the links alone, without this processor's work")
    run.tell(f"(to measure, and with it: --network {other['network']}):\n    {bars}")
