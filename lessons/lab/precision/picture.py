"""Lesson 05's figures: times; rounding and noise; loss scales."""

import numpy as np

from kit import axes
from kit.rows import ratio
from lab.precision import blocks, loss_scales, times
from lab.precision.rounding import DIRECT, RING

MS = 1e3
SHIFT = 1.25  # times x: so that a point does not hide another


def draw(result: dict) -> dict:
    """{name: figure}"""
    return {
        "": draw_times(result),
        "rounding": draw_rounding(result["rounding"], result.get("blocks"), result["noise"]),
        "scale": draw_scales(result["scales"], result["learning"]),
    }


def draw_times(result: dict):
    """A step with either wire type; single calls against their length."""
    found, factor = result["times"], result["regime"]["dilation"]
    figure, (step, call) = axes.frame("Lesson 05: half the bytes on the wire", 1, 2, (10, 6))
    rows = [bar("no exchange", found["off"], None)]
    for name, row in found["steps"].items():
        exchange_s = row["exchange"]["median_s"]
        took = f"{MS * exchange_s / factor:.3g} ms" if exchange_s > 0 else "within the noise"
        rows.append(bar(f"{name}\non the wire", row["step"], row["predicted_s"], took))
        rows[-1]["part_s"] = max(0.0, exchange_s)
    for kind, timing in found.get("computed", {}).items():  # on a GPU
        rows.append(bar(f"computed in\n{kind}", timing, None))
    faster = min((1, 2), key=lambda y: rows[y]["timing"]["median_s"])
    axes.bars(step, rows, MS / factor, faster)
    emulated = result["regime"]["like"] != "this-machine"
    size = "" if emulated and not result["options"]["quick"] else "small "
    network = f"{size}AlexNet, no overlap, {result['ranks']} ranks"
    step.set(
        title=f"A step of {network}",
        xlabel=f"{axes.clock(factor)}; pale: exchange\ndark bar: float16 or float32, the faster",
    )
    draw_calls(call, found)
    call.set_title(f"One allreduce, {result['ranks']} ranks: float16 against float32")
    with_legend = [step] if found["steps"]["float32"]["predicted_s"] else []
    axes.finish(figure, call, *with_legend)
    step.set_axisbelow(True)
    return figure


def bar(name: str, step: dict, predicted_s: float | None, note: str = "") -> dict:
    return {"name": name, "timing": step, "predicted_s": predicted_s, "note": note}


def draw_calls(axis, found: dict) -> None:
    """T(float16) / T(float32) of one call, by the number of gradients."""
    calls = found["calls"]
    lengths = [int(n) for n in calls]
    for number, (kind, label) in enumerate({"float16": "ring", times.DIRECT: "direct"}.items()):
        points = [ratio(row[kind], row["float32"]) for row in calls.values()]
        at = [n * SHIFT**number for n in lengths]
        axes.points(axis, at, points, **axes.style(number), label=label)
    steps = found["steps"]
    memory = ratio(steps["float16"]["own"], steps["float32"]["own"])
    style = axes.style(4) | {"label": "all, in memory, no network"}
    axes.points(axis, [found["elements"]], [memory], **style)
    if all(row["predicted_s"] for row in calls.values()):
        predicted = [
            r["predicted_s"]["float16"] / r["predicted_s"]["float32"] for r in calls.values()
        ]
        draw_predicted(axis, lengths, predicted, "ring, predicted")
    for y, name in {1: "dotted: the same time, half the time", 0.5: None}.items():
        axis.axhline(y, color="grey", lw=1, ls=":", label=name)
    axis.set(
        xlabel="gradients in the call (points side by side)",
        ylabel="time with float16 / time with float32",
        ylim=(0, 1.3 * axis.get_ylim()[1]),  # room for the legend
    )
    axis.set_xscale("log", base=2)
    ticks = [lengths[0] * 2**k for k in range(0, 20, 4)]
    ticks = [n for n in ticks if n <= found["elements"]]
    axis.set_xticks(ticks, [axes.power(n, 2) for n in ticks])


def draw_predicted(axis, x, y, label: str | None = "predicted") -> None:
    """A dashed line; an errorbar, so that the legend names it after the points."""
    axis.errorbar(x, y, ls="--", color=axes.PREDICTED, label=label)


