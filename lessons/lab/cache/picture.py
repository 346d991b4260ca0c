"""The figures of lesson 14: epochs with each cache; sources of the samples, memory of a node."""

from statistics import median

import numpy as np

from kit import axes
from kit.rows import summary
from lab.cache import training_picture
from refgf.papers.datacache import LEVELS

MEMORY = {
    "limit": "limit of the cache",
    "file": "its file, shared by the ranks",
    "Pss": "in use: shared pages once (Pss)",
    "Rss": "sum of what each rank maps (Rss)",
}
CACHES = {  # the shard: the images of a node
    "no cache": "no cache: all\nfrom the store",
    "disk": "shard on disk",
    "half memory": "half in memory,\nhalf in the store",
    "half memory + disk": "half in memory,\nhalf on disk",
    "memory": "shard in memory",
    "memory + disk": "shard in memory\nand on disk",
}
SOURCES = {"memory": "the node's memory", "disk": "the node's disk", "store": "the store"}
STYLES = {"memory": axes.style(2), "disk": axes.style(5), "store": axes.style(1)}
LABEL = {"textcoords": "offset points", "ha": "center"}


def draw(result: dict) -> dict:
    stores = list(dict.fromkeys(row["store"] for row in result["rows"]))
    count = len(result["nodes"])
    place = f"{result['ranks']} ranks on {count} node{'s' * (count > 1)}"
    title = f"Lesson 14: the data cache. {result['samples']} images, {place}"
    title += ". Shard: the images of a node"
    figure, (epochs, share) = axes.frame(title, 1, 2)
    draw_epochs(epochs, result, stores[0])
    draw_share(share, result, stores[0])
    figures = {"": axes.finish(figure, epochs, share)}
    figure, (hits, memory) = axes.frame(title, 1, 2)
    draw_hits(hits, result, stores[0])
    draw_memory(memory, result["memory"])
    figures["levels"] = axes.finish(figure, hits, memory)
    if others := stores[1:]:
        figure, panels = axes.frame(title, 1, len(others))
        for axis, store in zip(panels, others):
            draw_epochs(axis, result, store)
        figures["stores"] = axes.finish(figure, *panels, below=apart(result, others[0]))
    return figures | training_picture.draw(result.get("training", {}))


def apart(result: dict, store: str) -> str:
    """What differs with this store: how long first epochs take."""
    rows = {row["name"]: row["first_s"] for row in result["rows"] if row["store"] == store}
    plain_s = median(rows.pop("no cache"))
    ratios = [median(times_s) / plain_s for times_s in rows.values()]
    return (
        "The verdict on first epochs is that of the slow store (the first figure). Here they "
        f"scatter: with a cache they take {min(ratios):.2g} to {max(ratios):.2g} times as long as "
        "without one."
    )


def draw_epochs(axis, result: dict, store: str) -> None:
    """Seconds of first and of later epochs (median, range), and predicted."""
    rows = [row for row in result["rows"] if row["store"] == store]
    places = np.arange(len(rows))
    groups = {
        "first epoch": [row["first_s"] for row in rows],
        "later epochs": [[e["seconds"] for e in row["epochs"][1:]] for row in rows],
    }
    styles = axes.style(0), axes.style(4)  # not the colours of the levels
    for number, (label, seconds) in enumerate(groups.items()):
        y = places + 0.18 * (2 * number - 1)
        timings = [summary(times_s) for times_s in seconds]
        axes.points(axis, y, timings, across=True, label=label, **styles[number])
        predicted = [row["epochs"][number]["predicted_s"] for row in rows]
        label = None if number else "predicted"
        axis.plot(predicted, y, "|", ms=13, mew=1.5, color=axes.PREDICTED, label=label)
        if number:  # of the later epochs, as in the other panel
            first_s, *others_s = (timing["median_s"] for timing in timings)
            for x, at in zip(others_s, y[1:]):
                axis.annotate(f"{in_words(first_s / x)} x", (x, at), (0, 8), **LABEL)
    axis.set_yticks(places, [CACHES[row["name"]] for row in rows])
    axis.set(
        title=f"Time of an epoch. {store_in_words(store, result)}",
        xlabel="seconds of this machine, on the slowest rank\n"
        "(2 x: twice as fast as later epochs without a cache)",
        xscale="log",
        ylim=(len(rows) + 0.6, -0.6),  # room for the legend
    )


def store_in_words(store: str, result: dict) -> str:
    """Of the store, which holds all images: the slow one, or the folder of another node."""
    if "EMULATED" not in store:
        return f"Store:\nthe {store}, over TCP"
    rate, latency = result["options"]["slow_store"].split(",")
    return f"Slow store (EMULATED):\n{rate} for each rank, {latency} a file"


def in_words(gain: float) -> str:
    return f"{gain:.1f}" if gain < 10 else f"{gain:.0f}"


def draw_share(axis, result: dict, store: str) -> None:
    """How many times as fast as without a cache, measured and predicted."""
    cost, fine = result["costs"][store], np.linspace(0, 1, 201)
    plain_s = median(result["sweep"][0]["store"]["seconds"])
    for name in ("store", "disk"):
        # at 100 % there is no rest: one point
        rows = [row for row in result["sweep"] if name == "store" or row["share"] < 1]
        shares = [100 * row["share"] for row in rows]
        gains = [summary(plain_s / t for t in row[name]["seconds"]) for row in rows]
        label, style = f"rest from {SOURCES[name]}", STYLES[name]
        axes.points(axis, shares, gains, label=label, **style)
        predicted = cost["store"] / (fine * cost["memory"] + (1 - fine) * cost[name])
        label = f"{label}, predicted"
        axis.plot(100 * fine, predicted, "--", color=style["color"], label=label)
        if name == "store":
            for x, gain in list(zip(shares, gains))[1:-1]:
                at = x, gain["median_s"]
                axis.annotate(in_words(at[1]), at, (0, -16), **LABEL)
    axis.set(
        title="Later epochs: the rest decides",
        xlabel="% of the shard in memory (at 100 there is no rest)",
        ylabel="times as fast as without a cache",
        yscale="log",
        ylim=(0.7, None),
    )


def draw_hits(axis, result: dict, store: str) -> None:
    rows, left = [row for row in result["rows"] if row["store"] == store], 0
    names = [CACHES[row["name"]] for row in rows]
    for number, level in enumerate(LEVELS):
        width = np.array([100 * row["epochs"][-1]["hits"][level] for row in rows])
        hatch = ("", "//", "..")[number]
        style = {"color": STYLES[level]["color"], "hatch": hatch, "ec": "white"}
        axis.barh(names, width, left=left, label=SOURCES[level], **style)
        left = left + width
    axis.set(
        title="Where the images of the last epoch come from",
        xlabel="% of the images of an epoch",
        ylim=(len(rows) + 1.2, -0.6),  # room for the legend
    )


def draw_memory(axis, nodes: list[dict]) -> None:
    for number, (kind, label) in enumerate(MEMORY.items()):
        x = [node + 0.2 * (number - 1.5) for node in range(len(nodes))]
        hatch, colour = ("", "//", "..", "xx")[number], STYLES["memory"]["color"]
        height = [row[kind] / 2**20 for row in nodes]
        axis.bar(x, height, 0.2, color=colour, hatch=hatch, ec="white", label=label)
    axis.set_xticks(
        range(len(nodes)), [f"{i}\n{row['ranks']} ranks" for i, row in enumerate(nodes)]
    )
    axis.set(title="Memory of a node's cache for its whole shard", xlabel="node", ylabel="MiB")
    axis.set_ylim(top=1.5 * axis.get_ylim()[1])  # room for the legend
