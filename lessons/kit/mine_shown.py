"""What is said and drawn of a student's series (kit/mine.py), as the JSON holds them."""

import math
from collections.abc import Callable

from kit import axes
from kit.rows import overlap
from kit.words import number_of_bytes, number_of_ranks, seconds

UNITS = {"s": seconds, "bytes": number_of_bytes, "%": "{:.3g} %".format, "": "{:.4g}".format}
ALIKE = 1e-6  # relative: losses of sums in another order differ by roundings
ROUNDING = 2.0**-40  # of the numbers added: up to 4096 additions, 2**-52 each, in float64
NOT_SHOWN = "; the oracle rejects it in the case above, which these values do not have"
TIMES = (
    "Times are on the clock of the lesson's own figure, unless a panel predicts another machine's, "
    "but measured in turn by this run's --mine."
)
OURS, YOUR_COLOUR = axes.COLOURS[0], axes.COLOURS[axes.YOURS]


def middle(value) -> float | None:
    """The number of a value; infinity is a text in the JSON."""
    value = value["median_s"] if isinstance(value, dict) else value
    return float(value) if isinstance(value, str) else value


def said(series: dict, busy: bool = False) -> str:
    """your allreduce: 1.02 times ours at 64 MiB, 14 messages, as predicted

    busy: other programs took the cores, and times are not compared
    """
    ours, yours = medians(series)
    unit, note = UNITS[series["unit"]], series.get("note", "")
    start = "WRONG: " * is_wrong(series) + f"your {called(series)} ({lowered(series['title'])}): "
    pairs = list(zip(series["x"], ours, yours))
    if any(isinstance(value, dict) for value in series["yours"]):
        x, our, your = pairs[-1]
        factor = f"{your / our:.3g} times ours" if our else unit(your)
        noise = " (within noise)" * overlap(series["ours"][-1], series["yours"][-1])
        text = "not compared, a busy machine" if busy else f"{factor} at {x}{noise}"
        return f"{start}{text}{note and f', {note}'}"
    differ = different(series)
    if not differ:
        each = ", ".join(f"{x}: {shown(our, unit)}" for x, our, _ in pairs)
        text = f"as ours ({each})" if len(pairs) < 6 else f"as ours at all {len(pairs)} points"
        text = f"{shown(ours[0], unit)}, as ours" if len(set(ours)) == 1 else text
        text += NOT_SHOWN * is_wrong(series)
    else:
        text = f"not as ours at {len(differ)} of {len(pairs)} points, first at {series['xlabel']} "
        text += both(differ[0], unit)
        if len(differ) > 2:
            text += f"; last at {both(differ[-1], unit)}"
    return f"{start}{text}{note and f'; {note}'}"


def is_wrong(series: dict) -> bool:
    return "WRONG" in series["label"]


def called(series: dict) -> str:
    """The functions that made these values; where some are wrong, those alone."""
    return series.get("wrong") or series["functions"]


def lowered(title: str) -> str:
    """Loss -> loss, and LARS, fc6 and C4 as they are."""
    return title if title[1:2].isupper() else title[0].lower() + title[1:]


def shown(value, unit: Callable) -> str:
    return "nothing" if value is None else unit(value)


def both(pair: tuple, unit: Callable) -> str:
    """Two different values at this x, with as many digits as show the difference."""
    x, our, your = pair
    texts = [shown(value, unit) for value in (your, our)]
    if texts[0] == texts[1]:
        texts = [f"{value:.8g}" for value in (your, our)]
    return f"{x}: {texts[0]}, ours {texts[1]}"


def different(series: dict) -> list[tuple]:
    """(x, ours, yours) of the points whose values are not alike."""
    ours, yours = medians(series)
    points = zip(series["x"], ours, yours)
    return [point for point in points if not alike(*point[1:], rounding(series))]


def medians(series: dict) -> list[list]:
    """Ours and yours. A rounding is 0: exposed = end - computing may be -1e-19 s."""
    both = ([middle(value) for value in series[key]] for key in ("ours", "yours"))
    least = rounding(series)
    return [[0.0 if x is not None and abs(x) <= least else x for x in values] for values in both]


def rounding(series: dict) -> float:
    """What a difference of long numbers may be wrong by.

    That is the ROUNDING of the largest number of the series, and of `added`, the sum of what its
    values are made of.
    """
    known = [middle(value) for key in ("ours", "yours") for value in series[key]]
    known = [abs(x) for x in (*known, series.get("added", 0.0)) if x is not None]
    return ROUNDING * max(filter(math.isfinite, known), default=0.0)


