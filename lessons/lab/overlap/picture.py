"""Lesson 04's figures: steps with and without overlap, timelines, progress of messages."""

import math

from kit import axes
from kit.rows import overlap
from kit.words import number_of_bytes, seconds
from lab.overlap import gantt
from lab.overlap.here import TITLES
from lab.overlap.steps import KINDS, hidden, name_of

MS, PERCENT = 1e3, 100
DRAWN_RANKS = 2
TITLE = "Lesson 04: overlap. Gradients that are ready are sent while backward goes on"
HIDDEN = (
    "Hidden: the step without overlap minus the step with it. 100 %: the shorter of what the calls "
    "add to the step without overlap, and backward from the first call on."
)
CHARTS = {
    "sequential": "No overlap: one thread computes, and stops for each allreduce",
    "overlapped": "Overlap: a second thread makes the calls while backward goes on",
}


def draw(result: dict) -> dict:
    """{"": steps, "timeline": Gantt charts, "progress": messages}, from the lesson's JSON."""
    factor = result["regime"]["dilation"]
    figures = {
        "": here(result) if "here" in result else steps(result, factor),
        "timeline": timeline(result, factor),
    }
    if result["progress"]:
        figures["progress"] = progress(result["progress"])
    return figures


def whose(result: dict) -> str:
    """The network, the cluster, the ranks and the wire type of the step."""
    ranks = f"{result['ranks']} ranks"
    if "here" in result:
        return f"small AlexNet on {ranks}, float32 on the wire"
    size = "small " if result["options"]["quick"] else ""
    return f"{size}AlexNet like {result['regime']['like']}, {ranks}, float16 on the wire"


def steps(result: dict, factor: float):
    """Bars of the steps in the cluster's time; the share of what can be hidden against theta."""
    figure, (left, right) = axes.frame(f"{TITLE}\n{whose(result)}", 1, 2, (10, 5.8))
    found = result["steps"]
    rows = [row_of("no exchange", found["alone"])]
    rows += [
        row_of(name_of(row, kind), row[kind], row["predicted"][kind])
        for row in found["rows"]
        for kind in KINDS
    ]
    axes.bars(left, rows, MS / factor, mark_shortest(rows, rows[1:]))
    left.set(title="A training step", xlabel=axes.clock(factor))
    left.legend(loc="upper right")
    shares(right, found)
    right.set_title("Communication that overlap hides")
    return axes.finish(figure, right, below=HIDDEN)


def row_of(name: str, timing: dict, predicted_s: float | None = None) -> dict:
    return {"name": name, "timing": timing, "predicted_s": predicted_s, "note": ""}


def mark_shortest(rows: list[dict], among: list[dict]) -> int | None:
    """Write into the shortest of these steps that it is, or that some are level. -> its number."""
    best = min(among, key=lambda row: row["timing"]["median_s"])
    level = [row for row in among if overlap(row["timing"], best["timing"])]
    for row in level:
        row["note"] = "shortest with exchange" if len(level) == 1 else "level"
    return rows.index(best) if len(level) == 1 else None


def shares(axis, found: dict) -> None:
    """Hidden share of what can be hidden: predicted for many thetas, measured for some."""
    predicted = found["curve"] + [row["predicted"] for row in found["rows"]]  # --theta: others
    by_theta = {theta_of(at): at for at in predicted if at["hideable_s"] > 0}
    places = {theta: x for x, theta in enumerate(sorted(by_theta))}
    rows = [row for row in found["rows"] if theta_of(row) in places and row["hideable_s"] > 0]
    for row in rows:
        look = axes.style(0) | {"label": "measured" if row is rows[0] else None}
        at, percent = [places[theta_of(row)]], PERCENT / row["hideable_s"]
        axes.points(axis, at, [hidden(row)], percent, **look)
    curve = [by_theta[theta] for theta in places]
    share = [PERCENT * at["hidden_s"] / at["hideable_s"] for at in curve]
    dashed = {"ls": "--", "color": axes.PREDICTED}  # an errorbar too, for the legend's order
    axis.errorbar(range(len(curve)), share, label="predicted", **dashed)
    axis.set_xticks(range(len(places)), [short(theta) for theta in places], rotation=45)
    axis.set(
        xlabel="theta, bytes (0: a call per gradient; inf: one call)",
        ylabel="hidden, % of what can be hidden",
    )


def theta_of(row: dict) -> float:
    return float(row["theta"])


def short(theta: float) -> str:
    """16384 -> '16 Ki'."""
    if not theta or math.isinf(theta):
        return f"{theta:.0f}"
    return f"{theta / 2**20:.4g} Mi" if theta >= 2**20 else f"{theta / 2**10:.4g} Ki"


def timeline(result: dict, factor: float):
    """The recorded calls of one step, without overlap and with it."""
    charts = {kind: chart[:DRAWN_RANKS] for kind, chart in result["charts"].items()}
    title = "Lesson 04: who does what when in a recorded training step, without and with overlap"
    figure, panels = axes.frame(f"{title}\n{whose(result)}", 2, 1, (axes.WIDTH_INCHES, 7))
    gantt.stacked(panels, charts, CHARTS, MS / factor, axes.clock(factor).replace("\n", " "))
    return axes.finish(figure)


def here(result: dict):
    """Bars of the steps of ranks that compute for real."""
    times = result["here"]
    figure, (panel,) = axes.frame(f"{TITLE}; ranks compute", 1, 1, (axes.WIDTH_INCHES, 4.5))
    rows = [
        row_of(name, times[kind], times["predicted"].get(kind)) for kind, name in TITLES.items()
    ]
    axes.bars(panel, rows, MS, mark_shortest(rows, rows[1:3]))
    panel.set(title=f"A training step: {whose(result)}", xlabel=axes.clock(1))
    handles, _ = panel.get_legend_handles_labels()
    panel.legend(handles, ["predicted, if calls had free cores"])
    return axes.finish(figure)


def progress(found: dict):
    """How far each kind of call got during the sleep."""
    title = "Lesson 04: how far does a message get while the program that sends it sleeps?"
    figure, (panel,) = axes.frame(title, 1, 1, (axes.WIDTH_INCHES, 3.5))
    rows = [row_of(name, share) for name, share in found["progressed"].items()]
    for row in rows:
        row["note"] = f"{PERCENT * row['timing']['median_s']:.3g} %"
    best = max((row["timing"] for row in rows), key=lambda timing: timing["median_s"])
    furthest = [row for row in rows if overlap(row["timing"], best)]
    for row in furthest:
        row["note"] += ", furthest" if len(furthest) == 1 else ", level"
    axes.bars(panel, rows, PERCENT, rows.index(furthest[0]) if len(furthest) == 1 else None)
    what = f"{number_of_bytes(found['bytes'])} to the neighbour, a sleep of"
    panel.set(
        title=f"{found['mpi']}: {what} {seconds(found['sleep_s'])} of this machine",
        xlabel="progress in the sleep, % (100 - the wait after it in % of a blocking call)",
        xlim=(0, 105),
    )
    return axes.finish(figure)
