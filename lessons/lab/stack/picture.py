"""Pictures of lesson 07: the bars of each network, efficiency against nodes, time to accuracy."""

from kit import axes
from kit.images import NETWORKS
from kit.trials import mean_and_half
from lab.stack.bars import FUSED, NATIVE, TOO_MUCH, gains_s, in_all, mark
from lab.stack.learning import BARS, final, first

SERIES = 5  # lines in a panel
ONE_A_NODE = " x 1 ranks"  # in the words of a place


def draw(result: dict) -> dict:
    """{"": the bars on the most ranks, "nodes": ..., "learning": ...}"""
    places = [with_place(here, title) for title, here in result["places"].items()]
    groups: dict[tuple, list] = {}
    for here in sorted(places, key=lambda here: here["ranks"]):
        groups.setdefault((here["network"], here["like"]), []).append(here)
    figures = {"": draw_bars([group[-1] for group in groups.values()])}
    if "time_s" in (result["learning"] or {}):  # results of before 2026-11-23 lack it
        figures["learning"] = draw_learning(result)
    alone = [[here for here in group if ONE_A_NODE in here["place"]] for group in groups.values()]
    most = max(alone, key=len)
    if len(most) > 1:
        figures["nodes"] = draw_nodes(most)
    return figures


def with_place(here: dict, title: str) -> dict:
    """The title of earlier results holds the place: "AlexNet; emulated cluster, 4 nodes ..."."""
    return {"place": title.partition("; ")[2]} | here


def draw_bars(places: list[dict]):
    title = "Lesson 07: each technique is one argument; what it does to the time of a step"
    size = (axes.WIDTH_INCHES, 1.0 + 3.8 * len(places))
    figure, panels = axes.frame(title, len(places), 1, size)
    for axis, here in zip(panels, places):
        alone_s, k = here["alone"]["median_s"], here["dilation"]
        bars = []
        for row, gain_s in zip(here["rows"], gains_s(here["rows"])):
            efficiency = 100 * alone_s / row["step"]["median_s"]
            gain = "" if gain_s is None else f",  gain {axes.MS * gain_s / k:.1f} ms"
            bars.append(
                {
                    "name": row["name"] + mark(row),
                    "timing": row["step"],
                    "predicted_s": row["predicted_s"],
                    "note": f"{efficiency:.0f} %{gain}",
                }
            )
        best = min(range(len(bars)), key=lambda i: bars[i]["timing"]["median_s"])
        axes.bars(axis, bars, axes.MS / k, highlight=best)
        axis.axvline(axes.MS / k * alone_s, color="black", ls=":", label="exchange off (100 %)")
        network = f"{NETWORKS[here['network']]}, {here['elements'] / 1e6:.1f} million gradients"
        faster = f"all techniques together: x {in_all(here['rows'])[2]:.3g}"
        title = f"{network}, like {here['like']}; {faster}\n{here['place']}"
        axis.set(title=title, xlabel=below(here))
    return axes.finish(figure, *panels)


def below(here: dict) -> str:
    """The axis of time: its unit, whose time it is, what the bars' text means, and notes."""
    clock = "ms"
    if here["dilation"] != 1:
        clock = f"ms of the cluster (measured {here['dilation']:.4g} times slower)"
    lines = [f"step, {clock}; in a bar: scaling efficiency; gain over the bar before"]
    if FUSED in [row["name"] for row in here["rows"]]:
        lines.append(f"{FUSED} and + ring: gain over {NATIVE}")
    if here.get("latency_free"):
        lines.append("MPI's own calls run without the link's latency")
    if any(map(mark, here["rows"])):
        lines.append(f"* more than {TOO_MUCH:.0%} of the step is this processor's own time")
    return "\n".join(lines)


def draw_nodes(places: list[dict]):
    """Scaling efficiency against nodes; bars from the range of the steps."""
    figure, (axis,) = axes.frame("Lesson 07: what more nodes cost", 1, 1)
    names = [row["name"] for row in places[-1]["rows"]][-SERIES:]
    for number, name in enumerate(names):
        points = [
            (here["ranks"], here["alone"]["median_s"], row["step"])
            for here in places
            for row in here["rows"]
            if row["name"] == name
        ]
        ranks = [r for r, _, _ in points]
        middle, low, high = (
            [100 * alone_s / step[key] for _, alone_s, step in points]
            for key in ("median_s", "high_s", "low_s")
        )
        spread = [
            [a - b for a, b in zip(middle, low, strict=True)],
            [a - b for a, b in zip(high, middle, strict=True)],
        ]
        axis.errorbar(ranks, middle, spread, capsize=3, label=name, **axes.style(number))
    axis.annotate(name, (ranks[-1], middle[-1]), (0, 8), textcoords="offset points", ha="right")
    axis.axhline(100, color="black", ls=":", label="exchange off")
    here = places[-1]
    title = f"{NETWORKS[here['network']]}, like {here['like']}, one rank a node"
    axis.set(
        title=title,
        xlabel="nodes (on 1 nothing is sent: what is missing to 100 % is the stack's own work)",
    )
    axis.set(ylabel="scaling efficiency, %", xticks=[here["ranks"] for here in places])
    axis.set(ylim=(0, 115))
    return axes.finish(figure, axis)


def draw_learning(result: dict):
    """Accuracy against time: mean of the trainings and its 95 % interval."""
    learning = result["learning"]
    how = "steps x step, composed" if learning["composed"] else "steps x step"
    figure, (axis,) = axes.frame("Lesson 07: time to an accuracy", 1, 1)
    for number, name in enumerate(BARS):
        style = axes.style(number)
        epochs = zip(*learning["runs"][name], strict=True)
        found = [mean_and_half([final([row]) for row in rows]) for rows in epochs]
        means, halves = [mean for mean, _ in found], [half or 0.0 for _, half in found]
        axis.errorbar(learning["time_s"][name], means, halves, capsize=3, label=name, **style)
    axis.axhline(learning["wanted"], color="grey", ls=":", label=f"{learning['wanted']:g} %")
    runs, ranks = len(learning["runs"]["dense"]), learning.get("ranks", result["ranks"])
    title = f"Small network on {ranks} ranks, {runs} runs each (mean, 95 % interval)"
    axis.set(
        title=f"{title}\n{first(learning)}",
        xlabel=f"seconds of the cluster ({how})" if learning["composed"] else "seconds",
        ylabel="held-out images right, %",
    )
    return axes.finish(figure, axis)