def alike(one, other, rounding: float = 0.0) -> bool:
    if one is None or other is None:
        return one is other
    same = one == other or one != one and other != other  # infinite, or both NaN
    return same or abs(one - other) <= max(ALIKE * max(abs(one), abs(other)), rounding)


def draw(result: dict, figures: dict) -> dict:
    """The lesson's figures with the student's values in their panels, and "yours" with a panel for
    each comparison. The title of a figure that shows a rejected function begins with WRONG.
    """
    found = result["mine"]["series"]
    placed = [(figures[each["on"]["figure"]], each) for each in found if "on" in each]
    for figure, series in placed:
        draw_on(figure.axes[series["on"]["panel"]], series)
    title = f"Lesson {result['lesson'][:2]}: your functions next to the project's"
    columns = 2 if len(found) in (2, 4) else min(3, len(found))
    rows = -(-len(found) // columns)
    size = max(axes.WIDTH_INCHES * 0.6, 4.6 * columns), 1 + 3.6 * rows
    figure, panels = axes.frame(title, rows, columns, size)
    for panel, series in zip(panels, found):
        draw_series(panel, series)
    for panel in panels[len(found) :]:
        panel.set_axis_off()
    axes.finish(figure, *panels[: len(found)], below=TIMES)
    figure.set_label(f"{number_of_ranks(result['ranks'])}, {result['place']}")
    placed += [(figure, each) for each in found]
    for figure_of, each in placed:
        if is_wrong(each):
            call_wrong(figure_of)
    return figures | {"yours": figure}


def call_wrong(figure) -> None:
    """Begin its title with WRONG, once."""
    if not figure.get_suptitle().startswith("WRONG"):
        figure.suptitle(f"WRONG, the oracle rejects it. {figure.get_suptitle()}")


def draw_on(axis, series: dict) -> None:
    """The student's values over the project's, in a panel of the lesson's own figure."""
    on, name = series["on"], called(series)
    label = f"your {name}{on.get('of', '')}{', WRONG' * is_wrong(series)}"
    style = {"color": YOUR_COLOUR, "marker": "X", "ms": 8, "ls": "none", "label": label}
    if isinstance(on["y"][0], dict):
        axes.points(axis, on["x"], on["y"], across=on["across"], zorder=5, **style)
    else:
        both = (on["y"], on["x"]) if on["across"] else (on["x"], on["y"])
        axis.plot(*both, zorder=5, **style)
    entries = axes.in_order(axis)
    if not axis.get_legend():  # its figure has one for all panels
        entries = [[entry[-1]] for entry in axis.get_legend_handles_labels()]
    axis.legend(*entries, fontsize=axes.TEXT_POINTS)


def draw_series(axis, series: dict) -> None:
    at = range(len(series["x"]))
    lines = [("ours", "ours", OURS, "o", 9), ("yours", series["label"], YOUR_COLOUR, "x", 7)]
    if "measured" in series:
        lines.insert(0, ("measured", "measured", "#888888", "s", 6))
    every = [middle(value) for key, *_ in lines for value in series[key]]
    values = [value for value in every if value is not None and math.isfinite(value)]
    units = {"s": "seconds", "bytes": "bytes", "%": "percent"}
    scale, unit = 1.0, units.get(series["unit"], series["unit"])
    if series["unit"] == "s" and max(values, default=1.0) < 1:
        scale, unit = axes.MS, "ms"
    for key, label, colour, marker, size in lines:
        style = {"color": colour, "marker": marker, "ms": size, "label": label, "mew": 2}
        style |= {"mfc": "none"} if key == "ours" else {}
        if any(isinstance(value, dict) for value in series[key]):
            axes.points(axis, at, series[key], scale, ls="-", lw=1, **style)
        else:
            found = [scale * (math.nan if x is None else x) for x in map(middle, series[key])]
            axis.plot(at, found, ls="-", lw=1, **style)
    if values and min(values) > 0 and max(values) > 30 * min(values):
        axis.set_yscale("log")
    else:
        low, high = axis.dataLim.intervaly
        axis.set_ylim(min(0.0, 1.08 * low), high + 0.08 * (high - min(0.0, low)) or 1.0)
    apart = -(-len(at) // 8)
    turned = {"rotation": 20, "ha": "right"} if len(at) > 1 else {}
    axis.set_xticks(list(at)[::apart], series["x"][::apart], **turned)
    axis.set(xlabel=series["xlabel"], ylabel=unit)
    axis.set_title(series["title"], fontsize=axes.TEXT_POINTS + 1)
