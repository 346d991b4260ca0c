"""The figures of lesson 12: exchanges and bytes, choosing, accuracy."""

from kit import axes
from lab.topk_choice import WAYS
from lab.topk_exchange import label

MB = 1e-6
ORDER = ("dense ring", "CSC", "top-k", "HiTopKComm")


def draw(result: dict) -> dict:
    factor = result["regime"]["dilation"]
    figures = {"": draw_exchange(result, factor), "choice": draw_choice(result, factor)}
    if result["learning"]["differences"]:
        figures["accuracy"] = draw_accuracy(result["learning"])
    return figures


def draw_exchange(result: dict, factor: float):
    """Time of the messages, and bytes out of a node: counted, and by the formulas."""
    figure, (times, traffic) = axes.frame("Lesson 12: messages of top-k", 1, 2, (10, 4.8))
    rows = [
        {
            "name": f"{label(row)}\n{MB * row['between']:,.1f} MB",
            "timing": row["messages"],
            "predicted_s": row["predicted_s"],
            "note": "",
        }
        for row in result["exchange"]["rows"]
    ]
    fastest = min(range(len(rows)), key=lambda y: rows[y]["timing"]["median_s"])
    axes.bars(times, rows, axes.MS / factor, highlight=fastest)
    times.set(title="Messages only, and MB out of a node", xlabel=f"ms {clock(result)}")
    draw_traffic(traffic, result)
    return axes.finish(figure, times, traffic)


def clock(result: dict) -> str:
    """Whose milliseconds."""
    like = result["regime"]["like"]
    return "of this machine" if like == "this-machine" else f"like {like} (emulated)"


def draw_traffic(axis, result: dict) -> None:
    """Lines by the formulas for the run's nodes; markers: counted in this run."""
    lines, exchange = result["traffic"], result["exchange"]
    g, percent = lines["ranks_per_node"], lines["percent"]
    ranks = [g * m for m in lines["nodes"]]
    counted = {r["name"]: r for r in exchange["rows"] if r["percent"] in (percent, 100.0)}
    here = exchange["nodes"] * exchange["ranks_per_node"]
    for number, name in enumerate(ORDER):
        style = axes.style(number)
        line = "--" if name == "HiTopKComm" else "-"  # with one rank a node it lies on top-k's
        axis.loglog(ranks, [MB * x for x in lines["bytes"][name]], line, color=style["color"])
        axis.plot([here], [MB * counted[name]["between"]], ls="none", label=name, **style)
    axis.axvline(lines["first_above"], color="grey", ls=":", lw=1)
    axis.annotate(
        f"{lines['first_above']} ranks",
        (lines["first_above"], 0.02),
        (-4, 0),
        ha="right",
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
    )
    axis.set(
        title=f"Out of a node of {g} at {percent:g} %; markers: counted",
        xlabel="ranks",
        ylabel="MB",
    )


def draw_choice(result: dict, factor: float):
    """Time to choose against the vector's length; then messages next to own work."""
    figure, (choice, whole) = axes.frame("Lesson 12: choosing takes time", 1, 2, (10, 4.8))
    rows = [row for row in result["choice"] if row["percent"] == 1.0]
    for number, name in enumerate(WAYS):
        style = axes.style(number)
        found = [(row["n"], row["times"][name]) for row in rows if name in row["times"]]
        sizes, timings = zip(*found)
        look = {"color": style["color"], "label": name}
        axes.measured(choice, sizes, timings, style["marker"], **look)
        choice.plot(sizes, axes.median_ms(timings), color=style["color"])
    choice.set(
        title="Choosing 1 % on one core",
        xlabel="gradients",
        ylabel="ms of this machine",
        xscale="log",
        yscale="log",
    )
    draw_whole(whole, result["exchange"]["rows"], axes.MS / factor)
    whole.set(title="Messages and own work at 1 %", xlabel=f"ms {clock(result)}")
    return axes.finish(figure, choice, whole)


def draw_whole(axis, rows: list[dict], scale: float) -> None:
    """Messages, then the own work of one core, as stacked bars with their spreads."""
    bars = [
        (label(row, way), row["messages"], own)
        for row in rows
        if row["percent"] != 10.0
        for way, own in row["own"].items()
    ]
    for y, (_, *parts) in enumerate(bars):
        start = 0.0
        for number, (timing, name) in enumerate(zip(parts, ("messages", "own work, one core"))):
            middle, low, high = (scale * timing[key] for key in ("median_s", "low_s", "high_s"))
            axis.barh(
                y,
                middle,
                left=start,
                xerr=[[middle - low], [high - middle]],
                capsize=3,
                color=axes.COLOURS[number],
                label=name if y == 0 else None,
            )
            start += middle
    axis.set_yticks(range(len(bars)), [name.replace(" %, ", " %,\n") for name, *_ in bars])
    axis.set(ylim=(len(bars) - 0.5, -0.5))


def draw_accuracy(learning: dict):
    """Paired differences from CSC with their 95 % intervals."""
    count = len(learning["methods"]["CSC"])
    figure, (axis,) = axes.frame("Lesson 12: what is learned", 1, 1, (10, 3.2))
    for y, points in enumerate(learning["differences"].values()):
        middle = points["median_s"]
        spread = [[middle - points["low_s"]], [points["high_s"] - middle]]
        axis.errorbar(middle, y, xerr=spread, capsize=4, **axes.style(y))
    names = list(learning["differences"])
    axis.set_yticks(range(len(names)), names)
    axis.axvline(0, color="grey", lw=1)
    axis.set(
        title=f"Accuracy minus that of CSC at 10 %, {count} paired runs, 95 % intervals",
        xlabel="percentage points",
        ylim=(len(names) - 0.5, -0.5),
    )
    axis.grid(alpha=0.3)
    return axes.finish(figure)
