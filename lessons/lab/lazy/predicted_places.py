"""Groupings of gradients on other networks and clusters, predicted with overlap: lessons 03, 09.

Computed from the descriptions of the clusters (refgf/cluster/machines) and the ring's formula, in
the cluster's own time. Nothing is measured.
"""

import kit
from kit import axes
from kit.regime import goodput_of
from kit.rows import SPREAD, at
from refgf.cluster import like as clusters
from refgf.papers.mgwfbp.merge import exact_merge, greedy_merge
from refgf.papers.scaling.scaling import best_theta
from refgf.papers.scaling.workloads import alexnet, resnet50
from refgf.predict.cost import ring_line
from refgf.predict.timeline import eager, lazy, one_call, predict

NETWORKS = {"resnet50": resnet50, "alexnet": alexnet}
PLACES = [("resnet50", "mgwfbp-10gbe"), ("alexnet", "mgwfbp-10gbe"), ("resnet50", "v100-56gbit")]
HERE, ELSEWHERE = "the link and this machine's work", "the links alone"  # what is predicted from
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
    run.section(f"The same with overlap in other places: predicted from {ELSEWHERE}")
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
    line = ring_line(like.nodes, goodput_of(like))
    steps_s = {
        name: predict(gradients, GROUPINGS[name](gradients, line), line, compute_s=compute_s).step_s
        for name in names
    }
    place = {"network": network, "cluster": cluster, "title": workload.name, "ranks": like.nodes}
    return place | {"steps_s": steps_s, "compute_s": compute_s}


def predicted(network: str, cluster: str, name: str) -> tuple:
    """Where a result has the seconds of this predicted step, as a claim looks them up."""
    return "elsewhere", {"network": network, "cluster": cluster}, "steps_s", name


def either(result: dict, measured, place: tuple, names: tuple):
    """Two timings if this run has measured both, else what is predicted for this place."""
    predictions = [at(result, *predicted(*place, name)) for name in names]
    return predictions if None in measured else measured


def draw_gain(axis, places: list[dict], name: str, here: dict | None) -> None:
    """Bars: the eager step over the step of this grouping, measured here, predicted elsewhere.

    All with overlap, so the measured bar has that colour (steps.KINDS).

    here: {"title", "cluster", "ranks", "gain": a timing's form, "predicted"}; None: not measured
    """
    top = 1.0
    if here:
        place = here["title"], here["cluster"]
        places = [row for row in places if (row["title"], row["cluster"]) != place]
        middle, low, high = (here["gain"][key] for key in SPREAD)
        spread, top = [[middle - low], [high - middle]], max(high, here["predicted"])
        style = {"color": axes.COLOURS[1], "capsize": 4, "label": "measured"}
        axis.bar(label_of(here), middle, yerr=spread, **style)
        axis.annotate(f"{middle:.2f}", (0, 0.5 * middle), ha="center")
        own = {
            "color": axes.PREDICTED,
            "mfc": "white",
            "label": "predicted (link and own work)",
        }
        axis.plot(label_of(here), here["predicted"], "D", **own)
    gains = [row["steps_s"]["eager"] / row["steps_s"][name] for row in places]
    bars = axis.bar(
        [label_of(row) for row in places],
        gains,
        color="lightgrey",
        hatch="//",
        edgecolor="white",
        label="predicted (links alone)",
    )
    axis.bar_label(bars, [f"{gain:.2f}" for gain in gains], padding=3)
    axis.axhline(1, color="grey", lw=1)
    axis.tick_params(axis="x", labelsize=axes.TEXT_POINTS)
    title = f"What the {name} gains over eager calls,\nwith overlap"
    ylabel = f"eager step / step with the {name}"
    axis.set(title=title, ylabel=ylabel, ylim=(0, 1.2 * max([top, *gains])))


def label_of(place: dict) -> str:
    title = place["title"].replace(" at ", "\nat ")
    return f"{title}\n{place['cluster']}\n{place['ranks']} ranks"
