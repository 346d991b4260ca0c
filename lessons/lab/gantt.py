"""Gantt charts: the events of one training step on a few ranks.

charts = {name: [gantt.bars(lanes) for lanes in gather(comm, timeline)]}
gantt.side_by_side(axes, charts)
"""

COLOURS = {
    "FORWARD": "tab:blue",
    "BACKWARD": "tab:cyan",
    "MPI_ALLREDUCE": "tab:red",
    "WAIT_FOR_DATA": "lightgrey",
    "UPDATE": "tab:green",
}
LANES = "compute", "communication"


def bars(lanes: dict) -> dict:
    """A rank's timeline (refgf/machine/timeline.py) for JSON: {lane: [[name, start, duration]]}."""
    return {
        lane: [[e.name, e.start_s, e.stop_s - e.start_s] for e in events]
        for lane, events in lanes.items()
    }


def side_by_side(axes, charts: dict) -> None:
    """A chart on each axis, all on one scale. In "sequential" one thread also makes the calls."""
    for axis, (name, chart) in zip(axes, charts.items()):
        draw(axis, [one_thread(lanes) for lanes in chart] if name == "sequential" else chart)
        axis.set_title(f"{name}: one training step of {len(chart)} ranks")
    longest = max(axis.get_xlim()[1] for axis in axes)
    for axis in axes:
        axis.set_xlim(0, longest)


def one_thread(lanes: dict) -> dict:
    """All bars on one row, because blocking calls interrupt the thread; short bars on top."""
    return {"compute": [bar for lane in LANES for bar in lanes.get(lane, [])]}


def draw(axis, chart: list[dict]) -> None:
    """A row for each thread of a rank: computing, and the calls in flight."""
    labels, seen = [], set()
    for rank, lanes in enumerate(chart):
        for lane in filter(lanes.get, LANES):
            row = -len(labels)
            labels.append(f"rank {rank} {lane}" if lanes.get(LANES[1]) else f"rank {rank}")
            for name, start_s, duration_s in sorted(lanes[lane], key=lambda bar: -bar[2]):
                label = None if name in seen else name
                seen.add(name)
                axis.barh(
                    row,
                    1e3 * duration_s,
                    left=1e3 * start_s,
                    height=0.8,
                    color=COLOURS.get(name, "tab:orange"),
                    edgecolor="white",
                    lw=0.3,
                    label=label,
                )
    axis.set(
        yticks=[-i for i in range(len(labels))],
        yticklabels=labels,
        xlabel="ms, all ranks on one clock",
    )
    axis.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=5)
