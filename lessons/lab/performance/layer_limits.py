"""Lesson 15's appendix, computed: what limits each layer, on this machine and a V100.

On a GPU, one core of its machine is measured as well.
"""

import kit
from kit.gpu import Device
from kit.layers import measured_node
from lab.performance.bottleneck_study import NETWORKS, V100
from refgf.papers.barrachina import roofline
from refgf.papers.scaling.workloads import alexnet

CORE = "this machine"  # one core of it
BATCHES = (1, 8, 64)


def find(run: kit.Run) -> dict:
    """{"nodes", "shares": of each network's step that flops limit}"""
    run.section("Appendix: what limits which layer (by the roofline)")
    nodes = {CORE: measured_node(Device()), "V100": V100}
    if run.on_gpu:
        nodes = {"this GPU": measured_node(run.device)} | nodes
    for name, node in nodes.items():
        run.say(f"{name}: {node.flops / 1e9:,.0f} Gflop/s, {node.bandwidth / 1e9:,.0f} GB/s:")
        run.say(f"    flops are the limit from {node.flops / node.bandwidth:.0f} flops a byte")
    rows = []
    for layer in alexnet().layers:
        work = [(b * layer.forward_flops, layer.forward_bytes(b, 4)) for b in BATCHES]
        limits = [", ".join(node.limit(*w) for w in work) for node in nodes.values()]
        rows.append([layer.name, *(f"{flops / nbytes:.1f}" for flops, nbytes in work), *limits])
    run.table(["AlexNet", "flops/byte", "", "", *nodes], rows)
    run.say(f"forward pass; flops/byte and limits with {', '.join(map(str, BATCHES))} images")
    shares = {}
    for network, make in NETWORKS.items():
        shares[network] = {}
        for name, node in nodes.items():
            found = [share_of_flops(roofline.layer_times(make(), b, node)) for b in BATCHES]
            shares[network] |= {f"{name}, {b} images": s for b, s in zip(BATCHES, found)}
            text = ", ".join(f"{share:.0%}" for share in found)
            run.say(f"share of {network}'s step that flops limit, {name}: {text}")
    run.say("memory limits the rest")
    return {"nodes": {name: vars(node) for name, node in nodes.items()}, "shares": shares}


def share_of_flops(layers) -> float:
    """Share of a step's time in passes that flops limit."""
    passes = [
        (limit, s)
        for t in layers
        for limit, s in ((t.forward_limit, t.forward_s), (t.backward_limit, t.backward_s))
    ]
    return sum(s for limit, s in passes if limit == "flops") / sum(s for _, s in passes)
