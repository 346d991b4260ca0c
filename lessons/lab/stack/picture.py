"""Pictures of lesson 07: the bars of each network, efficiency against nodes, time to accuracy."""

from kit import axes
from kit.images import NETWORKS
from kit.rows import ratio
from kit.trials import mean_and_half
from lab.stack import elsewhere
from lab.stack.bars import COLOURS, efficiencies, gains_s, in_all, style
from lab.stack.claims import above_100, in_the_figure
from lab.stack.learning import BARS, DENSE, SPARSE, final, first

ONE_A_NODE = " x 1 rank"  # in the words of a place
IN_BARS = "In a bar: scaling efficiency, and what a technique gains over the bar above."
LINKS = (
    " Black mark: computing and links by the formulas alone. Diamond: also TCP's headers, this "
    "processor's own work and the update."
)
ONE_NODE = "One node sends nothing: what is missing to 100 % there is the stack's own work."
AT_ENDS = "An accuracy is reached at the end of an epoch, not where lines cross."


def draw(result: dict) -> dict:
    """{"": the bars of the first network on the most ranks, "resnet50": ..., "learning": ...,

    "nodes": ...}
    """
    places = [with_place(here, title) for title, here in result["places"].items()]
    groups: dict[tuple, list] = {}
    for here in sorted(places, key=lambda here: here["ranks"]):
        groups.setdefault((here["network"], here["like"]), []).append(here)
    figures, seen = {}, set()
    for (network, like), group in groups.items():
        name = f"{network}_{like}" if network in seen else network
        figures[name if seen else ""] = draw_bars(group[-1])
        seen.add(network)
    if "time_s" in (result["learning"] or {}):  # results of before 2026-11-23 lack it
        figures["learning"] = draw_learning(result)
    alone = [[here for here in group if ONE_A_NODE in here["place"]] for group in groups.values()]
    most = max(alone, key=len)
    if len(most) > 1:
        figures["nodes"] = draw_nodes(most)
    return figures


def with_place(here: dict, title: str) -> dict:
    """The title of earlier results holds the place: "AlexNet; emulated cluster, 4 nodes ..."."""
    return {"place": title.partition("; ")[2]} | here | {"rows": in_the_figure(here)}


def draw_bars(here: dict):
    """A bar for each stack of one network."""
    network = f"{NETWORKS[here['network']]}, {here['elements'] / 1e6:.1f} million gradients"
    title = f"Lesson 07: the step of {network}, each technique added\n"
    title += f"{faster_than_the_first(here)}"
    figure, (axis,) = axes.frame(title, 1, 1, (axes.WIDTH_INCHES, 5.2))
    alone_s, k = here["alone"]["median_s"], here["dilation"]
    bars = []
    for row, gain_s in zip(here["rows"], gains_s(here["rows"])):
        note = f"{100 * alone_s / row['step']['median_s']:.0f} %"
        if gain_s is not None:
            note += f",  gain {axes.MS * gain_s / k:.1f} ms"
        bar = {"name": row["name"], "timing": row["step"], "note": note}
        bars.append(bar | {"predicted_s": row["predicted_s"]})
    best = min(range(len(bars)), key=lambda i: bars[i]["timing"]["median_s"])
    axes.bars(axis, bars, axes.MS / k, highlight=best)
    off = "exchange off (100 %): forward, backward, update of all weights"
    axis.axvline(axes.MS / k * alone_s, color="black", ls=":", label=off)
    clock = axes.clock(here["dilation"]).replace("\n", " ")
    links = links_alone(here)
    if links:
        x, y = zip(*links)
        ends = [number - 0.3 for number in y], [number + 0.3 for number in y]
        axis.vlines(x, *ends, colors="black", lw=2, label="predicted for the links alone")
    axis.set_title(f"like {here['like']}: {here['place']}", fontsize=axes.TEXT_POINTS + 1)
    axis.set(xlabel=f"time of a step, {clock}", ylim=(len(bars) + 0.9, -0.5))  # for the legend
    return axes.finish(figure, axis, below=IN_BARS + LINKS * bool(links))


def links_alone(here: dict) -> list[tuple[float, int]]:
    """[(milliseconds by the formulas alone, number of the bar)]; [] but for the two scenes."""
    if (here["network"], here["like"], here["ranks"]) not in elsewhere.OTHER.values():
        return []
    found = elsewhere.predict(here["network"], here["like"], here["ranks"], here["theta"])
    names = [row["name"] for row in here["rows"]]
    return [
        (axes.MS * row["predicted_s"], names.index(row["name"]))
        for row in found["rows"]
        if row["name"] in names
    ]


