"""What the lessons' figures share: measured points with their spread, predictions, the frame.

    figure, panels = axes.frame("Lesson 03: ...", 1, 3, size=(19, 5.4))
    axes.measured(panel, x, timings, "o", color="tab:red", label="ring")
    axes.points(panel, x, differences, **axes.style(0))
    axes.against_theta(panel, rows, {...}, compute_s, "no exchange", notes)
    axes.finish(figure, *panels)
    axes.sign(figure, "8 ranks, shared memory", "the processor's name")

Timings are as in the JSON: dicts of seconds.
"""

import math
import textwrap

import kit

MS = 1e3


# Okabe and Ito's colours, which colour-blind readers can tell apart, each with a marker of its own
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
PREDICTED = "#000000"
YOURS = 4  # the series of a student's own code
TEXT_POINTS, LEADING, WIDTH_INCHES = 9, 12, 10
COLUMNS, NOTES, SIGNED = 132, 3, 2  # of text across a figure; lines of its caption and signature
SHORT = 0.3  # of the longest bar
MEASURED, COMPUTED = "Measured on", "Computed, not measured. The lesson ran on"  # begin a signature
UNTIMED = "untimed"


def style(number: int) -> dict:
    """Colour and marker of series number 0, 1, ... At most five series in a panel."""
    return {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)]}


def frame(title: str, rows: int, columns: int, size: tuple[float, float] = (WIDTH_INCHES, 5)):
    """A figure with this title. -> (figure, flat list of its axes)"""
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": TEXT_POINTS + 1, "legend.fontsize": TEXT_POINTS})
    figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False)
    figure.suptitle(title)
    return figure, list(axes.flat)


def finish(figure, *with_legend, computed=False, timed=True, below: str = ""):
    """Add legend and grid to these axes, and a caption above the signature.

    computed: nothing is measured. timed: times are shown, which other programs lengthen.
    below: the caption, at most NOTES lines. What is the same in all figures, such as what an error
    bar is, stands in lessons/README.md.
    """
    for axis in with_legend:
        axis.legend(*in_order(axis), fontsize=TEXT_POINTS)
        axis.grid(alpha=0.3)
    for axis in figure.axes:
        plain_powers(axis.xaxis)
        plain_powers(axis.yaxis)
    line = 1 / (72 * figure.get_figheight())  # a point
    lines = textwrap.wrap(below, COLUMNS)
    foot = 4 + LEADING * SIGNED
    style = {"fontsize": TEXT_POINTS, "va": "bottom", "label": COMPUTED if computed else MEASURED}
    style |= {} if timed and not computed else {"gid": UNTIMED}
    figure.text(0.01, foot * line, "\n".join(lines), **style)
    figure.tight_layout(rect=(0, (foot + LEADING * len(lines)) * line, 1, 1))
    return figure


def without_notes(figure) -> None:
    """Remove caption and signature, for a slide or a paper that has its own."""
    for text in [text for text in figure.texts if text.get_label() in (MEASURED, COMPUTED)]:
        text.remove()
    figure.tight_layout()


def sign(figure, *parts: str) -> None:
    """The figure's last lines: ranks, links and machine of the run. At most SIGNED lines."""
    label = COMPUTED if is_computed(figure) else MEASURED
    text = f"{label} {'; '.join(parts)}"
    lines = textwrap.wrap(text, COLUMNS, max_lines=SIGNED, placeholder=" ...")
    top = (2 + LEADING * SIGNED) / (72 * figure.get_figheight())
    figure.text(0.01, top, "\n".join(lines), fontsize=TEXT_POINTS, va="top", label=label)


def is_computed(figure) -> bool:
    """Is nothing in it measured?"""
    return any(text.get_label() == COMPUTED for text in figure.texts)


def is_untimed(figure) -> bool:
    """Does it show no time that was measured?"""
    return any(text.get_gid() == UNTIMED for text in figure.texts)


def warn(figure, caveat: str, untimed_too: bool) -> None:
    """A sentence across the figure: why it shows nothing to rely on; "" for nothing.

    untimed_too: also where no time is. A busy machine computes and learns as a quiet one does.
    """
    if is_untimed(figure) and not untimed_too:
        return
    style = {"rotation": 20, "ha": "center", "va": "center", "color": "#D55E00", "alpha": 0.5}
    figure.text(0.5, 0.5, textwrap.fill(caveat, 44), fontsize=20, **style)


def plain_powers(axis) -> None:
    """Numbers at the ticks of a logarithmic x or y axis: an exponent would be too small."""
    from matplotlib.ticker import LogFormatterMathtext

    class Plain(LogFormatterMathtext):
        def __call__(self, x, pos=None) -> str:
            return super().__call__(x, pos) and power(x, axis.get_transform().base)

    if isinstance(axis.get_major_formatter(), LogFormatterMathtext):
        axis.set_major_formatter(Plain(axis.get_transform().base))
    if isinstance(axis.get_minor_formatter(), LogFormatterMathtext):
        axis.set_minor_formatter(Plain(axis.get_transform().base))


