"""Past the points of lesson 08: scaling efficiency on published clusters, as intervals.

--headlines: also the papers' numbers, each with a prediction.

    result = far.past_the_points(run, machine)      on rank 0: arithmetic only

Each prediction is of one network on one cluster. Every input has a source. The inputs are not those
of the measured points: the emulated V100's rate was computed from a published result.
"""

import numpy as np

import kit
from lab.scaling import machine_file
from lab.scaling.points import FAR, short
from lab.scaling.published_tables import headlines, rows, show_inputs, span
from refgf.papers.scaling.headlines import ALPHA, BANDWIDTH, BATCH, SMALL_BATCH, V100_RATE
from refgf.papers.scaling.interval import Input
from refgf.papers.scaling.published import SIMULATION
from refgf.papers.scaling.scaling import curve
from refgf.papers.scaling.systems import stack
from refgf.papers.scaling.workloads import alexnet, resnet50

ETHERNET = SIMULATION.links["between"]
IB, TEN = "56 Gbit/s InfiniBand", "10 Gbit/s Ethernet"


def source(name, values, unit, machine) -> Input:
    return Input(name, values, unit, machine.label, f"{machine.name}: {machine.source}")


RESNET_RATE = Input(
    "rate",
    (253.1,),
    "images/s",
    "verified",
    "ddl-benchmarks, 2020-05-29: ResNet-50, one GPU, batch 64",
)
RESNET_BATCH = Input("batch", (64,), "images a GPU", "verified", "the same benchmark")
CLUSTERS = {
    IB: (ALPHA, BANDWIDTH),
    TEN: (
        source("alpha_s", (ETHERNET.alpha_s,), "s", SIMULATION),
        source("bandwidth", (1 / ETHERNET.beta_s_per_byte,), "B/s", SIMULATION),
        source("gamma_s_per_byte", (ETHERNET.gamma_s_per_byte,), "s/B", SIMULATION),
    ),
}
NETWORKS = {
    "AlexNet": (alexnet, (V100_RATE, SMALL_BATCH, BATCH)),
    "ResNet-50": (resnet50, (RESNET_RATE, RESNET_BATCH)),
}


def past_the_points(run: kit.Run, machine) -> dict:
    """Curves of each network on each cluster; published numbers. machine: a `Machine`, or None."""
    shown = []  # inputs whose sources are on the screen
    found = {
        "machine_file": {machine.name: machine_file.scale(run, machine, FAR)} if machine else {},
        "far": {
            net: {cluster: on_cluster(run, net, cluster, shown) for cluster in CLUSTERS}
            for net in NETWORKS
        },
    }
    if run.options.headlines:
        found |= {"headlines": headlines(run, shown), "rows": rows(run)}
    return found


def on_cluster(run: kit.Run, net: str, cluster: str, shown: list) -> dict:
    """Scaling efficiency in percent: {"sizes", "systems": {name: [(low, high)]}}."""
    run.section(f"PREDICTED: {net} on {cluster}")
    make, rate = NETWORKS[net]
    workload, sizes, link = make(), run.quick([4, 512, 2048], FAR), CLUSTERS[cluster]
    curves = {
        system.name: [*curve(workload, system, sizes, (*rate, *link)).values()]
        for system in stack(np.inf)
    }
    run.say("lazy allreduce with its best theta; inputs that others have measured")
    run.say("scaling efficiency in percent; two numbers: the ends of the inputs' ranges")
    cells = [[p, *(span(row[i]) for row in curves.values())] for i, p in enumerate(sizes)]
    run.table(["GPUs", *map(short, curves)], cells)
    show_inputs(run, (*rate, *link), shown)
    return {"sizes": sizes, "systems": curves}
