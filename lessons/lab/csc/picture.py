"""The figures of lesson 06: time against density, the choice of chunks, and what is learned."""

import numpy as np

import kit
from kit import axes

TITLE = "Lesson 06: CSC, coarse-grained sparse communication"
FORMS = {  # of momentum correction, as the figure names them
    "none": "none: the residual\nadds up gradients",
    "dgc": "dgc: it adds up\ntheir momentum, too",
    "dgc_masked": "dgc_masked: as dgc, but\nsending clears momentum",
    "history": "history: the residual\ntimes m in each step",
    "dgc, no warm-up": "dgc,\nno warm-up",
}
BELOW = "95 % interval; below 0: learns faster"


def draw(result: dict) -> dict:
    """{"": time, "choice": figure, "learning": figure}"""
    time = draw_times(result) if result.get("times") else draw_here(result["here"])
    return {
        "": time,
        "choice": draw_choice(result["chosen"], result["study"]),
        "learning": draw_learning(result["study"]),
    }


def draw_times(result: dict):
    """A step against the density; dense and sparse exchanges of the small network."""
    like, factor = result["regime"]["like"], result["regime"]["dilation"]
    figure, (left, right) = axes.frame(f"{TITLE}, like {like}, {result['ranks']} ranks", 1, 2)
    dense, *rows = result["times"]["rows"]
    percents = [row["density"] for row in rows]
    names = {"step": "step, measured", "own": "own work of the processor in it, measured"}
    for number, (key, name) in enumerate(names.items()):
        timings = [scaled(row[key], factor) for row in rows]
        axes.measured(left, percents, timings, **axes.style(number), label=name)
    times = [axes.MS * row["predicted_s"] / factor for row in rows]
    left.plot(percents, times, "--", color=axes.PREDICTED, label="step, predicted")
    levels = {"dense, float16": dense["step"], "without exchange": result["times"]["alone"]}
    for name, timing in levels.items():
        at, low, high = (axes.MS * timing[k] / factor for k in ("median_s", "low_s", "high_s"))
        left.axhspan(low, high, color="grey", alpha=0.4)
        left.axhline(at, color="grey", lw=1)
        left.annotate(name, (min(percents), at), (20, -13), textcoords="offset points")
    left.set(
        title="A step of AlexNet, float16, no overlap",
        xlabel="density: sent chunks, %",
        ylabel="ms in the cluster's time",
        xscale="log",
        ylim=(0, 1.2 * axes.MS * dense["step"]["high_s"] / factor),
    )
    left.set_xticks(percents, [f"{percent:g}" for percent in percents])
    left.minorticks_off()
    draw_exchange(right, result["small"], factor)
    right.set_xlabel("ms in the cluster's time")
    axes.finish(figure, left, right)
    left.legend(loc=(0.04, 0.16), fontsize=axes.TEXT_POINTS)
    right.legend(loc="lower right", fontsize=axes.TEXT_POINTS)
    return figure


def draw_here(here: dict):
    """The exchanges on this machine as it is."""
    figure, panels = axes.frame(f"{TITLE}. This machine as it is", 1, 2)
    for panel, name in zip(panels, ("small", "large")):
        draw_exchange(panel, here[name], 1.0)
        panel.set_xlabel("ms of this machine")
    return axes.finish(figure, *panels)


def draw_exchange(axis, network: dict, factor: float) -> None:
    """Bars of the exchanges of a network without computing; the message's bytes in the name."""
    bars = []
    for row in network["rows"]:
        sent = kit.number_of_bytes(row["chosen_bytes"] + row["norms_bytes"])
        times = {"timing": row["timing"], "predicted_s": row["predicted_s"]}
        bars.append({"name": f"{row['name']}\n{sent}", "note": "", **times})
    fastest = min(range(len(bars)), key=lambda i: bars[i]["timing"]["median_s"])
    bars[fastest]["note"] = "fastest"
    axes.bars(axis, bars, axes.MS / factor, fastest)
    axis.set_title(f"Exchange of {network['elements']:,} gradients, float16")


def scaled(timing: dict, factor: float) -> dict:
    """This machine's time -> the cluster's."""
    return {key: timing[key] / factor for key in ("median_s", "low_s", "high_s")}


def draw_choice(chosen: dict, study: dict):
    """Which chunks each step sends; other choices against the choice by importance."""
    figure, (left, right) = axes.frame(f"{TITLE}. Which chunks, and do they matter?", 1, 2)
    chunks = len(chosen["norms"])
    picture = np.zeros((chunks, len(chosen["lists"])))
    for step, numbers in enumerate(chosen["lists"]):
        picture[numbers if numbers else slice(None), step] = 1
    left.imshow(picture, aspect="auto", cmap="Greys", interpolation="nearest")
    ends = [*(at for _, at in chosen["edges"][1:]), chunks]
    large = [(name, at) for (name, at), end in zip(chosen["edges"], ends) if end - at > chunks / 30]
    left.set(
        title=f"Sent chunks at {chosen['percent']:g} % (black)",
        xlabel="step (step 0 is dense)",
        ylabel="chunk (a tensor's name: its first chunk)",
        yticks=[at for _, at in large],
        yticklabels=[name for name, _ in large],
    )
    count = len(study["pairs"])
    draw_differences(right, study["choice"], "by importance", count)
    right.set_title(f"Other choices, form none, {count} paired runs")
    right.set_xlabel(f"loss minus that of the choice by importance\n({BELOW})")
    return axes.finish(figure)


def draw_learning(study: dict):
    """Each form against dense training; none against dgc in other trainings."""
    figure, (left, right) = axes.frame(f"{TITLE}. What is learned", 1, 2)
    count = len(study["pairs"])
    draw_differences(left, study["forms"], "dense", count)
    left.set_title(f"Forms (m: momentum), {count} paired runs")
    left.set_xlabel(f"loss minus that of dense training\n({BELOW})")
    count = max((len(row["runs"]) for row in study["why"].values()), default=0)
    draw_differences(right, study["why"], None, count)
    right.set_title(f"Form none against dgc, {count} paired runs")
    right.set_xlabel(f"loss of none minus that of dgc\n({BELOW})")
    return axes.finish(figure)


def draw_differences(axis, kinds: dict, base: str | None, pairs: int) -> None:
    """Mean paired difference of the training loss and its 95 % interval, one line for each kind."""
    names = [name for name in kinds if name != base]
    for y, name in enumerate(names):
        difference = kinds[name]["loss"]
        if difference is None:  # a single run
            continue
        middle = difference["median_s"]
        spread = [[middle - difference["low_s"]], [difference["high_s"] - middle]]
        axis.errorbar(middle, y, xerr=spread, capsize=3, ms=7, ls="none", **axes.style(y))
    if pairs < 2:
        axis.annotate("too few runs", (0.5, 0.5), xycoords="axes fraction", ha="center")
    axis.axvline(0, color="grey", lw=1)
    labels = {"as above": "as on the left"} | FORMS
    axis.set_yticks(range(len(names)), [labels.get(name, name) for name in names])
    axis.set(ylim=(max(1, len(names)) - 0.5, -0.5))
    axis.grid(alpha=0.3, axis="x")
