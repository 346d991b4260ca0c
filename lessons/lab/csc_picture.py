"""The figures of lesson 06: time against density, the choice of chunks, and what is learned."""

import numpy as np

import kit
from kit import axes

TITLE = "Lesson 06: coarse-grained sparse communication"
PICTURE = (
    "Time of a step of AlexNet against the density of CSC, and the exchange of a small network. "
    "Further figures: which chunks are chosen, and paired differences of the training loss."
)


def draw(result: dict) -> dict:
    """{"": time, "choice": figure, "learning": figure}"""
    time = draw_times(result) if result.get("times") else draw_here(result["here"])
    return {
        "": time,
        "choice": draw_choice(result["chosen"], result["study"]),
        "learning": draw_learning(result["study"]),
    }


def draw_times(result: dict):
    figure, (left, right) = axes.frame(f"{TITLE}. A step of AlexNet, no overlap", 1, 2)
    factor = result["regime"]["dilation"]
    dense, *rows = result["times"]["rows"]
    percents = [row["density"] for row in rows]
    for number, (key, label) in enumerate({"step": "step", "own": "its own work"}.items()):
        timings = [scaled(row[key], factor) for row in rows]
        axes.measured(left, percents, timings, **axes.style(number), label=f"{label}, measured")
    times = [axes.MS * row["predicted_s"] / factor for row in rows]
    left.plot(percents, times, "--", color=axes.PREDICTED, label="step, predicted")
    levels = {"dense": dense["step"], "without exchange": result["times"]["alone"]}
    for label, timing in levels.items():
        at = axes.MS * timing["median_s"] / factor
        left.axhline(at, color="grey", lw=1)
        left.annotate(label, (percents[-1], at), (20, -12), textcoords="offset points")
    left.set(
        title="Step against density",
        xlabel="density, %",
        ylabel="ms, in the emulated cluster's time",
        xscale="log",
        ylim=(0, 1.2 * axes.MS * dense["step"]["median_s"] / factor),
    )
    left.set_xticks(percents, [f"{percent:g}" for percent in percents])
    left.minorticks_off()
    rows = bars_of(result["small"]["rows"])
    axes.bars(right, rows, axes.MS / factor, fastest(rows))
    right.set(
        title=f"Exchange of {result['small']['elements']:,} gradients",
        xlabel="ms, in the emulated cluster's time",
    )
    axes.finish(figure, left, right)
    left.legend(loc=(0.04, 0.16), fontsize=axes.TEXT_POINTS)
    right.legend(loc="lower right", fontsize=axes.TEXT_POINTS)
    return figure


def draw_here(here: dict):
    """The exchanges on this machine as it is."""
    figure, panels = axes.frame(f"{TITLE}. This machine as it is", 1, 2)
    for panel, name in zip(panels, ("small", "large")):
        rows = bars_of(here[name]["rows"])
        axes.bars(panel, rows, axes.MS, fastest(rows))
        panel.set(title=f"Exchange of {here[name]['elements']:,} gradients", xlabel="ms")
    return axes.finish(figure, *panels)


def bars_of(rows: list[dict]) -> list[dict]:
    """Rows as `axes.bars` takes them, with the length of their messages in the name."""
    bars = []
    for row in rows:
        sent = kit.number_of_bytes(row["chosen_bytes"] + row["norms_bytes"])
        times = {"timing": row["timing"], "predicted_s": row["predicted_s"]}
        bars.append({"name": f"{row['name']}\n{sent}", "note": "", **times})
    return bars


def scaled(timing: dict, factor: float) -> dict:
    """This machine's time -> the cluster's."""
    return {key: timing[key] / factor for key in ("median_s", "low_s", "high_s")}


def fastest(rows: list[dict]) -> int:
    return min(range(len(rows)), key=lambda i: rows[i]["timing"]["median_s"])


def draw_choice(chosen: dict, study: dict):
    figure, (left, right) = axes.frame(f"{TITLE}. Which chunks, and do they matter?", 1, 2)
    chunks = len(chosen["norms"])
    picture = np.zeros((chunks, len(chosen["lists"])))
    for step, numbers in enumerate(chosen["lists"]):
        picture[numbers if numbers else slice(None), step] = 1
    left.imshow(picture, aspect="auto", cmap="Greys", interpolation="nearest")
    ends = [*(at for _, at in chosen["edges"][1:]), chunks]
    large = [(name, at) for (name, at), end in zip(chosen["edges"], ends) if end - at > chunks / 30]
    left.set(
        title=f"Chosen chunks at {chosen['percent']:g} % (black; step 0 is dense)",
        xlabel="step",
        yticks=[at for _, at in large],
        yticklabels=[name for name, _ in large],
    )
    draw_differences(right, study["choice"], "by importance")
    right.set(title="Other choices minus choice by importance")
    return axes.finish(figure)


def draw_learning(study: dict):
    figure, (left, right) = axes.frame(f"{TITLE}. What is learned", 1, 2)
    draw_differences(left, study["forms"], "dense")
    left.set(title="Each form minus dense training")
    draw_differences(right, study["why"], None)
    right.set(title="Form none minus form dgc")
    return axes.finish(figure)


def draw_differences(axis, kinds: dict, base: str | None) -> None:
    """Mean paired difference of the loss and its 95 % interval, one line for each kind."""
    names = [name for name in kinds if name != base]
    for y, name in enumerate(names):
        difference = kinds[name]["loss"]
        if difference is None:  # a single run
            continue
        middle = difference["median_s"]
        spread = [[middle - difference["low_s"]], [difference["high_s"] - middle]]
        style = axes.style(y)
        axis.errorbar(middle, y, xerr=spread, capsize=3, ms=7, ls="none", **style)
    axis.axvline(0, color="grey", lw=1)
    axis.set_yticks(range(len(names)), names)
    axis.set(ylim=(max(1, len(names)) - 0.5, -0.5))
    axis.set_xlabel("difference of the training loss (left: learns faster), 95 % interval")
    axis.grid(alpha=0.3, axis="x")
