"""Groupings of gradients on other networks and clusters, predicted with overlap: lessons 03, 09.

Computed from the descriptions of the clusters (refgf/cluster/machines) and the ring's formula, in
the cluster's own time. Nothing is measured.
"""

import kit
from kit import axes
from lab import grouped_steps
from refgf.cluster import like as clusters
from refgf.cluster.probe import link_share
from refgf.papers.mgwfbp.merge import exact_merge, greedy_merge
from refgf.papers.scaling.scaling import best_theta
from refgf.papers.scaling.workloads import alexnet, resnet50
from refgf.predict.cost import Link
from refgf.predict.timeline import eager, lazy, one_call, predict

NETWORKS = {"resnet50": resnet50, "alexnet": alexnet}
PLACES = [("resnet50", "v100-10gbe"), ("alexnet", "v100-10gbe"), ("resnet50", "v100-56gbit")]
GROUPINGS = {
    "eager": lambda gradients, line: eager(gradients),
    "best theta": lambda gradients, line: lazy(gradients, best_theta(gradients, line)[0]),
    "one call": lambda gradients, line: one_call(gradients),
    "greedy": greedy_merge,
    "exact": exact_merge,
}


def rows(run: kit.Run, names) -> list[dict]:
    """A row for each place: seconds of a step with each of these groupings. Prints the table."""
    found = [row(network, cluster, names) for network, cluster in PLACES]
    run.section("The same with overlap in other places: predicted, not measured")
    table = [
        [
            r["title"],
            f"{r['cluster']}, {r['ranks']} ranks",
            *map(kit.seconds, r["steps_s"].values()),
        ]
        for r in found
    ]
    run.table(["network", "cluster", *names], table)
    return found


def row(network: str, cluster: str, names) -> dict:
    """The steps of a network on all nodes of a cluster, one rank a node."""
    like, workload = clusters.load(cluster), NETWORKS[network]()
    _, compute_s = like.step_s(network)
    forward_s = compute_s * workload.forward_flops / workload.step_flops
    gradients = workload.gradients(compute_s - forward_s, forward_s)
    share = link_share(grouped_steps.MTU)
    line = grouped_steps.link_line(Link(like.latency_s, 1 / like.rate), like.nodes, share)
    steps_s = {
        name: predict(gradients, GROUPINGS[name](gradients, line), line, compute_s=compute_s).step_s
        for name in names
    }
    place = {"network": network, "cluster": cluster, "title": workload.name, "ranks": like.nodes}
    return place | {"steps_s": steps_s, "compute_s": compute_s}


def predicted(result: dict, network: str, cluster: str, name: str):
    """Seconds of a predicted step; None if the result has none."""
    for place in result.get("elsewhere", []):
        if (place["network"], place["cluster"]) == (network, cluster):
            return place["steps_s"][name]


def compared(left, relation: str, right, factor: float = 1.0):
    """A claim's comparison; None if a side has not been measured."""
    return None if left is None or right is None else (left, relation, right, factor)


def either(result: dict, measured, place: tuple, names: tuple):
    """Two timings if this run has measured both, else what is predicted for this place."""
    predictions = [predicted(result, *place, name) for name in names]
    return predictions if None in measured else measured


def draw_gain(axis, places: list[dict], name: str) -> None:
    """Bars: the eager step over the step of this grouping, one for each place."""
    labels = [f"{place['title']}\n{place['cluster']}" for place in places]
    gains = [place["steps_s"]["eager"] / place["steps_s"][name] for place in places]
    top = max(range(len(gains)), key=lambda i: gains[i])
    axis.bar(labels, gains, color=[axes.COLOURS[0 if i == top else 5] for i in range(len(gains))])
    for x, gain in enumerate(gains):
        axis.annotate(f"{gain:.2f}", (x, gain), (0, 3), textcoords="offset points", ha="center")
    axis.axhline(1, color="grey", lw=1)
    axis.tick_params(axis="x", labelsize=axes.TEXT_POINTS)
    axis.set(title=f"Predicted: eager step over that of the {name}", ylim=(0, max(gains) + 0.2))
