"""Lesson 03's figures: steps against theta, gains elsewhere, and a map of links."""

import math

import numpy as np

import kit
from kit import axes
from kit.rows import at, best, level, ratio, scaled
from kit.words import count
from lab.lazy import predicted_places
from lab.lazy.steps import KINDS
from refgf.cluster import like as clusters
from refgf.papers.scaling.published import INFINIBAND, TEN_GIGABIT
from refgf.papers.scaling.region import latency_of_gain
from refgf.papers.scaling.workloads import resnet50
from refgf.predict.cost import Link, ring_line

BAND = 0.25  # of the axis: as much as a legend and a line of text need
ONE_NODE = 4  # ranks: a published line for as few is that of a bus, not of the network
GAINS = ((1.5, 0.15), (3, 0.3))  # and the shade of the region in which one call gains more
NOTE = """Predicted: the sums of ResNet-50's {} gradients on {} ranks, without overlap.
A point: the alpha and beta of its allreduce, T(m) = 2(p-1) alpha + 2(p-1)/p beta m.
MG-WFBP's T(m) are published fits from 32 kB to 2 MB: their rates need not be the links'."""


def draw(result: dict) -> dict:
    """Step against theta, the gain in other places, and a map of links."""
    if "rows" not in result:
        return draw_here(result)
    k = result["regime"]["dilation"]
    title = "Lesson 03: lazy allreduce. How long should gradients wait for each other?"
    figure, (curves, gains) = axes.frame(title, 1, 2, (axes.WIDTH_INCHES, 5.5))
    draw_steps(curves, result, k)
    predicted_places.draw_gain(gains, result["elsewhere"], "best theta", gain_here(result))
    cluster = clusters.parse(result["regime"]["cluster"], "")
    p = max(2, result["ranks"])
    line = ring_line(p, Link(cluster.latency_s, 1 / cluster.rate))
    name = f"{cluster.name}, which this run emulates"
    region = draw_region({name: (p, line.a_s, line.b_s_per_byte)}, p)
    axes.finish(figure, gains)
    legend_between(curves, result, k)
    return {"": figure, "region": region}


def legend_between(axis, result: dict, k: float) -> None:
    """The legend in the band above the step without exchange, or on top if that is too narrow."""
    above = axes.MS / k * result["without_exchange"]["median_s"]
    timings = [row[kind] for row in result["rows"] for kind in KINDS if row[kind]]
    least = [t["low_s"] for t in timings] + [min(result["fine"][kind]) for kind in KINDS]
    place, top, up = {"ncols": 2}, axis.get_ylim()[1], -12
    if axes.MS / k * min(least) - above > BAND * top:
        place |= {"loc": "lower center", "bbox_to_anchor": (0.5, above / top)}
    else:
        axis.set_ylim(0, 1.3 * top)
        place["loc"], up = "upper center", 3
    style = {"textcoords": "offset points", "color": "dimgrey"}
    axis.annotate("no exchange", (0, above), (0, up), **style)
    axis.legend(*axes.in_order(axis), fontsize=axes.TEXT_POINTS, **place)
    axis.grid(alpha=0.3)


def gain_here(result: dict) -> dict | None:
    """What this run has measured of eager calls and the best theta; None without eager calls."""
    eager, fastest = at(result["rows"], {"theta": 0}), best(result["rows"], "overlapped")
    if not eager or not eager["overlapped"]:
        return None
    return {
        "title": result["network"],
        "cluster": result["regime"]["like"],
        "ranks": result["ranks"],
        "gain": ratio(eager["overlapped"], fastest["overlapped"]),
        "predicted": eager["predicted"]["overlapped"] / fastest["predicted"]["overlapped"],
    }


def place(theta: float, thetas: list[float]) -> float:
    """Where theta lies on an axis with a tick for each of `thetas`: 0, a, 2a, 4a, ..., infinity."""
    if theta in thetas:
        return thetas.index(theta)
    below = max(i for i, tick in enumerate(thetas) if tick < theta)
    low, high = thetas[below : below + 2]
    if not low:
        return theta / high
    return below + (1 - low / theta if math.isinf(high) else math.log(theta / low, high / low))


def fastest_in_words(calls: list[int]) -> str:
    """calls: of the fastest step and of those within its noise."""
    *others, most = sorted(calls)
    if not others:
        return f"fastest: {count(most, 'call')} a step"
    return f"fastest, a tie: {', '.join(map(str, others))} and {most} calls"


