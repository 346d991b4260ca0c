"""The figure of lesson 13: batch times, drift of the nodes, losses, accuracy against time."""

from kit import axes

SYNCHRONOUS, OVERLAPPED = "synchronous", "synchronous, overlapped"
UNROUNDED = "DASO, not rounded"  # float32 also in blocking phases
COLOURS = {
    SYNCHRONOUS: "black",
    "DASO": "tab:blue",
    UNROUNDED: "tab:cyan",
    "B=8, W=2 throughout": "tab:orange",
    "B=8, W=8 throughout": "tab:red",
}


def draw(result: dict):
    title = "Lesson 13: DASO. Nodes that do not wait for each other, and the cost of their drift"
    figure, (times, drift, losses, accuracy) = axes.frame(title, 2, 2, size=(15, 10))
    draw_times(times, result["times"])
    for name, distances in result["drift"]["distances"].items():
        drift.plot(
            range(1, len(distances) + 1), [100 * d for d in distances], marker=".", label=name
        )
    drift.axvline(result["drift"]["per_epoch"], color="grey", lw=1, ls="--")
    drift.set(
        title="Distance of a node's parameters from the mean (dashed: end of an epoch)",
        xlabel="batch",
        ylabel="% of the mean's norm",
    )
    runs = result["accuracy"]["runs"]
    axes.losses(losses, runs, COLOURS)
    for name, rows in runs.items():
        accuracy.plot(
            [r[-1]["seconds"] for r in rows],
            [100 * (r[-1]["accuracy"] or 0) for r in rows],
            "o",
            color=COLOURS[name],
            label=name,
        )
    accuracy.set(
        title=f"Held-out accuracy after {result['accuracy']['epochs']} epochs, each run",
        xlabel="training time, s",
        ylabel="accuracy, %",
        xlim=(0, None),
    )
    return axes.finish(figure, times, drift, losses, accuracy)


def draw_times(axis, times: dict) -> None:
    names, parts = list(times["measured"]), times["parts"]
    axes.measured(axis, names, times["measured"].values(), "o", color="tab:blue", label="measured")
    axis.plot(
        list(times["predicted_s"]),
        [axes.MS * t for t in times["predicted_s"].values()],
        "_",
        ms=22,
        color="tab:red",
        label="predicted",
    )
    axis.axhline(axes.MS * parts["compute"], color="grey", lw=1, label="computing only")
    axis.set_xticks(range(len(names)), names, rotation=20, ha="right", fontsize=8)
    axis.set(
        title=f"Time of a batch, in epochs of {times['per_epoch']} batches",
        ylabel="ms",
        ylim=(0, None),
    )
