"""Lesson 03's figures of the emulated cluster: steps against theta, gains elsewhere, links."""

import math

import kit
from kit import axes
from lab.lazy import latency_region, predicted_places
from lab.lazy.claims import level
from lab.lazy.steps import KINDS
from refgf.cluster import like as clusters
from refgf.predict.cost import Link, ring_line

AGAIN = (
    "Lesson 07 measures ResNet-50 again in float16, with the whole stack; lesson 09 in float32, "
    "with groups computed from such times. So eager calls lose by other factors there."
)


def draw(result: dict) -> dict:
    """Step against theta, the gain in other places, and a map of links."""
    k = result["regime"]["dilation"]
    title = "Lesson 03: lazy allreduce. How long should gradients wait for each other?"
    figure, (curves, gains) = axes.frame(title, 1, 2, (axes.WIDTH_INCHES, 5.5))
    draw_steps(curves, result, k)
    predicted_places.draw_gain(gains, result["elsewhere"], "best theta", gain_here(result))
    cluster = clusters.parse(result["regime"]["cluster"], "")
    p = max(2, result["ranks"])
    line = ring_line(p, Link(cluster.latency_s, 1 / cluster.rate))
    region = latency_region.draw({cluster.name: (p, line.a_s, line.b_s_per_byte)}, p)
    return {"": axes.finish(figure, curves, gains, below=AGAIN), "region": region}


def gain_here(result: dict) -> dict | None:
    """What this run has measured of eager calls and the best theta; None without eager calls."""
    timed = [row for row in result["rows"] if row["overlapped"]]
    eager = next((row for row in timed if float(row["theta"]) == 0), None)
    if eager is None:
        return None
    best = min(timed, key=lambda row: row["overlapped"]["median_s"])
    over, under = eager["overlapped"], best["overlapped"]
    opposite = {"median_s": "median_s", "low_s": "high_s", "high_s": "low_s"}
    return {
        "title": result["network"],
        "cluster": result["regime"]["like"],
        "ranks": result["ranks"],
        "gain": {key: over[key] / under[other] for key, other in opposite.items()},
        "predicted": eager["predicted"]["overlapped"] / best["predicted"]["overlapped"],
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
        return f"fastest: {most} call{'s' * (most > 1)} a step"
    return f"fastest, a tie: {', '.join(map(str, others))} and {most} calls"


def draw_steps(axis, result: dict, k: float) -> None:
    thetas = [float(theta) for theta in result["fine"]["thetas"]]
    for number, (kind, name) in enumerate(KINDS.items()):
        style = axes.style(number) | {"ms": 9 - 4 * number, "label": f"{name}, measured"}
        timed = [row for row in result["rows"] if row[kind]]
        x = [place(float(row["theta"]), thetas) for row in timed]
        timings = [{key: row[kind][key] / k for key in row[kind]} for row in timed]
        axes.measured(axis, x, timings, **style)
        predicted = [1e3 * t / k for t in result["fine"][kind]]
        label = f"{name}, predicted"
        axis.plot(range(len(thetas)), predicted, "--", color=style["color"], label=label)
        least = min(range(len(timed)), key=lambda i: timings[i]["median_s"])
        spot = x[least], 1e3 * timings[least]["median_s"]
        axis.annotate(
            fastest_in_words([row["calls"] for row in level(timed, kind)]),
            spot,
            (0, -20 if kind == "overlapped" else 12),
            textcoords="offset points",
            ha="left" if x[least] < 3 else "right" if x[least] > len(thetas) - 4 else "center",
            color=style["color"],
        )
    off_ms = 1e3 * result["without_exchange"]["median_s"] / k
    axis.axhline(off_ms, color="grey", lw=1, label="no exchange")
    ticks = sorted({0, *range(1, len(thetas), 2), len(thetas) - 1})
    labels = [kit.number_of_bytes(thetas[i]) if thetas[i] else "eager" for i in ticks]
    axis.set_xticks(ticks, [text.replace("inf", "one call") for text in labels], rotation=60)
    top = 1.7 * max(axis.get_ylim()[1], off_ms)  # room for the legend
    axis.set(
        title=f"A training step of {result['network']}\n"
        f"like {result['regime']['like']}, {result['ranks']} ranks, float32 on the wire",
        xlabel="theta: bytes that may wait",
        ylabel=f"a training step, {axes.clock(k)}",
        ylim=(0, top),
    )
