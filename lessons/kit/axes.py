"""What the lessons' figures share: measured points with their spread, predictions, the frame.

    figure, panels = axes.frame("Lesson 03: ...", 1, 3, size=(19, 5.4))
    axes.measured(panel, x, timings, "o", color="tab:red", label="ring")
    axes.against_theta(panel, rows, {...}, compute_s, "no exchange", notes)
    axes.finish(figure, *panels)

Timings are as in the JSON: dicts of seconds.
"""

import kit

MS = 1e3


def frame(title: str, rows: int, columns: int, size: tuple[float, float]):
    """A figure with this title. -> (figure, flat list of its axes)"""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False)
    figure.suptitle(title)
    return figure, list(axes.flat)


def finish(figure, *with_legend):
    """Add legend and grid to these axes; leave room for the line that names the machine."""
    for axis in with_legend:
        axis.legend(fontsize=8)
        axis.grid(alpha=0.3)
    figure.tight_layout(rect=(0, 0.02, 1, 1))
    return figure


def median_ms(timings) -> list[float]:
    return [MS * timing["median_s"] for timing in timings]


def spread_ms(timings) -> list[list[float]]:
    """Distances of the lowest and the highest repeat from the median, as matplotlib wants them."""
    below = [MS * (timing["median_s"] - timing["low_s"]) for timing in timings]
    return [below, [MS * (timing["high_s"] - timing["median_s"]) for timing in timings]]


def measured(axis, x, timings, marker: str, **style) -> None:
    """Draw a point at each median and a bar from the lowest to the highest repeat, in ms."""
    axis.errorbar(
        x, median_ms(timings), spread_ms(timings), marker=marker, ls="none", capsize=3, **style
    )


def against_theta(
    axis, rows, kinds: dict, compute_s: float, compute_label: str, notes: list[str]
) -> None:
    """Draw the time of a step against theta, measured and predicted.

    kinds      {key of a row: (name, colour)}
    compute_s  a horizontal line at this time, with the label `compute_label`
    notes      text at the bottom, one for each row
    """
    labels = [kit.number_of_bytes(float(row["theta"])) for row in rows]
    for key, (name, colour) in kinds.items():
        measured(
            axis, labels, [row[key] for row in rows], "o", color=colour, label=f"{name}, measured"
        )
        axis.plot(
            labels,
            [MS * row["predicted"][key] for row in rows],
            "--",
            color=colour,
            label=f"{name}, predicted",
        )
    for x, note in enumerate(notes):
        axis.annotate(note, (x, 0.02), xycoords=("data", "axes fraction"), ha="center", fontsize=7)
    axis.axhline(MS * compute_s, color="grey", lw=1, label=compute_label)
    axis.set(ylabel="time of a step, ms", ylim=(0, None))


def losses(axis, runs: dict, colours: dict) -> None:
    """Draw the training loss against epochs, as the mean of several runs.

    runs: {name: [epochs of each run]}, epochs as flow.learn returns them
    """
    for name, trials in runs.items():
        curve = [
            sum(epoch) / len(epoch)
            for epoch in zip(*([row["loss"] for row in rows] for rows in trials))
        ]
        axis.plot(range(1, len(curve) + 1), curve, marker=".", color=colours[name], label=name)
    axis.set(title="Training loss (mean of the runs)", xlabel="epoch", yscale="log")
