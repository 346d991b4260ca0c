"""Pictures of lesson 07: the ladder of each network, efficiency against nodes, time to accuracy."""

from kit import axes
from lab.stack_learning import BARS

NETWORKS = {"alexnet": "AlexNet", "resnet50": "ResNet-50"}


def draw(result: dict) -> dict:
    """{"": the ladders on the most ranks, "nodes": ..., "learning": ...}"""
    places = list(result["places"].values())
    chosen = {}
    for here in places:
        key = here["network"], here["like"]
        if key not in chosen or here["ranks"] >= chosen[key]["ranks"]:
            chosen[key] = here
    figures = {"": draw_ladders(list(chosen.values()))}
    if result["learning"]:
        figures["learning"] = draw_learning(result)
    several = {key: [p for p in places if (p["network"], p["like"]) == key] for key in chosen}
    several = {key: found for key, found in several.items() if len(found) > 1}
    if several:
        figures["nodes"] = draw_nodes(max(several.values(), key=len))
    return figures


def draw_ladders(places: list[dict]):
    title = "Lesson 07: each technique is one argument; what it does to the time of a step"
    size = (axes.WIDTH_INCHES, 1.0 + 3.6 * len(places))
    figure, panels = axes.frame(title, len(places), 1, size)
    for axis, here in zip(panels, places):
        alone_s, scale = here["alone"]["median_s"], axes.MS / here["dilation"]
        rows = [
            {
                "name": row["name"],
                "timing": row["step"],
                "predicted_s": row["predicted_s"],
                "note": f"{100 * alone_s / row['step']['median_s']:.0f} %",
            }
            for row in here["rows"]
        ]
        best = min(range(len(rows)), key=lambda i: rows[i]["timing"]["median_s"])
        axes.bars(axis, rows, scale, highlight=best)
        axis.axvline(scale * alone_s, color="black", ls=":", label="nothing is sent (100 %)")
        network = NETWORKS[here["network"]]
        axis.set(
            title=f"{network}, {here['elements'] / 1e6:.1f} million gradients, {here['ranks']} "
            f"ranks, like {here['like']}",
            xlabel=f"time of a step, {clock(here)}; in the bars: scaling efficiency",
        )
    return axes.finish(figure, *panels)


def clock(here: dict) -> str:
    """The unit of times, and whose time it is."""
    if here["dilation"] == 1:
        return "ms"
    return f"ms of the cluster (measured {here['dilation']:.4g} times slower)"


def draw_nodes(places: list[dict]):
    figure, (axis,) = axes.frame("Lesson 07: what more nodes cost", 1, 1)
    places = sorted(places, key=lambda here: here["ranks"])
    names = [row["name"] for row in places[-1]["rows"]][-5:]
    for number, name in enumerate(names):
        points = [
            (here["ranks"], 100 * here["alone"]["median_s"] / row["step"]["median_s"])
            for here in places
            for row in here["rows"]
            if row["name"] == name
        ]
        axis.plot(*zip(*points), label=name, **axes.style(number))
    ranks = [here["ranks"] for here in places]
    network = NETWORKS[places[0]["network"]]
    axis.set(
        title=f"{network}, like {places[0]['like']}", xlabel="ranks", ylabel="scaling efficiency, %"
    )
    axis.set(xticks=ranks, ylim=(0, None))
    return axes.finish(figure, axis)


def draw_learning(result: dict):
    learning = result["learning"]
    how = "steps x step, composed" if learning["composed"] else "steps x step"
    figure, (axis,) = axes.frame("Lesson 07: time to an accuracy", 1, 1)
    for number, name in enumerate(BARS):
        epoch_s, style = learning["epoch_s"][name], axes.style(number)
        epochs = list(zip(*learning["runs"][name]))
        means, low, high = [], [], []
        for rows in epochs:
            right = [100 * (row["accuracy"] or 0) for row in rows]
            means.append(sum(right) / len(right))
            low.append(means[-1] - min(right))
            high.append(max(right) - means[-1])
        at = [epoch_s * (i + 1) for i in range(len(epochs))]
        axis.errorbar(at, means, [low, high], capsize=3, label=name, **style)
    axis.axhline(learning["wanted"], color="grey", ls=":", label=f"{learning['wanted']:g} %")
    axis.set(
        title=f"Small network, {len(learning['runs']['dense'])} runs each (mean and range)",
        xlabel=f"seconds of the cluster ({how})",
        ylabel="held-out images right, %",
    )
    return axes.finish(figure, axis)
