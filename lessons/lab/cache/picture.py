"""The figures of lesson 14: epochs with each cache; sources of the samples, memory of a node."""

from statistics import median

import numpy as np

from kit import axes
from refgf.papers.datacache import LEVELS

MEMORY = {
    "limit": "limit",
    "file": "file of the node",
    "Pss": "kernel: each page once",
    "Rss": "kernel: once for each rank",
}
LABEL = {"textcoords": "offset points", "ha": "center"}


def draw(result: dict) -> dict:
    stores = list(dict.fromkeys(row["store"] for row in result["rows"]))
    count = len(result["nodes"])
    place = f"{result['ranks']} ranks on {count} node{'s' * (count > 1)}"
    title = f"Lesson 14: the data cache. {result['samples']} images, {place}"
    figure, (epochs, share) = axes.frame(title, 1, 2)
    draw_epochs(epochs, result, stores[0])
    draw_share(share, result, stores[0])
    figures = {"": axes.finish(figure, epochs, share)}
    figure, (hits, memory) = axes.frame(title, 1, 2)
    draw_hits(hits, result, stores[0])
    draw_memory(memory, result["memory"])
    figures["levels"] = axes.finish(figure, hits, memory)
    if others := stores[1:]:
        figure, panels = axes.frame(title, 1, len(others), (axes.WIDTH_INCHES, 4))
        for axis, store in zip(panels, others):
            draw_epochs(axis, result, store)
        figures["stores"] = axes.finish(figure, *panels)
    return figures


def draw_epochs(axis, result: dict, store: str) -> None:
    """Seconds of the first epoch, of the later ones (median, range), and predicted."""
    rows = [row for row in result["rows"] if row["store"] == store]
    places = np.arange(len(rows))
    groups = {"first epoch": slice(0, 1), "later epochs": slice(1, None)}
    for number, (label, which) in enumerate(groups.items()):
        y = places + 0.18 * (2 * number - 1)
        timings = [spread([e["seconds"] for e in row["epochs"][which]]) for row in rows]
        middle, low, high = (np.array([t[i] for t in timings]) for i in range(3))
        style = axes.style(number)
        axis.errorbar(
            middle,
            y,
            xerr=[middle - low, high - middle],
            ls="none",
            capsize=3,
            label=label,
            **style,
        )
        predicted = [row["epochs"][which][0]["predicted_s"] for row in rows]
        label = None if number else "predicted"
        axis.plot(predicted, y, "|", ms=16, mew=1.5, color=axes.PREDICTED, label=label)
    axis.set_yticks(places, [row["name"].replace(" + ", "\n+ ") for row in rows])
    axis.set(
        title=f"Time of an epoch\n{store}",
        xlabel="seconds on the slowest rank",
        xscale="log",
        ylim=(len(rows) + 0.6, -0.6),  # room for the legend
    )


def spread(times_s: list[float]) -> tuple[float, float, float]:
    return median(times_s), min(times_s), max(times_s)


def draw_share(axis, result: dict, store: str) -> None:
    """How many times as fast as without a cache, measured and predicted."""
    cost, fine = result["costs"][store], np.linspace(0, 1, 201)
    plain_s = median(result["sweep"][0]["store"]["seconds"])
    shares = [100 * row["share"] for row in result["sweep"]]
    for number, name in enumerate(("store", "disk")):
        gains = [[plain_s / t for t in row[name]["seconds"]] for row in result["sweep"]]
        middle, low, high = (np.array([spread(gain)[i] for gain in gains]) for i in range(3))
        label, style = f"rest from the {name}", axes.style(number + 2)
        bars = [middle - low, high - middle]
        axis.errorbar(shares, middle, bars, ls="none", capsize=3, label=label, **style)
        predicted = cost["store"] / (fine * cost["memory"] + (1 - fine) * cost[name])
        label = f"{label}, predicted"
        axis.plot(100 * fine, predicted, "--", color=style["color"], label=label)
        if name == "store":
            for x, gain in list(zip(shares, middle))[1:-1]:
                axis.annotate(f"{gain:.1f}", (x, gain), (0, -16), **LABEL, color=style["color"])
    axis.set(
        title="Later epochs: misses decide",
        xlabel="share of the shard that memory holds, %",
        ylabel="times as fast as without a cache",
        yscale="log",
        ylim=(0.7, None),
    )


def draw_hits(axis, result: dict, store: str) -> None:
    rows, left = [row for row in result["rows"] if row["store"] == store], 0
    names = [row["name"].replace(" + ", "\n+ ") for row in rows]
    for number, level in enumerate(LEVELS):
        width = np.array([100 * row["epochs"][-1]["hits"][level] for row in rows])
        hatch = ("", "//", "..")[number]
        colour = axes.COLOURS[(2, 5, 1)[number]]
        axis.barh(names, width, left=left, color=colour, hatch=hatch, ec="white", label=level)
        left = left + width
    axis.set(
        title="Source of the samples in the last epoch",
        xlabel="% of the samples",
        ylim=(len(rows) + 1.2, -0.6),  # room for the legend
    )


def draw_memory(axis, nodes: list[dict]) -> None:
    for number, (kind, label) in enumerate(MEMORY.items()):
        x = [node + 0.2 * (number - 1.5) for node in range(len(nodes))]
        colour, hatch = axes.COLOURS[number], ("", "//", "..", "xx")[number]
        height = [row[kind] / 2**20 for row in nodes]
        axis.bar(x, height, 0.2, color=colour, hatch=hatch, ec="white", label=label)
    axis.set_xticks(
        range(len(nodes)), [f"{i}\n{row['ranks']} ranks" for i, row in enumerate(nodes)]
    )
    axis.set(title="Memory of a node's cache", xlabel="node", ylabel="MiB")
    axis.set_ylim(top=1.5 * axis.get_ylim()[1])  # room for the legend
