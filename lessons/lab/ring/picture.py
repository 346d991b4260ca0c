"""The figure of lesson 01: time against bytes, a panel for each place."""

import math
import re
import textwrap

import kit
from kit import axes
from lab.ring.yours import NAIVE, OWN, RING, SHARED, TREE

NAMES = {
    RING: "ring",
    OWN: "MPI's own Allreduce",
    SHARED: "shared memory, no messages",
    TREE: "tree",
    NAIVE: "rank 0 sums for all (naive)",
}
TITLE_COLUMNS = 48
PREDICTED = "ring, predicted from alpha and beta"
EQUAL = "predicted ring: latency decides left of it, bytes right"
LEGEND_INCHES, LEGEND_COLUMNS = 0.35, 3
LABELS = 0.17  # of a panel, at its foot: room for two labels
MUCH = 0.1  # of the ring's time: what additions may take unsaid


def draw(result: dict):
    curves = result["curves"]
    title = "Lesson 01: a ring allreduce. Where does latency decide, where do bytes?"
    figure, panels = axes.frame(title, 1, len(curves), (axes.WIDTH_INCHES, 5.2))
    for (place, curve), axis in zip(curves.items(), panels):
        ranks = f"{curve['ranks']} rank{'s' * (curve['ranks'] > 1)}"
        where = textwrap.fill(f"{ranks}, {place}", TITLE_COLUMNS)
        axis.set_title(where, fontsize=axes.TEXT_POINTS)
        draw_times(axis, curve)
    limits = [axis.get_ylim() for axis in panels]
    for axis in panels:  # one scale for both places
        axis.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
        axis.set_xscale("log", base=2)
        nbytes = [point["bytes"] for point in list(curves.values())[0]["points"]][::2]
        axis.set_xticks(nbytes, map(kit.number_of_bytes, nbytes))
        axis.set_xlabel("each rank's vector")
        axis.grid(alpha=0.3)
    axes.finish(figure, below=additions(curves))
    label_series(figure, panels)
    return figure


def additions(curves: dict) -> str:
    """What the prediction leaves out, where it is much: additions next to the longest sum."""
    found = []
    for place, curve in curves.items():
        longest, adding = curve["points"][-1], curve.get("adding")  # before 2026-11-29: none
        ring_s = longest["measured"][RING]["median_s"]
        if adding and adding["median_s"] > MUCH * ring_s:
            both = f"{kit.seconds(adding['median_s'])} of {kit.seconds(ring_s)}"
            where = place.partition(",")[0]
            found.append(f"{both} for {kit.number_of_bytes(longest['bytes'])} ({where})")
    left_out = "The prediction leaves out additions. By themselves they take "
    return f"{left_out}{'; '.join(found)}." if found else ""


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
            found.append((title, axes.style(i + (i == axes.YOURS)) | {"ms": 5}, nbytes, timings))
    return found


def draw_times(axis, curve: dict) -> None:
    for title, style, nbytes, timings in series(curve):
        axes.measured(axis, nbytes, timings, label=title, **style)
    if curve["ranks"] > 1:
        nbytes = [point["bytes"] for point in curve["points"]]
        predicted = [1e3 * point["predicted_s"] for point in curve["points"]]
        axis.plot(nbytes, predicted, "--", color=axes.PREDICTED, label=PREDICTED)
        equal = equal_bytes(curve)
        if nbytes[0] < equal < nbytes[-1]:
            axis.axvline(equal, LABELS, color="grey", ls=":", label=EQUAL)
    axis.set(yscale="log", ylabel="time of the sum, ms")
    axis.set_ylim(bottom=axis.get_ylim()[0] / 6)  # room for two labels
    label_fastest(axis, curve)


def equal_bytes(curve: dict) -> float:
    """Bytes of a vector for which both terms of the formula are equal: p alpha / beta."""
    alpha_s, beta_s = (curve["busy"][key] for key in ("alpha_s", "beta_s_per_byte"))
    return curve["ranks"] * alpha_s / beta_s if beta_s else math.inf


def label_fastest(axis, curve: dict) -> None:
    """Name the fastest at the shortest and at the longest vector, below all points.

    It is level with the next ones as long as the spreads of all these overlap.
    """
    for index, height, side in ((0, 0.12, "left"), (-1, 0.03, "right")):
        everyone = [
            (
                timings[index],
                re.split(", | sums| Allreduce", title)[0],
                style["color"],
                nbytes[index],
            )
            for title, style, nbytes, timings in series(curve)
            if nbytes[index] == curve["points"][index]["bytes"]  # the naive sum stops earlier
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
    """fastest at 1 KiB: ring, level at 1 KiB: ring and tree, 3 level at 1 KiB, all level ..."""
    size, all_or_some = kit.number_of_bytes(nbytes), "all" if len(level) == count else len(level)
    if len(level) > 2:  # their names would not fit
        return f"{all_or_some} level at {size}"
    return f"{'fastest' if len(level) == 1 else 'level'} at {size}: {' and '.join(level)}"