def power(x: float, base: float) -> str:
    """0.01, 100, 100,000, 1 M and 10 G; of base 2: 512, 2^14."""
    if base == 2 and x > 1000:
        return f"2^{math.log2(x):.0f}"
    for unit, letter in ((1e9, " G"), (1e6, " M")):
        if x >= unit:
            return f"{x / unit:,.10g}{letter}"
    return f"{x:,.10g}"


def in_order(axis) -> tuple[list, list]:
    """(handles, labels) of an axis: what is measured, then predictions, then straight lines."""

    def place(entry: tuple) -> int:
        handle, label = entry
        transform = getattr(handle, "get_transform", lambda: axis.transData)()
        if not all(transform.contains_branch_seperately(axis.transData)):
            return 2  # axhline or axvline
        return int("predicted" in label)

    entries = sorted(zip(*axis.get_legend_handles_labels()), key=place)
    return [handle for handle, _ in entries], [label for _, label in entries]


def clock(dilation: float) -> str:
    """Whose milliseconds an axis shows, given how many times slower this machine is."""
    if dilation == 1:
        return "ms of this machine"
    return f"ms in the cluster's time\n(measured {dilation:.4g} times slower)"


def measured(axis, x, timings, marker: str, **style) -> None:
    """Draw a point at each median and a bar from the lowest to the highest repeat, in ms."""
    points(axis, x, timings, MS, marker=marker, **style)


def points(axis, at, values, scale: float = 1.0, across: bool = False, **style) -> None:
    """Draw a point at each median, and a bar from the lowest to the highest.

    at: the other coordinates. values: timings, times `scale`; across: on the x axis
    """
    middle = [scale * value["median_s"] for value in values]
    below = [scale * (value["median_s"] - value["low_s"]) for value in values]
    above = [scale * (value["high_s"] - value["median_s"]) for value in values]
    style = {"ls": "none", "capsize": 3} | style
    if across:
        axis.errorbar(middle, at, xerr=[below, above], **style)
    else:
        axis.errorbar(at, middle, [below, above], **style)


def against_theta(
    axis, rows, kinds: dict, compute_s: float, compute_label: str, notes: list[str]
) -> None:
    """Draw the time of a step against theta, measured and predicted.

    kinds      {key of a row: (name, colour)}
    compute_s  a horizontal line at this time, with the label `compute_label`
    notes      text at the bottom, one for each row
    """
    labels = [kit.number_of_bytes(float(row["theta"])) for row in rows]
    for key, (name, colour) in kinds.items():
        measured(
            axis, labels, [row[key] for row in rows], "o", color=colour, label=f"{name}, measured"
        )
        axis.plot(
            labels,
            [MS * row["predicted"][key] for row in rows],
            "--",
            color=colour,
            label=f"{name}, predicted",
        )
    for x, note in enumerate(notes):
        axis.annotate(
            note, (x, 0.02), xycoords=("data", "axes fraction"), ha="center", fontsize=TEXT_POINTS
        )
    axis.axhline(MS * compute_s, color="grey", lw=1, label=compute_label)
    axis.set(ylabel=f"time of a step, {clock(1)}", ylim=(0, None))


def bars(axis, rows: list[dict], scale: float, highlight: int | None = None) -> None:
    """Draw horizontal bars of timings, first row on top, and a prediction through each.

    rows   {"name", "timing", "predicted_s", "note"}; predicted_s may be None, note is written into
           the bar, or behind a short one; where "part_s" is there, into the last part of the bar,
           which is drawn paler; "computed": from other rows, so hatched and without a spread
    scale  from seconds to what the axis shows
    highlight  the row that is drawn in a stronger colour: the winner
    """
    longest = scale * max((row["timing"]["median_s"] for row in rows), default=0.0)
    for y, row in enumerate(rows):
        timing, colour = row["timing"], COLOURS[0 if y == highlight else 5]
        middle, low, high = (scale * timing[key] for key in ("median_s", "low_s", "high_s"))
        spread = [[middle - low], [high - middle]]
        look = {"xerr": spread, "capsize": 3}
        if row.get("computed"):
            look = {"hatch": "//", "edgecolor": "white"}
        axis.barh(y, middle, color=colour, height=0.7, **look)
        text = {"color": "white" if y == highlight else "black", "va": "center"}
        part = scale * row.get("part_s", timing["median_s"])
        if part < middle:
            axis.barh(y, part, left=middle - part, color="white", alpha=0.6, height=0.7)
            text["color"] = "black"
        at, up = (max(0, middle - part), y), 0
        if middle < SHORT * longest:  # the text would leave the bar
            at = scale * max(timing["high_s"], row["predicted_s"] or 0.0), y
            text["color"] = "black"
        elif part < middle:
            up = 18  # past the prediction, which may lie near the bar's end
        else:  # the text hides a vertical line behind it
            text["bbox"] = {"facecolor": colour, "edgecolor": "none", "pad": 1}
        axis.annotate(row["note"], at, (8, up), textcoords="offset points", **text)
        if row["predicted_s"] is not None:
            label = None if axis.get_legend_handles_labels()[1] else "predicted"
            at = scale * row["predicted_s"]
            axis.plot(at, y, "D", color=PREDICTED, mfc="white", ms=7, label=label)
    axis.set_yticks(range(len(rows)), [row["name"] for row in rows])
    axis.set(ylim=(len(rows) - 0.5, -0.5), xlim=(0, None))
