"""The figures of lesson 10: time and gain against size, the bus of a node, ranks per node."""

from itertools import groupby

import kit
from kit import axes
from kit.rows import at, level, overlap, ratio, scaled
from lab.hierarchy.times import RING, SPLITS

DOUBLING = "recursive doubling"
HALF_STEP = 1  # of the sizes, each four times the one before, on a scale of doublings
# the look of each algorithm that is drawn; the table has log phases and the tree, too
SHOWN = {
    RING: 0,
    "three phases": 1,
    "two-level ring": 3,
    DOUBLING: 4,
    "halving-doubling": 5,
}


def draw(result: dict) -> dict:
    figures = {"": draw_sizes(result), "nodes": draw_ranks_per_node(result)}
    return figures | ({"bus": draw_bus(result)} if result["free"] else {})


def scale(result: dict) -> float:
    """From this machine's seconds to the cluster's."""
    return 1 / result["regime"]["dilation"]


def unit(result: dict) -> str:
    return f"time, {axes.clock(result['regime']['dilation'])}"


def place(result: dict) -> str:
    count, like = len(set(result["node_of_rank"])), result["regime"]["like"]
    cluster = "" if like == "this-machine" else f" like {like}"
    return f"{result['ranks']} ranks on {count} node{'s' * (count > 1)}{cluster}"


def shifted(x: list[int], number: int) -> list[float]:
    """The places of series number 0 to 4 on a logarithmic axis, so that none hides another."""
    return [at * 2 ** (0.1 * (number - 2)) for at in x]


def draw_sizes(result: dict):
    points, factor = result["points"], scale(result)
    names = [name for name in SHOWN if name in points[0]["measured"]]
    figure, (time_axis, gain_axis) = axes.frame(
        f"Lesson 10: which allreduce for which size? {place(result)}", 1, 2
    )
    nbytes = [point["bytes"] for point in points]
    gain_axis.axhline(1, color=axes.style(0)["color"], lw=1)
    gain_axis.annotate(RING, (nbytes[0], 1), (-4, 3), textcoords="offset points")
    for i, name in enumerate(names):
        style = axes.style(SHOWN[name])
        timings = [scaled(point["measured"][name], factor) for point in points]
        axes.measured(time_axis, shifted(nbytes, i), timings, label=name, **style)
        forecast = [1e3 * factor * point["predicted_s"][name] for point in points]
        time_axis.plot(nbytes, forecast, "--", color=style["color"], lw=1)
        if name != RING:
            draw_gain(gain_axis, points, name, i)
    time_axis.set(title="Time; on top: the fastest; dashed: predicted", ylabel=unit(result))
    time_axis.set_yscale("log")
    time_axis.set_ylim(top=10 * time_axis.get_ylim()[1])  # room for the names
    name_fastest(time_axis, points)
    medians = [{name: p["measured"][name]["median_s"] for name in names} for p in points]
    forecasts = [p["predicted_s"] for p in points if min(p["predicted_s"].values()) > 0]
    gains = [times[RING] / times[name] for times in medians + forecasts for name in names]
    title = "Gain over the flat ring; dashed: predicted"
    gain_axis.set(title=title, ylabel="times as fast as the flat ring", ylim=(0, 1.2 * max(gains)))
    draw_limit(gain_axis, points)
    for axis in (time_axis, gain_axis):
        axis.set_xscale("log", base=2)
        axis.set_xticks(nbytes, [kit.number_of_bytes(n) for n in nbytes], rotation=45)
        axis.set_xlabel("vector of each rank, float32 (points side by side)")
    return axes.finish(figure, time_axis, gain_axis)


def draw_limit(axis, points: list[dict]) -> None:
    """The flat ring over the time of the least bytes that any allreduce sends between nodes."""
    if min(point["least_s"] for point in points) <= 0:  # the links are not known
        return
    nbytes = [point["bytes"] for point in points]
    limit = [p["measured"][RING]["median_s"] / p["least_s"] for p in points]
    axis.plot(nbytes, limit, color="grey", lw=3, alpha=0.5)
    shown = [at for at in zip(nbytes, limit) if at[1] < axis.get_ylim()[1]]
    if shown:
        text = "grey: upper bound,\nfrom the least bytes\nbetween nodes"
        axis.annotate(text, shown[0], (7, 3), textcoords="offset points")


def name_fastest(axis, points: list[dict]) -> None:
    """Shade the sizes at which one algorithm is the fastest beyond the noise; name it on top."""
    for name, found in stretches(points):
        low, high = found[0]["bytes"] / 2**HALF_STEP, found[-1]["bytes"] * 2**HALF_STEP
        colour = axes.style(SHOWN[name])["color"] if name in SHOWN else "grey"
        axis.axvspan(low, high, color=colour, alpha=0.15, lw=0)
        text = (name or "a tie").replace("-", "-\n").replace(" ", "\n")
        where = {"xycoords": ("data", "axes fraction"), "ha": "center", "va": "top"}
        axis.annotate(text, ((low * high) ** 0.5, 0.98), weight="bold", **where)


def stretches(points: list[dict]) -> list[tuple[str | None, list[dict]]]:
    """[(the fastest of all, sizes in a row at which it is that)]; None: two are within noise."""

    def first(point: dict) -> str | None:
        found = fastest([{"timing": timing} for timing in point["measured"].values()])
        return None if found is None else list(point["measured"])[found]

    return [(name, list(found)) for name, found in groupby(points, first)]