def draw_rounding(rounding: dict, eight_bits: dict | None, noise: dict):
    title = "Lesson 05: rounding errors, and the noise of a mini-batch"
    figure, (error, spread) = axes.frame(title, 1, 2)
    lines = [(rounding, 0, RING), (rounding, 1, DIRECT)]
    if eight_bits:
        lines += [(eight_bits, 3, blocks.RING), (eight_bits, 5, blocks.DIRECT)]
    for found, number, name in lines:
        ranks = found["ranks"]
        measured, predicted = (
            [found[key][str(p)][name] for p in ranks] for key in ("errors", "predicted")
        )
        style = axes.style(number) | {"label": f"{name} on the wire", "ls": "none"}
        error.errorbar(ranks, measured, **style)
        draw_predicted(error, ranks, predicted, None if number else "predicted")
    error.set(
        title="Sums of p random vectors (replayed)",
        xlabel="ranks p",
        ylabel="relative rounding error",
        yscale="log",
    )
    error.set_xscale("log", base=2)
    if eight_bits:
        error.set_ylim(bottom=error.get_ylim()[0] / 60)  # room for the legend
    images = [int(k) * noise["batch"] for k in noise["rows"]]
    moments = ", ".join(map(str, noise["moments"]))
    names = {RING: f"rounding, {RING}", DIRECT: f"rounding, {DIRECT}", "noise": "noise"}
    for number, (name, label) in enumerate(names.items()):
        rows = [row[name] for row in noise["rows"].values()]
        at = [n * SHIFT ** (number == 1) for n in images]
        axes.points(spread, at, rows, **axes.style(number), label=label)
    falls = [row["extrapolated"]["median_s"] for row in noise["rows"].values()]
    draw_predicted(spread, images, falls, "noise, predicted: 1 / root of the batch")
    spread.set(
        title=f"Gradients of a small AlexNet, {noise['batch']} images a rank",
        xlabel="images in the batch of all ranks (points side by side)",
        ylabel=f"relative to the gradient\n(after {moments} steps)",
        yscale="log",
    )
    spread.set_xscale("log", base=2)
    return axes.finish(figure, error, spread)


SHARES = (
    "Left: the gradients of one batch, early in a training. Right: those of all steps of the "
    "trainings, so their shares are others."
)


def draw_scales(scales: dict, learning: dict | None):
    """What becomes zero or infinite with each loss scale, and how networks learn with them."""
    title = "Lesson 05: what float16 loses on the wire, and what the loss scale is for"
    figure, (lost, accuracy) = axes.frame(title, 1, 2)
    exponents = [loss_scales.exponent(scale) for scale in scales["rows"]]
    kinds = {
        "zero": "become zero",
        "infinite": "become infinite",
        "norm": "norm of those that become zero",
    }
    for number, (key, name) in enumerate(kinds.items()):
        percent = [100 * row[key] for row in scales["rows"].values()]
        lost.plot(exponents, percent, label=name, **axes.style(number))
    lost.set(
        title="What is lost, by loss scale (one batch)",
        xlabel="log2 of the loss scale",
        ylabel="% of the gradients, or of their norm",
        ylim=(-3, 125),
    )
    if learning:
        draw_accuracies(accuracy, learning)
    return axes.finish(figure, lost, below=SHARES)


def draw_accuracies(axis, learning: dict) -> None:
    """Mean held-out accuracy in float32 and in float16 with each scale, and paired differences."""
    for y, (name, runs) in enumerate(learning["runs"].items()):
        mean = 100 * np.mean([epochs[-1]["accuracy"] for epochs in runs])
        axis.barh(y, mean, color=axes.COLOURS[5], height=0.6)
        points, note = learning["differences"].get(name), f"{mean:.1f} %"
        if points:
            half = points["high_s"] - points["median_s"]
            note += f": {points['median_s']:+.2f} \N{PLUS-MINUS SIGN} {half:.2f} points"
        if shares := learning["lost"].get(name):
            zero, norm = (100 * shares[key] for key in ("zero", "norm"))
            note += f"\n{zero:.3g} % become zero, {norm:.2g} % of the norm"
        axis.annotate(note, (1, y), (4, 0), textcoords="offset points", va="center")
    names = [name.replace(", ", ",\n") for name in learning["runs"]]
    axis.set_yticks(range(len(names)), names)
    axis.set(
        title="Accuracy in float32, and in float16\n"
        f"with a loss scale ({learning['pairs']} runs of each)",
        xlabel="held-out images right, %\n(points: paired difference from float32)",
        xlim=(0, 100),
        ylim=(len(names) - 0.5, -0.5),
    )
