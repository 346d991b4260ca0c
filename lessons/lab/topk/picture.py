"""The figures of lesson 12: exchanges and bytes, choosing, accuracy."""

from kit import axes
from kit.rows import SPREAD, level, overlap, scaled
from kit.trials import mean_and_half
from lab.topk.choice import ROUNDS
from lab.topk.exchange import label

MB = 1e-6
CORE = "one core"
BEYOND = 1.1  # of a predicted time: what even the shortest repeat exceeds is named
ORDER = {"dense ring": 4, "CSC": 1, "top-k": 2, "HiTopKComm": 3}  # colours; bars have others
APART = {"HiTopKComm": 4, "dense ring": -4}  # points between the names of lines that end close
APART_IN_BAR = 0.2  # of a bar's place: two error bars do not merge
UPPER = "Right: the upper error bar is that of the messages, the lower one that of own work."
LOOKS = {"CSC": 1, "CSC, warm-up": 0, "top-k, same density": 2, "top-k, same bytes": 5, "dense": 4}
CHOOSING = {  # a way to choose: its name here, the colour of what uses it
    "full sort": ("full sort", 0),
    "exact selection": ("exact selection", 6),
    "MSTopK": ("MSTopK (of top-k)", 2),
    "CSC's norms": ("norms (of CSC)", 1),
}


def draw(result: dict) -> dict:
    factor = result["regime"]["dilation"]
    figures = {"": draw_exchange(result, factor), "choice": draw_choice(result, factor)}
    if result["learning"]["differences"]:
        figures["accuracy"] = draw_accuracy(result["learning"])
    return figures


def draw_exchange(result: dict, factor: float):
    """Time of the messages at 10 %, and bytes out of a node: counted, and by the formulas."""
    exchange = result["exchange"]
    g, p = exchange["ranks_per_node"], exchange["nodes"] * exchange["ranks_per_node"]
    title = f"Lesson 12: top-k of {exchange['elements']:,} float32 gradients, ranks a node: {g}"
    figure, (times, traffic) = axes.frame(title, 1, 2, (10, 4.8))
    rows = [
        {
            "name": f"{label(row)}\n{MB * row['between']:,.1f} MB out of a node",
            "timing": row["messages"],
            "predicted_s": row["predicted_s"],
            "note": "",
        }
        for row in exchange["rows"]
        if row["percent"] >= 10.0
    ]
    first, *others = level(rows, "timing")
    fastest = None if others else rows.index(first)
    axes.bars(times, rows, axes.MS / factor, highlight=fastest)
    if fastest is not None:
        behind_s = max(first["timing"]["high_s"], first["predicted_s"] or 0.0)
        spot = behind_s * axes.MS / factor, fastest
        times.annotate("fastest", spot, (10, 0), textcoords="offset points", va="center")
    times.set(title=f"Messages at 10 %, chosen before, {p} ranks", xlabel=axes.clock(factor))
    draw_traffic(traffic, result)
    axes.finish(figure, times, below=beyond(rows))
    traffic.grid(alpha=0.3)
    return figure


def beyond(rows: list[dict]) -> str:
    """The messages whose shortest repeat is far above the prediction; nothing where none is."""
    ratios = {row["name"]: row["timing"]["low_s"] / row["predicted_s"] for row in rows}
    far = [(name.partition("\n")[0], ratio) for name, ratio in ratios.items() if ratio > BEYOND]
    if not far:
        return ""
    said = ", ".join(f"{name} takes {ratio:.2f} times its prediction" for name, ratio in far)
    return f"Left: even the shortest repeat of {said}. The lesson does not measure why."


