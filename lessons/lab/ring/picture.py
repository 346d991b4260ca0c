"""The figure of lesson 01: time and bus bandwidth against bytes, a column for each place."""

import math
import textwrap

import kit
from kit import axes
from lab.ring.yours import OWN, RING, SHARED, TREE
from refgf.predict.fit import bus_bandwidth

NAMES = {
    RING: "ring",
    OWN: "MPI's own Allreduce",
    SHARED: "shared memory, no messages",
    TREE: "tree",
}
TITLE_COLUMNS = 48
PREDICTED = "ring, predicted from alpha and beta"
LEGEND_INCHES, LEGEND_COLUMNS = 0.35, 4


def draw(result: dict):
    curves = result["curves"]
    title = "Lesson 01: a ring allreduce. Where does latency dominate, where bandwidth?"
    size = (axes.WIDTH_INCHES, 4.5 + 3.5 * (len(curves) > 1))
    rows, columns = (2, 2) if len(curves) > 1 else (1, 2)
    figure, panels = axes.frame(title, rows, columns, size)
    upper, lower = panels[: len(curves)], panels[len(curves) :]
    for (place, curve), time, bandwidth in zip(curves.items(), upper, lower):
        ranks = f"{curve['ranks']} rank{'s' * (curve['ranks'] > 1)}"
        where = textwrap.fill(f"{ranks}, {place}", TITLE_COLUMNS)
        time.set_title(where, fontsize=axes.TEXT_POINTS)
        draw_times(time, curve)
        draw_bandwidth(bandwidth, curve)
    for row in (upper, lower):
        limits = [axis.get_ylim() for axis in row if axis.has_data()] or [(0.1, 1)]
        for axis in row:  # one scale for both places
            axis.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
            axis.set_xscale("log", base=2)
            nbytes = [point["bytes"] for point in list(curves.values())[0]["points"]][::2]
            axis.set_xticks(nbytes, map(kit.number_of_bytes, nbytes))
            axis.set_xlabel("each rank's vector")
            axis.grid(alpha=0.3)
    axes.finish(figure)
    label_series(figure, panels)
    return figure


def label_series(figure, panels) -> None:
    """One legend for all panels, above them, where it hides no data."""
    line, shown = LEGEND_INCHES / figure.get_figheight(), {}
    for axis in panels:
        handles, labels = axes.in_order(axis)
        shown |= dict(zip(labels, handles))
    rows = 1 + 0.6 * (len(shown) > LEGEND_COLUMNS)
    figure.subplots_adjust(top=figure.subplotpars.top - rows * line)
    place = {"loc": "upper center", "bbox_to_anchor": (0.5, 1 - line), "ncols": LEGEND_COLUMNS}
    figure.legend(shown.values(), shown, fontsize=axes.TEXT_POINTS, **place)


def series(curve: dict) -> list[tuple]:
    """[(name, its style, bytes, timings)] of what was measured."""
    found = []
    for i, (name, title) in enumerate(NAMES.items()):
        points = [point for point in curve["points"] if name in point["measured"]]
        nbytes = [point["bytes"] for point in points]
        timings = [point["measured"][name] for point in points]
        if points:
            found.append((title, axes.style(i) | {"ms": 5}, nbytes, timings))
    return found


def draw_times(axis, curve: dict) -> None:
    for title, style, nbytes, timings in series(curve):
        axes.measured(axis, nbytes, timings, label=title, **style)
    if curve["ranks"] > 1:
        nbytes = [point["bytes"] for point in curve["points"]]
        predicted = [1e3 * point["predicted_s"] for point in curve["points"]]
        axis.plot(nbytes, predicted, "--", color=axes.PREDICTED, label=PREDICTED)
    axis.set(yscale="log", ylabel="time of the sum, ms")
    axis.set_ylim(bottom=axis.get_ylim()[0] / 6)  # room for two labels
    label_fastest(axis, curve)


def label_fastest(axis, curve: dict) -> None:
    """Name the fastest at the shortest and at the longest vector, below all points.

    It is level with the next ones as long as the spreads of all these overlap.
    """
    for index, height, side in ((0, 0.12, "left"), (-1, 0.03, "right")):
        everyone = [
            (timings[index], title.split(",")[0], style["color"], nbytes[index])
            for title, style, nbytes, timings in series(curve)
        ]
        everyone.sort(key=lambda each: each[0]["median_s"])
        _, _, colour, x = everyone[0]
        level, least_high_s = [], math.inf
        for timing, title, *_ in everyone:
            least_high_s = min(least_high_s, timing["high_s"])
            if timing["low_s"] > least_high_s:
                break
            level.append(title)
        if len(everyone) > 1:
            at = {"xy": (x, height), "xycoords": ("data", "axes fraction")}
            colour = colour if len(level) == 1 else "black"
            text = {"ha": side, "color": colour, "fontsize": axes.TEXT_POINTS}
            axis.annotate(fastest(x, level, len(everyone)), **text, **at)


def fastest(nbytes: int, level: list[str], count: int) -> str:
    """fastest at 1 KiB: ring and shared memory (level)"""
    if len(level) == count > 2:  # their names would not fit
        return f"all level at {kit.number_of_bytes(nbytes)}"
    names = " and ".join(level).replace(" Allreduce", "") + " (level)" * (len(level) > 1)
    return f"fastest at {kit.number_of_bytes(nbytes)}: {names}"


def draw_bandwidth(axis, curve: dict) -> None:
    ranks = curve["ranks"]
    axis.set(yscale="log", ylabel="bus bandwidth, GB/s")
    if ranks == 1:
        axis.set_xlim(curve["points"][0]["bytes"], curve["points"][-1]["bytes"])
        axis.annotate("one rank sends nothing", (0.5, 0.5), xycoords="axes fraction", ha="center")
        return

    def gigabytes(nbytes, seconds):
        return [1e-9 * bus_bandwidth(ranks, n, t) for n, t in zip(nbytes, seconds)]

    for title, style, nbytes, timings in series(curve):
        middle, low, high = (
            gigabytes(nbytes, [t[key] for t in timings]) for key in ("median_s", "high_s", "low_s")
        )
        spread = [[m - x for m, x in zip(middle, low)], [x - m for m, x in zip(middle, high)]]
        axis.errorbar(nbytes, middle, spread, ls="none", capsize=3, label=title, **style)
    nbytes = [point["bytes"] for point in curve["points"]]
    predicted = gigabytes(nbytes, [point["predicted_s"] for point in curve["points"]])
    axis.plot(nbytes, predicted, "--", color=axes.PREDICTED, label=PREDICTED)