def draw_steps(axis, result: dict, k: float) -> None:
    thetas = [float(theta) for theta in result["fine"]["thetas"]]
    for number, (kind, name) in enumerate(KINDS.items()):
        style = axes.style(number) | {"ms": 9 - 4 * number, "label": f"{name}, measured"}
        timed = [row for row in result["rows"] if row[kind]]
        x = [place(float(row["theta"]), thetas) for row in timed]
        timings = [scaled(row[kind], 1 / k) for row in timed]
        axes.measured(axis, x, timings, **style)
        predicted = [1e3 * t / k for t in result["fine"][kind]]
        label = f"{name}, predicted"
        axis.plot(range(len(thetas)), predicted, "--", color=style["color"], label=label)
        least = min(range(len(timed)), key=lambda i: timings[i]["median_s"])
        spot = x[least], 1e3 * timings[least]["median_s"]
        axis.annotate(
            fastest_in_words([row["calls"] for row in level(timed, kind)]),
            spot,
            (0, -30 if kind == "overlapped" else 30),
            textcoords="offset points",
            ha="left" if x[least] < 3 else "right" if x[least] > len(thetas) - 4 else "center",
            color=style["color"],
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
        )
    off_ms = 1e3 * result["without_exchange"]["median_s"] / k
    axis.axhline(off_ms, color="grey", lw=1)
    ticks = sorted({0, *range(1, len(thetas), 2), len(thetas) - 1})
    labels = [kit.number_of_bytes(thetas[i]) if thetas[i] else "eager" for i in ticks]
    axis.set_xticks(ticks, [text.replace("inf", "one call") for text in labels], rotation=60)
    top = 1.05 * max(axis.get_ylim()[1], off_ms)
    axis.set(
        title=f"A training step of {result['network']}\n"
        f"like {result['regime']['like']}, {result['ranks']} ranks, float32 on the wire",
        xlabel="theta: bytes that may wait",
        ylabel=f"a training step, {axes.clock(k)}",
        ylim=(0, top),
    )


# ---- this machine as it is ----


def draw_here(result: dict) -> dict:
    """Step against theta for the small network, for ResNet-50's gradients, and the map of links."""
    title = "Lesson 03 on this machine as it is: how long should gradients wait for each other?"
    figure, panels = axes.frame(title, 1, 2)
    titles = {
        "sweep": f"{result['trained']} on images, computed",
        "resnet50": "ResNet-50's 161 gradients, replayed",
    }
    kinds = {kind: (name, axes.COLOURS[i]) for i, (kind, name) in enumerate(KINDS.items())}
    for axis, (key, title) in zip(panels, titles.items()):
        rows = result[key]["rows"]
        calls = [str(row["calls"]) for row in rows]
        axes.against_theta(axis, rows, kinds, result[key]["compute_s"], "no exchange", calls)
        axis.tick_params(axis="x", rotation=45)
        axis.set_ylim(0, 1.6 * axis.get_ylim()[1])  # room for the legend
        axis.set(title=title, xlabel="theta (above it: number of calls)")
    p, fit = result["ranks"], result["fit"]
    here = {f"this run's fit of {p} ranks": (p, fit["a_s"], fit["b_s_per_byte"])}
    region = draw_region(here, max(2, p))
    return {"": axes.finish(figure, *panels), "region": region}


# ---- a map of links: where one call is much faster than eager calls ----


def draw_region(lines: dict, size: int):
    """A figure: borders of the gains for `size` ranks, and the links of allreduces.

    lines: {name: (ranks, a_s, b_s_per_byte)}, besides two published fits
    """
    title = "Lesson 03: by how much is one call faster than eager calls?"
    figure, (axis,) = axes.frame(title, 1, 1, size=(axes.WIDTH_INCHES, 6))
    rates = np.logspace(8, 11.5, 50) / 8  # bytes/s
    tensors = resnet50().tensors
    nbytes = 4 * sum(tensor.elements for tensor in tensors)
    for number, (wanted, shade) in enumerate(GAINS):
        alpha = 1e6 * np.array(
            [latency_of_gain(wanted, len(tensors), nbytes, size, 1 / rate) for rate in rates]
        )
        colour = axes.COLOURS[number]
        axis.loglog(
            8e-9 * rates, alpha, color=colour, label=f"above: eager calls / one call > {wanted}"
        )
        axis.fill_between(8e-9 * rates, alpha, 1e5, color=colour, alpha=shade)
    for machine in (TEN_GIGABIT, INFINIBAND):
        fitted = size if size in machine.lines and size > ONE_NODE else 16
        line = machine.lines[fitted]
        name = f"fit of {fitted} ranks on {machine.name.removeprefix('MG-WFBP, ')}"
        lines = lines | {f"MG-WFBP's {name}": (fitted, line.a_s, line.b_s_per_byte)}
    highest = 3000
    for number, (name, (p, a_s, b_s_per_byte)) in enumerate(lines.items(), len(GAINS)):
        rate, alpha = fitted_link(p, a_s, b_s_per_byte)
        link = f"{8e-9 * rate:.3g} Gbit/s, {1e6 * alpha:.3g} us"
        label, style = f"{name}: {link}", axes.style(number)
        axis.plot(8e-9 * rate, 1e6 * alpha, ls="none", ms=10, label=label, **style)
        highest = max(highest, 2e6 * alpha)
    axis.set(
        title=NOTE.format(len(tensors), size),
        xlabel="rate of a link, 1 / beta, Gbit/s",
        ylabel="latency of a message, alpha, us",
        ylim=(0.3, highest),
    )
    axis.title.set_fontsize(axes.TEXT_POINTS)
    return axes.finish(figure, axis, computed=True)


def fitted_link(p: int, a_s: float, b_s_per_byte: float) -> tuple[float, float]:
    """(bytes/s, alpha of a message) from a + b m of a ring allreduce; nan for one rank or b = 0."""
    if p == 1 or not b_s_per_byte:
        return float("nan"), float("nan")
    return 2 * (p - 1) / p / b_s_per_byte, a_s / (2 * (p - 1))
