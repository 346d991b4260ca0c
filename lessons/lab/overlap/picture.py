"""Lesson 04's figures: steps with and without overlap, timelines, progress of messages."""

import math

from kit import axes
from kit.words import number_of_bytes
from lab.overlap import gantt
from lab.overlap.here import TITLES
from lab.overlap.steps import KINDS, name_of

MS, PERCENT = 1e3, 100
DRAWN_RANKS = 2
TITLE = "Lesson 04: overlap. Gradients that are ready are sent while backward goes on"


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
    """The network, the wire type and the ranks of the step."""
    if "here" in result:
        return f"small AlexNet, float32 on the wire, {result['ranks']} ranks"
    size = "small " if result["options"]["quick"] else ""
    return f"{size}AlexNet, float16 on the wire, {result['ranks']} ranks"


def steps(result: dict, factor: float):
    """Bars of the steps in the cluster's time; the share of what can be hidden against theta."""
    figure, (left, right) = axes.frame(TITLE, 1, 2)
    found = result["steps"]
    rows = [row_of("no exchange", found["alone"])]
    rows += [
        row_of(name_of(row, kind), row[kind], row["predicted"][kind])
        for row in found["rows"]
        for kind in KINDS
    ]
    fastest = min(rows[1:], key=lambda row: row["timing"]["median_s"])
    fastest["note"] = "shortest"
    axes.bars(left, rows, MS / factor, rows.index(fastest))
    left.set(title=f"A training step:\n{whose(result)}", xlabel="ms of the cluster's time")
    left.legend(loc="upper right")
    shares(right, found)
    right.set_title(f"Hidden share of what can be hidden:\n{whose(result)}")
    return axes.finish(figure, right)


def row_of(name: str, timing: dict, predicted_s: float | None = None) -> dict:
    return {"name": name, "timing": timing, "predicted_s": predicted_s, "note": ""}


def shares(axis, found: dict) -> None:
    """Hidden share of what can be hidden: predicted for many thetas, measured for some."""
    curve = [at for at in found["curve"] if at["hideable_s"] > 0]
    places = {theta_of(at): x for x, at in enumerate(curve)}
    rows = [row for row in found["rows"] if row["hideable_s"] > 0]
    for row in rows:  # --theta may give others than the curve has
        places.setdefault(theta_of(row), len(places))
    for row in rows:
        middle, low, high = (
            PERCENT * row["hidden"][key] / row["hideable_s"]
            for key in ("median_s", "low_s", "high_s")
        )
        axis.errorbar(
            places[theta_of(row)],
            middle,
            [[middle - low], [high - middle]],
            ls="none",
            capsize=3,
            label="measured" if row is rows[0] else None,
            **axes.style(0),
        )
    hidden = [PERCENT * at["hidden_s"] / at["hideable_s"] for at in curve]
    dashed = {"ls": "--", "color": axes.PREDICTED}  # an errorbar too, for the legend's order
    axis.errorbar(range(len(curve)), hidden, label="predicted", **dashed)
    axis.set_xticks(range(len(places)), [short(theta) for theta in places], rotation=45)
    axis.set(
        xlabel="theta, bytes (0: a call per gradient; inf: one call)",
        ylabel="hidden, %",
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
    titles = {kind: f"{name}: a step of {whose(result)}" for kind, name in KINDS.items()}
    figure, panels = axes.frame("Lesson 04: a recorded step", 2, 1, (axes.WIDTH_INCHES, 7))
    time = "this machine's time" if factor == 1 else "the cluster's time"
    gantt.stacked(panels, charts, titles, MS / factor, f"ms of {time}, all ranks on one clock")
    return axes.finish(figure)


def here(result: dict):
    """Bars of the steps of ranks that compute for real."""
    times = result["here"]
    figure, (panel,) = axes.frame(f"{TITLE}; ranks compute", 1, 1, (axes.WIDTH_INCHES, 4.5))
    rows = [
        row_of(name, times[kind], times["predicted"].get(kind)) for kind, name in TITLES.items()
    ]
    fastest = min(rows[1:3], key=lambda row: row["timing"]["median_s"])
    fastest["note"] = "shortest"
    axes.bars(panel, rows, MS, rows.index(fastest))
    panel.set(title=f"A training step: {whose(result)}", xlabel="ms of this machine's time")
    handles, _ = panel.get_legend_handles_labels()
    panel.legend(handles, ["predicted, if calls had free cores"])
    return axes.finish(figure)


def progress(found: dict):
    """How far each kind of call got during the sleep."""
    figure, (panel,) = axes.frame(
        "Lesson 04: which calls progress?", 1, 1, (axes.WIDTH_INCHES, 3.5)
    )
    for y, share in enumerate(found["progressed"].values()):
        middle, low, high = (PERCENT * share[key] for key in ("median_s", "low_s", "high_s"))
        spread = [[middle - low], [high - middle]]
        panel.barh(y, middle, xerr=spread, color=axes.COLOURS[0], capsize=3, height=0.6)
        panel.annotate(
            f"{middle:.0f} %", (middle, y), (8, 6), textcoords="offset points", va="bottom"
        )
    panel.set_yticks(range(len(found["progressed"])), list(found["progressed"]))
    what = f"a message of {number_of_bytes(found['bytes'])} to the neighbour"
    panel.set(title=f"{found['mpi']}: {what}", xlim=(0, 110))
    panel.set_xlabel("progress of the message during a sleep, % of the blocking call")
    return axes.finish(figure)