def draw_traffic(axis, result: dict) -> None:
    """Lines by the formulas for the run's nodes; markers: counted in this run."""
    lines, exchange = result["traffic"], result["exchange"]
    g, percent = lines["ranks_per_node"], lines["percent"]
    ranks = [g * m for m in lines["nodes"]]
    counted = {r["name"]: r for r in exchange["rows"] if r["percent"] in (percent, 100.0)}
    here = exchange["nodes"] * exchange["ranks_per_node"]
    for name, number in ORDER.items():
        style, megabytes = axes.style(number), [MB * x for x in lines["bytes"][name]]
        line = "--" if name == "HiTopKComm" else "-"  # with one rank a node it lies on top-k's
        axis.loglog(ranks, megabytes, line, color=style["color"])
        axis.plot([here], [MB * counted[name]["between"]], ls="none", **style)
        if g == 1 and name in ("top-k", "HiTopKComm"):  # one line
            name = "top-k, HiTopKComm" if name == "top-k" else ""
        name_line(axis, name, ranks[-1], megabytes[-1], style["color"], APART.get(name, 0))
    axis.axvline(lines["first_above"], color="grey", ls=":", lw=1)
    axis.annotate(
        f"from {lines['first_above']}\nranks on\ntop-k sends\nmore than\nthe ring",
        (lines["first_above"], 0.3),
        (6, 0),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
    )
    axis.set(
        title=f"Bytes out of a node at {percent:g} %, by the formulas",
        xlabel="ranks (markers: counted)",
        ylabel="MB in a step",
        xlim=(None, 12 * ranks[-1]),
    )


def name_line(axis, name: str, x: float, y: float, colour: str, up: float = 0) -> None:
    """The name of a line, right of its end, and this many points above it."""
    text = {"color": colour, "fontsize": axes.TEXT_POINTS, "va": "center"}
    axis.annotate(name, (x, y), (8, up), textcoords="offset points", **text)


def draw_choice(result: dict, factor: float):
    """Time to choose against the vector's length; then messages next to own work."""
    figure, (choice, whole) = axes.frame("Lesson 12: choosing takes time", 1, 2, (10, 5.2))
    rows = [row for row in result["choice"] if row["percent"] == 1.0]
    longest = max(rows, key=lambda row: row["n"])["times"]
    place = "a GPU" if "device" in result else CORE
    slower = max("exact selection", "MSTopK", key=lambda name: longest[name]["median_s"])
    for name, (shown, number) in CHOOSING.items():
        style = axes.style(number)
        found = [(row["n"], row["times"][name]) for row in rows if name in row["times"]]
        sizes, timings = zip(*((n, scaled(timing, 1 / factor)) for n, timing in found))
        axes.measured(choice, sizes, timings, style["marker"], color=style["color"])
        middle = [axes.MS * timing["median_s"] for timing in timings]
        choice.plot(sizes, middle, color=style["color"])
        found = choice, shown, sizes[-1], middle[-1], style["color"]
        name_line(*found, up=10 if name in (slower, "full sort") else -2)
    choice.set(
        title=f"Choosing 1 % of n on {place}. With the largest n\n{search_in_words(longest)}",
        xlabel="gradients",
        ylabel=axes.clock(factor),
        xscale="log",
        yscale="log",
        xlim=(None, 60 * max(row["n"] for row in rows)),
        ylim=(None, 3 * choice.get_ylim()[1]),
    )
    choice.grid(alpha=0.3)
    draw_whole(whole, result["exchange"]["rows"], axes.MS / factor)
    title = f"Messages, then own work of {place}"
    if result["exchange"]["ranks_per_node"] > 1:
        title += hitopk_in_words(result["exchange"]["rows"])
    whole.set(title=title, xlabel=axes.clock(factor))
    most = max(rows, key=lambda row: row["n"])
    return axes.finish(figure, whole, below=f"{UPPER} {reads_in_words(most, place)}")


def reads_in_words(row: dict, place: str) -> str:
    """The times of both ways to choose as a number of reads of the gradients in order."""
    reads = {
        name: t["median_s"] * row["bytes_per_s"] / (4 * row["n"])
        for name, t in row["times"].items()
    }
    return (
        f"Left: {place} reads all {row['n']:,} gradients in order "
        f"{reads['MSTopK']:.0f} times in the time of MSTopK, {reads['exact selection']:.0f} times "
        f"in that of exact selection. MSTopK reads in each of up to {ROUNDS} rounds. It was made "
        "for older GPUs; on the one where this code has run, a selection was faster (docs/gpu.md)."
    )


