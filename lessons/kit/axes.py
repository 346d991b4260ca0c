"""What the lessons' pictures share: measured points with their spread, predictions through them,
the frame around.

    figure, axes = axes.frame("Lesson 03: ...", 1, 3, size=(19, 5.4))
    axes.measured(axis, x, timings, "o", color="tab:red", label="ring")      timings as in the JSON:
    dicts in seconds axes.against_theta(axis, rows, {...}, title=...)
    axes.finish(figure, *axes)
"""

import kit

MS = 1e3


def frame(title: str, rows: int, columns: int, size: tuple[float, float]):
    """(figure, flat list of its axes)"""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False)
    figure.suptitle(title)
    return figure, list(axes.flat)


def finish(figure, *with_legend):
    """Legend and grid on these axes, and room for the line at the bottom that says where this was
    measured.
    """
    for axis in with_legend:
        axis.legend(fontsize=8)
        axis.grid(alpha=0.3)
    figure.tight_layout(rect=(0, 0.02, 1, 1))
    return figure


def median_ms(timings) -> list[float]:
    return [MS * timing["median_s"] for timing in timings]


def spread_ms(timings) -> list[list[float]]:
    """What lies below and above the median, as matplotlib wants it."""
    below = [MS * (timing["median_s"] - timing["low_s"]) for timing in timings]
    return [below, [MS * (timing["high_s"] - timing["median_s"]) for timing in timings]]


def measured(axis, x, timings, marker: str, **style) -> None:
    """A point at each median, a bar from the lowest to the highest repeat; ms."""
    axis.errorbar(
        x, median_ms(timings), spread_ms(timings), marker=marker, ls="none", capsize=3, **style
    )


def against_theta(axis, rows, kinds: dict, compute_s: float, alone: str, notes: list[str]) -> None:
    """Time of a step against theta: each of kinds {key of a row: (name, colour)} measured and
    predicted, notes at the bottom, and a line (its name: `alone`) at the time that computing
    takes."""
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
    axis.axhline(MS * compute_s, color="grey", lw=1, label=alone)
    axis.set(ylabel="time of a step, ms", ylim=(0, None))


def losses(axis, runs: dict, colours: dict) -> None:
    """Training loss against epochs, the mean of several runs; runs: {name: [epochs of each run]} of
    flow.learn.
    """
    for name, trials in runs.items():
        curve = [
            sum(epoch) / len(epoch)
            for epoch in zip(*([row["loss"] for row in rows] for rows in trials))
        ]
        axis.plot(range(1, len(curve) + 1), curve, marker=".", color=colours[name], label=name)
    axis.set(title="Training loss (mean of the runs)", xlabel="epoch", yscale="log")
