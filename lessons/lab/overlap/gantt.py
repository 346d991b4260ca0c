"""Gantt charts: the events of one training step, drawn for a few ranks or saved for a viewer.

charts = {kind: [gantt.bars(lanes) for lanes in gather(comm, timeline)]}      for the JSON
gantt.stacked(axes, charts, titles, scale, unit)
gantt.save_trace(run, gather(comm, timeline))
"""

import json

import kit
from kit.axes import COLOURS, TEXT_POINTS
from refgf.machine.timeline import Event, chrome_trace

COLOUR_OF = {
    "FORWARD": COLOURS[5],
    "BACKWARD": COLOURS[2],
    "MPI_ALLREDUCE": COLOURS[1],
    "WAIT_FOR_DATA": "lightgrey",
    "UPDATE": COLOURS[3],
}
LANES = "compute", "communication"


def bars(lanes: dict) -> dict:
    """A rank's timeline (refgf/machine/timeline.py) for JSON: {lane: [[name, start, duration]]}."""
    return {
        lane: [[e.name, e.start_s, e.stop_s - e.start_s] for e in events]
        for lane, events in lanes.items()
    }


def stacked(axes, charts: dict, titles: dict, scale: float, unit: str) -> None:
    """A chart on each axis, all on one scale. Without overlap one thread also makes the calls.

    scale: from seconds to what the axis shows. unit: its label
    """
    from matplotlib.patches import Patch

    for axis, (kind, chart) in zip(axes, charts.items()):
        rows = [one_thread(lanes) for lanes in chart] if kind == "sequential" else chart
        draw(axis, rows, scale)
        axis.set(title=titles[kind], xlabel=unit)
    longest = max(axis.get_xlim()[1] for axis in axes)
    for axis in axes:
        axis.set_xlim(0, longest)
    names = {name: name.removeprefix("MPI_").replace("_", " ").lower() for name in COLOUR_OF}
    keys = [Patch(color=colour, label=names[name]) for name, colour in COLOUR_OF.items()]
    axes[-1].legend(
        handles=keys, fontsize=TEXT_POINTS, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=5
    )


def one_thread(lanes: dict) -> dict:
    """All bars on one row, because blocking calls interrupt the thread; short bars on top."""
    return {"compute": [bar for lane in LANES for bar in lanes.get(lane, [])]}


def draw(axis, chart: list[dict], scale: float) -> None:
    """A row for each thread of a rank: computing, and the calls in flight."""
    labels = []
    for rank, lanes in enumerate(chart):
        for lane in filter(lanes.get, LANES):
            row = -len(labels)
            labels.append(f"rank {rank}, {lane}" if lanes.get(LANES[1]) else f"rank {rank}")
            for name, start_s, duration_s in sorted(lanes[lane], key=lambda bar: -bar[2]):
                axis.barh(
                    row,
                    scale * duration_s,
                    left=scale * start_s,
                    height=0.8,
                    color=COLOUR_OF[name],
                    edgecolor="white",
                    lw=0.3,
                )
    axis.set_yticks([-i for i in range(len(labels))], labels)


def save_trace(run: kit.Run, chart: list[dict]) -> None:
    """Write all ranks' events for a trace viewer, in the time of the emulated cluster."""
    if run.rank:
        return
    factor = run.regime.dilation
    ranks = [
        {
            lane: [Event(e.name, e.start_s / factor, e.stop_s / factor, e.bytes) for e in events]
            for lane, events in lanes.items()
        }
        for lanes in chart
    ]
    run.options.output.mkdir(parents=True, exist_ok=True)
    path = run.options.output / f"{run.options.lesson}.trace.json"
    path.write_text(json.dumps(chrome_trace(ranks)))
    run.say(f"\nThe calls of all {run.size} ranks, on one clock: {path}")
    run.say("Open it in ui.perfetto.dev.")