def faster_than_the_first(here: dict) -> str:
    """The first bar over the last one, in words."""
    rows = here["rows"]
    first, last = rows[0]["name"].strip("+ "), rows[-1]["step"]
    found = ratio(rows[0]["step"], last)
    ends = f"{found['low_s']:.3g} to {found['high_s']:.3g}"
    than = f"{'the ' * (first == 'ring')}{first}"
    return f"the whole stack is {in_all(rows):.3g} x as fast as {than} (repeats: {ends})"


def draw_nodes(places: list[dict]):
    """Scaling efficiency against nodes."""
    figure, (axis,) = axes.frame("Lesson 07: what more nodes cost", 1, 1)
    ranks, off, last = [h["ranks"] for h in places], [h["alone"] for h in places], {}
    for name in [row["name"] for row in places[-1]["rows"] if row["name"] in COLOURS]:
        steps = [row["step"] for here in places for row in here["rows"] if row["name"] == name]
        found = efficiencies(off, steps)
        axes.points(axis, ranks, found, ls="-", label=name, **style(name))
        last[name] = found[-1]["median_s"]
    best = max(last, key=last.get)
    text, spot = f"{best}: {last[best]:.0f} %", (ranks[-1], last[best])
    axis.annotate(text, spot, (0, 12), textcoords="offset points", ha="right", weight="bold")
    axis.axhline(100, color="black", ls=":", label="exchange off, all weights updated")
    here = places[-1]
    control, whose = above_100(places)
    said = f" Above 100 %: not CSC alone; {whose}, which updates all weights, has {control:.0%}."
    axis.set(
        title=f"{NETWORKS[here['network']]}, like {here['like']}, {slower(places)}",
        xlabel="nodes (1: without the emulated cluster)",
        ylabel="scaling efficiency, %",
        xticks=ranks,
        ylim=(0, 115),
    )
    below = ONE_NODE * (ranks[0] == 1) + said * bool(whose)
    return axes.finish(figure, axis, below=below.strip())


def slower(places: list[dict]) -> str:
    """How many times slower than the cluster each place was; one number if they are alike."""
    factors = dict.fromkeys(f"{here['dilation']:.3g}" for here in places)
    return f"measured {', '.join(factors)} times slower"


def draw_learning(result: dict):
    """Accuracy against time: mean of the trainings and its 95 % interval."""
    learning = result["learning"]
    figure, (axis,) = axes.frame("Lesson 07: time to an accuracy", 1, 1)
    for name, bar in BARS.items():
        epochs = zip(*learning["runs"][name], strict=True)
        found = [mean_and_half([final([row]) for row in rows]) for rows in epochs]
        means, halves = [mean for mean, _ in found], [half or 0.0 for _, half in found]
        line = {"capsize": 3, "label": f"{name}: steps of {bar.strip('+ ')}"} | style(bar)
        axis.errorbar(learning["time_s"][name], means, halves, **line)
    axis.axhline(learning["wanted"], color="grey", ls=":", label=f"{learning['wanted']:g} %")
    runs, ranks = len(learning["runs"]["dense"]), learning.get("ranks", result["ranks"])
    often = f"{runs} trainings each, mean and 95 % interval" if runs > 1 else "one training each"
    where = f"Small network, {learning.get('place', f'{ranks} ranks')}; {often}."
    clock = "seconds"
    if learning["composed"]:
        clock = (
            "seconds of the cluster: steps of the small network x time of the full-size one's step"
        )
    axis.set(
        title=first(learning),
        xlabel=clock,
        ylabel="held-out images right, %",
    )
    below = f"{where} {AT_ENDS} {first_epoch(learning['runs'])}"
    return axes.finish(figure, axis, below=below)


def first_epoch(runs: dict) -> str:
    """The difference after the epoch in which both kinds of training send everything."""
    if len(runs[SPARSE][0]) == 1:  # no warm-up
        return ""
    pairs = zip(runs[DENSE], runs[SPARSE], strict=True)
    middle, half = mean_and_half([final(b[:1]) - final(a[:1]) for a, b in pairs])
    if half is None:
        return ""
    noise = "within noise" if abs(middle) <= half else "more than noise"
    return (
        "In epoch 1 both send everything (CSC adds momentum before float16 rounds). After it CSC - "
        "dense is "
        f"{middle:+.1f} points (95 % interval {middle - half:+.1f} to {middle + half:+.1f}): "
        f"{noise}."
    )