def search_in_words(times: dict) -> str:
    """MSTopK next to exact selection."""
    ratio = times["MSTopK"]["median_s"] / times["exact selection"]["median_s"]
    return f"MSTopK takes {ratio:.3g} x as long as exact selection"


def hitopk_in_words(rows: list[dict]) -> str:
    """At 1 %, HiTopKComm next to top-k, if it loses by more than the noise."""
    at_1 = {row["name"]: row["messages"] for row in rows if row["percent"] == 1.0}
    ratio = at_1["HiTopKComm"]["median_s"] / at_1["top-k"]["median_s"]
    if ratio <= 1 or overlap(at_1["HiTopKComm"], at_1["top-k"]):
        return ""
    return (
        f".\nAt 1 % messages of HiTopKComm take {ratio:.2g} x\n"
        "those of top-k: in a node its sum is dense"
    )


def draw_whole(axis, rows: list[dict], scale: float) -> None:
    """Messages, then own work, as stacked bars with their spreads; the fastest of each density."""
    looks = {
        "messages, chosen before": {"color": axes.COLOURS[5]},
        "own work: choose, pack, add up": {"color": axes.COLOURS[3], "hatch": "//"},
    }
    ends, lows = [], [scale * sum(part["low_s"] for part in parts(row)) for row in rows]
    for y, row in enumerate(rows):
        start = end = 0.0
        for timing, (name, look) in zip(parts(row), looks.items()):
            middle, low, high = (scale * timing[key] for key in SPREAD)
            axis.barh(y, middle, left=start, label=None if y else name, **look)
            at = y - APART_IN_BAR if timing is row["messages"] else y + APART_IN_BAR
            ends_s = dict(zip(SPREAD, (start + middle, start + low, start + high)))
            axes.points(axis, [at], [ends_s], across=True, color="black")
            start, end = start + middle, max(end, start + high)
        ends.append(end)
    for percent in {row["percent"] for row in rows} - {100.0}:
        alike = [y for y, row in enumerate(rows) if row["percent"] == percent]
        end, fastest = min((ends[y], y) for y in alike)
        if all(lows[y] > end for y in alike if y != fastest):
            note, place = f"fastest at {percent:g} %", {"textcoords": "offset points"}
            axis.annotate(note, (end, fastest), (8, 0), va="center", **place)
    axis.set_yticks(range(len(rows)), [label(row) for row in rows])
    axis.set(ylim=(len(rows) + 0.9, -0.5))  # room for the legend


def parts(row: dict) -> tuple[dict, dict]:
    """The timings of the messages, and of own work with MSTopK."""
    return row["messages"], next(iter(row["own"].values()))


def draw_accuracy(learning: dict):
    """Mean accuracy and its 95 % interval against the bytes of the training."""
    count = len(learning["methods"]["CSC"])
    figure, (axis,) = axes.frame("Lesson 12: what the bytes buy", 1, 1)
    for name, values in learning["methods"].items():
        style = axes.style(LOOKS[name])
        mean, half = mean_and_half(values)
        at = 100 * learning["sent"][name]
        axis.errorbar(at, mean, half or 0, capsize=4, ms=8, ls="none", **style)
        text = f"{name}: {learning['percents'].get(name, 100):.3g} %" if name != "dense" else name
        place = {"textcoords": "offset points", "color": style["color"]}
        place["ha"] = "left" if at < 25 else "center"  # a name left of it would cross the axis
        axis.annotate(text, (at, mean - (half or 0)), (0, -16), **place)
    axis.set(
        title=f"Accuracy after {learning['epochs']} epochs, {count} runs of each",
        xlabel="bytes that a rank sends in the whole training, % of the dense ring's\n"
        "(by the formulas; behind a name: density)",
        ylabel="held-out images right, %\n(mean and 95 % interval)",
        xlim=(0, 108),
        ylim=(0, 100),
    )
    axis.grid(alpha=0.3)
    return axes.finish(figure)
