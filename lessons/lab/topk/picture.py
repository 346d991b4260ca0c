"""The figures of lesson 12: exchanges and bytes, choosing, accuracy."""

from kit import axes
from lab.topk.choice import WAYS

MB = 1e-6
ORDER = ("dense ring", "CSC", "top-k", "HiTopKComm")


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
    title = f"Lesson 12: top-k of {exchange['elements']:,} float32 gradients, {g} ranks a node"
    figure, (times, traffic) = axes.frame(title, 1, 2, (10, 4.8))
    rows = [
        {
            "name": f"{row['name']}\n{MB * row['between']:,.1f} MB out of a node",
            "timing": row["messages"],
            "predicted_s": row["predicted_s"],
            "note": "",
        }
        for row in exchange["rows"]
        if row["percent"] >= 10.0
    ]
    fastest = min(range(len(rows)), key=lambda y: rows[y]["timing"]["median_s"])
    axes.bars(times, rows, axes.MS / factor, highlight=fastest)
    winner = rows[fastest]["timing"]["high_s"] * axes.MS / factor
    times.annotate("fastest", (winner, fastest), (10, 0), textcoords="offset points", va="center")
    times.set(title=f"Messages at 10 %, {p} ranks", xlabel=clock(result))
    draw_traffic(traffic, result)
    axes.finish(figure, times)
    traffic.grid(alpha=0.3)
    return figure


def clock(result: dict) -> str:
    """Whose milliseconds."""
    like = result["regime"]["like"]
    return (
        "ms of this machine" if like == "this-machine" else f"ms in the cluster's time, like {like}"
    )


def draw_traffic(axis, result: dict) -> None:
    """Lines by the formulas for the run's nodes; markers: counted in this run."""
    lines, exchange = result["traffic"], result["exchange"]
    g, percent = lines["ranks_per_node"], lines["percent"]
    ranks = [g * m for m in lines["nodes"]]
    counted = {r["name"]: r for r in exchange["rows"] if r["percent"] in (percent, 100.0)}
    here = exchange["nodes"] * exchange["ranks_per_node"]
    for number, name in enumerate(ORDER):
        style, megabytes = axes.style(number), [MB * x for x in lines["bytes"][name]]
        line = "--" if name == "HiTopKComm" else "-"  # with one rank a node it lies on top-k's
        axis.loglog(ranks, megabytes, line, color=style["color"])
        axis.plot([here], [MB * counted[name]["between"]], ls="none", **style)
        name_line(axis, name, ranks[-1], megabytes[-1], style["color"])
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


def name_line(axis, name: str, x: float, y: float, colour: str) -> None:
    """The name of a line, right of its end."""
    text = {"color": colour, "fontsize": axes.TEXT_POINTS, "va": "center"}
    axis.annotate(name, (x, y), (8, 0), textcoords="offset points", **text)


def draw_choice(result: dict, factor: float):
    """Time to choose against the vector's length; then messages next to own work."""
    figure, (choice, whole) = axes.frame("Lesson 12: choosing takes time", 1, 2, (10, 4.8))
    rows = [row for row in result["choice"] if row["percent"] == 1.0]
    for name, number in zip(WAYS, (4, 0, 2, 1)):  # MSTopK and norms as top-k and CSC elsewhere
        style = axes.style(number)
        found = [(row["n"], row["times"][name]) for row in rows if name in row["times"]]
        sizes, timings = zip(*found)
        axes.measured(choice, sizes, timings, style["marker"], color=style["color"])
        choice.plot(sizes, axes.median_ms(timings), color=style["color"])
        name_line(choice, name, sizes[-1], axes.median_ms(timings)[-1], style["color"])
    choice.set(
        title="Choosing 1 % on one core",
        xlabel="gradients",
        ylabel="ms of this machine",
        xscale="log",
        yscale="log",
        xlim=(None, 12 * max(row["n"] for row in rows)),
    )
    choice.grid(alpha=0.3)
    draw_whole(whole, result["exchange"]["rows"], axes.MS / factor)
    whole.set(title="Messages, then own work, at 1 %", xlabel=clock(result))
    return axes.finish(figure, whole)


def draw_whole(axis, rows: list[dict], scale: float) -> None:
    """Messages, then the own work of one core with MSTopK, as stacked bars with their spreads."""
    shown = [row for row in rows if row["percent"] != 10.0]
    kinds = {"messages": {"color": axes.COLOURS[0]}}
    kinds["own work of one core"] = {"color": axes.COLOURS[5], "hatch": "//"}
    for y, row in enumerate(shown):
        start = 0.0
        timings = row["messages"], next(iter(row["own"].values()))
        for timing, (name, look) in zip(timings, kinds.items()):
            middle, low, high = (scale * timing[key] for key in ("median_s", "low_s", "high_s"))
            error, label = [[middle - low], [high - middle]], name if y == 0 else None
            axis.barh(y, middle, left=start, xerr=error, capsize=3, label=label, **look)
            start += middle
    axis.set_yticks(range(len(shown)), [row["name"] for row in shown])
    axis.set(ylim=(len(shown) - 0.5, -0.5))


def draw_accuracy(learning: dict):
    """Paired differences from CSC with their 95 % intervals."""
    count = len(learning["methods"]["CSC"])
    figure, (axis,) = axes.frame("Lesson 12: what is learned", 1, 1, (10, 3.2))
    for y, points in enumerate(learning["differences"].values()):
        middle = points["median_s"]
        spread = [[middle - points["low_s"]], [points["high_s"] - middle]]
        axis.errorbar(middle, y, xerr=spread, capsize=4, **axes.style(y))
    names = list(learning["differences"])
    percents = (learning["percents"].get(name, 100) for name in names)
    labels = [f"{name}:\n{percent:.3g} % sent" for name, percent in zip(names, percents)]
    axis.set_yticks(range(len(names)), labels)
    axis.axvline(0, color="grey", lw=1)
    axis.set(
        title=f"Accuracy after {learning['epochs']} epochs, {count} paired runs",
        xlabel="percentage points above CSC at 10 % (95 % intervals)",
        ylim=(len(names) - 0.5, -0.5),
    )
    axis.grid(alpha=0.3)
    return axes.finish(figure)
