"""The figure of lesson 14: images per second by epoch and by memory, hits, memory of a node."""

import numpy as np

from refgf.papers.datacache import LEVELS

COLOURS = {
    "no cache": "black",
    "disk": "tab:blue",
    "half memory": "tab:orange",
    "half memory + disk": "tab:purple",
    "memory": "tab:red",
    "memory + disk": "tab:green",
}


def draw(result: dict):
    import matplotlib.pyplot as plt

    figure, ((by_epoch, memory_axis), (hit_axis, used)) = plt.subplots(2, 2, figsize=(15, 10.5))
    n, first = result["samples"], result["rows"][0]["store"]
    for row in result["rows"]:
        x, style = range(1, 1 + len(row["epochs"])), "o-" if row["store"] == first else "^:"
        label = row["name"] if row["store"] == first else f"{row['name']}, {row['store']}"
        by_epoch.plot(
            x,
            [n / e["seconds"] for e in row["epochs"]],
            style,
            color=COLOURS[row["name"]],
            label=label,
        )
        by_epoch.plot(
            x, [n / e["predicted_s"] for e in row["epochs"]], "_", ms=18, color=COLOURS[row["name"]]
        )
    by_epoch.set(
        title=f"Images per second by epoch (bars: predicted)\n{first}", xlabel="epoch", yscale="log"
    )
    by_epoch.set_xticks(range(1, 1 + len(result["rows"][0]["epochs"])))
    shares = [100 * row["share"] for row in result["sweep"]]
    cost, fine = result["costs"][first], np.linspace(0, 1, 201)
    for name, colour in (("store", "tab:orange"), ("disk", "tab:purple")):
        rates = [n / np.array(row[name]["seconds"]) for row in result["sweep"]]
        middle = np.array([np.median(rate) for rate in rates])
        spread = [middle - [min(rate) for rate in rates], [max(rate) for rate in rates] - middle]
        forecast = result["ranks"] / (fine * cost["memory"] + (1 - fine) * cost[name])
        memory_axis.errorbar(
            shares, middle, spread, fmt="o", capsize=2, color=colour, label=f"rest from {name}"
        )
        memory_axis.plot(100 * fine, forecast, "--", color=colour, label="predicted")
    memory_axis.set(
        title="Images per second after the first epoch",
        xlabel="% of the shard that memory may hold",
        yscale="log",
    )
    shown, left = [row for row in result["rows"] if row["store"] == first], 0
    for level, colour in zip(LEVELS, ("tab:green", "tab:blue", "tab:grey")):
        width = np.array([100 * row["epochs"][-1]["hits"][level] for row in shown])
        hit_axis.barh([row["name"] for row in shown], width, left=left, color=colour, label=level)
        left = left + width
    hit_axis.set(title="Source of the samples in the last epoch", xlabel="%")
    labels = (
        "limit",
        "file of the node",
        "kernel, each page once (Pss)",
        "kernel, once for each rank (Rss)",
    )
    for i, (kind, label) in enumerate(zip(("limit", "file", "Pss", "Rss"), labels)):
        x = [node + 0.2 * (i - 1.5) for node in range(len(result["memory"]))]
        used.bar(x, [row[kind] / 2**20 for row in result["memory"]], 0.2, label=label)
    used.set(
        title="Memory of a node's cache: one copy for any number of ranks",
        xlabel="node",
        ylabel="MiB",
    )
    used.set_xticks(range(len(result["memory"])))
    by_epoch.set_ylim(top=30 * by_epoch.get_ylim()[1])  # room for the legends
    used.set_ylim(top=1.35 * used.get_ylim()[1])
    hit_axis.set_ylim(top=len(shown) + 0.2)
    for axis, columns in ((by_epoch, 2), (memory_axis, 1), (hit_axis, 3), (used, 2)):
        axis.legend(fontsize=8, ncols=columns, loc="upper left")
        axis.grid(alpha=0.3)
    figure.suptitle(
        "Lesson 14: only the first epoch is slow if a node caches its shard; misses decide the rest"
    )
    figure.tight_layout(rect=(0, 0.02, 1, 1))
    return figure
