"""The picture of lesson 06: bytes and time against density, chosen chunks, losses and accuracy."""

import statistics

import numpy as np

from kit import axes

DRAWN = {
    "dense": "black",
    "dgc": "tab:blue",
    "dgc_masked": "tab:cyan",
    "history": "tab:green",
    "none": "tab:red",
    "dgc, no warm-up": "tab:orange",
}


def draw(result: dict):
    title = "Lesson 06: coarse-grained sparse communication. A tenth of the chunks is sent per step"
    figure, (sizes, picture, losses, accuracy) = axes.frame(title, 2, 2, (15, 10))
    draw_densities(sizes, result["densities"])
    draw_large(sizes, result["large"])
    draw_choice(picture, result["chosen"])
    runs = result["accuracy"]["runs"]
    axes.losses(losses, runs, DRAWN)
    draw_accuracy(accuracy, runs, result["chunk_sizes"])
    return axes.finish(figure, sizes, losses)


def draw_densities(axis, densities: dict) -> None:
    """Bytes and times of the network that is trained."""
    rows = densities["rows"]
    percents = [row["density"] for row in rows[1:]]
    axis.loglog(percents, of_dense(row["payload"] for row in rows), "k.-", label="payload, counted")
    for key, label, colour in (
        ("alone", "exchange without computing", "tab:red"),
        ("step", "training step", "tab:blue"),
    ):
        times = of_dense(row[key]["median_s"] for row in rows)
        axis.loglog(percents, times, "o-", color=colour, label=f"{label}, measured")
    messages = of_dense(row["predicted_s"] for row in rows)
    axis.loglog(
        percents, messages, "--", color="tab:red", label="messages of the exchange, predicted"
    )
    axis.set(
        title="Against density, as a share of dense training without CSC",
        xlabel="density, %",
        ylabel="share",
    )


def draw_large(axis, large: dict) -> None:
    """The exchange of a large network, as a share of its own dense one."""
    rows, name = large["rows"], f"exchange of {large['elements'] / 1e6:.3g} million gradients"
    percents = [row["density"] for row in rows[1:]]
    measured = of_dense(row["alone"]["median_s"] for row in rows)
    messages = of_dense(row["predicted_s"] for row in rows)
    axis.loglog(percents, measured, "s-", color="tab:green", label=f"{name}, measured")
    axis.loglog(percents, messages, "--", color="tab:green", label="its messages, predicted")


def of_dense(values) -> list[float]:
    """Each value over the first, which belongs to the exchange without CSC."""
    dense, *others = values
    return [value / dense for value in others]


def draw_choice(axis, chosen: dict) -> None:
    picture = np.zeros((chosen["chunks"], len(chosen["lists"])))
    for step, numbers in enumerate(chosen["lists"]):
        picture[numbers if numbers else slice(None), step] = 1
    axis.imshow(picture, aspect="auto", cmap="Greys", interpolation="nearest")
    ends = [*(at for _, at in chosen["edges"][1:]), chosen["chunks"]]
    large = [
        (name, at)
        for (name, at), end in zip(chosen["edges"], ends)
        if end - at > chosen["chunks"] / 50
    ]
    axis.set(
        title=f"Chosen chunks at {chosen['percent']:g} % (black; the first step is dense)",
        xlabel="step",
        yticks=[at for _, at in large],
        yticklabels=[name for name, _ in large],
    )


def draw_accuracy(axis, runs: dict, chunk_sizes: dict) -> None:
    for x, (name, trials) in enumerate([*runs.items(), *chunk_sizes.items()]):
        right = [100 * (rows[-1]["accuracy"] or 0) for rows in trials]
        colour = DRAWN.get(name, "tab:purple")
        axis.bar(x, statistics.mean(right), color=colour, alpha=0.6)
        axis.plot([x] * len(right), right, ".", color="black", ms=4)
    names = [*runs, *(f"dgc, {name}" for name in chunk_sizes)]
    axis.set_xticks(range(len(names)), names, rotation=30, ha="right", fontsize=8)
    axis.set(title="Held-out images right at the end (dots: each run)", ylabel="%")
    axis.grid(alpha=0.3, axis="y")