def draw_gain(axis, points: list[dict], name: str, number: int) -> None:
    """Medians' ratio; bars from the ratio of unlike ends of both spreads."""
    nbytes, style = [point["bytes"] for point in points], axes.style(SHOWN[name])
    pairs = [(point["measured"][RING], point["measured"][name]) for point in points]
    gains = [ratio(ring, other) for ring, other in pairs]
    axes.points(axis, shifted(nbytes, number), gains, label=name, **style)
    if min(point["predicted_s"][name] for point in points) > 0:
        forecast = [p["predicted_s"][RING] / p["predicted_s"][name] for p in points]
        axis.plot(nbytes, forecast, "--", color=style["color"], lw=1)


def draw_ranks_per_node(result: dict):
    """One panel for each size."""
    by_k, factor = result["by_k"], scale(result)
    title = "Lesson 10, appendix: how many ranks should a hierarchy treat as a node?"
    figure, panels = axes.frame(f"{title} {place(result)}", 1, len(by_k[0]["bytes"]))
    for i, (axis, nbytes) in enumerate(zip(panels, by_k[0]["bytes"])):
        for number, name in enumerate(SPLITS, 1):
            rows = [row for row in by_k if row["algorithm"] == name]
            k, style = [row["k"] for row in rows], axes.style(number)
            timings = [scaled(row["measured"][i], factor) for row in rows]
            axes.measured(axis, shifted(k, number), timings, label=name, **style)
            forecast = [1e3 * factor * row["predicted_s"][i] for row in rows]
            axis.plot(k, forecast, "--", color=style["color"], lw=1)
        draw_without_nodes(axis, result["points"], nbytes, factor)
        title = f"Vectors of {kit.number_of_bytes(nbytes)}; dashed: predicted\n"
        title += winner(by_k, i, at(result["points"], {"bytes": nbytes}, "measured") or {})
        label = f"k: ranks that are treated as a node (a node has {len(result['nodes'][0])})\n"
        label += f"k = 1: no hierarchy; k = {result['ranks']}: all ranks are one node"
        axis.set(title=title, xlabel=label, ylabel=unit(result), xscale="log", ylim=(0, None))
        axis.set_xticks(k, k)
        axis.set_xticks([], minor=True)
        axis.set_ylim(0, 1.35 * axis.get_ylim()[1])  # room for the legend
    return axes.finish(figure, *panels)


def draw_without_nodes(axis, points: list[dict], nbytes: int, factor: float) -> None:
    """Lines across: what knows no nodes, as measured for the other figure."""
    for name in (RING, DOUBLING):
        for point in (point for point in points if point["bytes"] == nbytes):
            at_ms = 1e3 * factor * point["measured"][name]["median_s"]
            colour = axes.style(SHOWN[name])["color"]
            axis.axhline(at_ms, color=colour, lw=1.5, ls=":", label=f"{name} (no hierarchy)")


def winner(by_k: list[dict], i: int, measured: dict) -> str:
    """The fastest for size number i in words, with all whose spreads meet its own.

    measured: {name: timing} of this size, also of what knows no nodes
    """
    rows = [row | {"timing": row["measured"][i]} for row in by_k]
    flat = [name for name in (RING, DOUBLING) if name in measured]
    rows += [{"algorithm": name, "timing": measured[name], "k": None} for name in flat]
    first = level(rows, "timing")
    names = {row["algorithm"] for row in first}
    if len(names) > 1:
        return f"fastest: not clear, {len(first)} within the noise"
    if None in (k := [row["k"] for row in first]):
        return f"fastest: {names.pop()}, without a hierarchy"
    return f"fastest: {names.pop()}, k = {' or '.join(map(str, k))}"


def draw_bus(result: dict):
    """The longest vector: a bus like the paper's, and one that is not slowed down."""
    factor = 1e3 * scale(result)
    free, real = result["free"][-1], result["points"][-1]
    size = kit.number_of_bytes(free["bytes"])
    title = f"Lesson 10: what the bus inside a node costs. {place(result)}, {size} summed"
    figure, panels = axes.frame(title, 1, 2, (axes.WIDTH_INCHES, 3.9))
    rate = result["inside"].replace("gbit", " Gbit/s")
    heads = f"Bus slowed down to {rate}", "Bus not slowed down: this machine's memory"
    for axis, point, head in zip(panels, (real, free), heads):
        rows = [
            {
                "name": name,
                "timing": point["measured"][name],
                "predicted_s": point["predicted_s"][name],
                "note": f"{factor * point['measured'][name]['median_s']:.3g} ms",
            }
            for name in free["measured"]
        ]
        winner = fastest(rows)
        if winner is not None:
            rows[winner]["note"] += ", fastest"
        axes.bars(axis, rows, factor, highlight=winner)
        axis.set(title=head, xlabel=unit(result))
    panels[1].grid(alpha=0.3)
    longest = max(axis.get_xlim()[1] for axis in panels)
    for axis in panels:
        axis.set_xlim(0, longest)
    return axes.finish(figure, panels[0])


def fastest(rows: list[dict]) -> int | None:
    """The number of the row that is faster than all others beyond the noise; None without one."""
    best, second = sorted(range(len(rows)), key=lambda i: rows[i]["timing"]["median_s"])[:2]
    return None if overlap(rows[best]["timing"], rows[second]["timing"]) else best
