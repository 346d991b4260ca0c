"""Lesson 14's figure of trainings through the cache: the epochs, and what they wait for images."""

from kit import axes

BELOW = (
    "A whole bar: the epoch of the slowest rank. Hatched: the wait of the rank that waits longest, "
    "which may be another one."
)
PARTS = {"waits for images": "waited_s", "rest": "seconds"}  # where a part of a bar ends


def draw(training: dict) -> dict:
    """{"training": figure}; {} where nothing was trained. training: of `training.compare`."""
    if not training:
        return {}
    figure, (axis,) = axes.frame("Lesson 14: a training waits for its images", 1, 1, (10, 5))
    rows = {
        f"{loader}, epoch {number}": epoch
        for loader, epochs in training.items()
        for number, epoch in enumerate(epochs, start=1)
    }
    names, starts = list(rows), [0.0] * len(rows)
    for number, (part, kind) in enumerate(PARTS.items()):
        ends, spread = middle_and_spread([row[kind] for row in rows.values()])
        widths = [max(0.0, end - start) for start, end in zip(starts, ends)]
        style = {"color": axes.style(1 - number)["color"], "hatch": ("//", "")[number]}
        error = {"xerr": spread, "capsize": 3}
        axis.barh(names, widths, left=starts, label=part, ec="white", **error, **style)
        starts = ends
    for name, row in rows.items():
        text, end = f"{row['waited_s']['median_s']:.2f} s waiting", row["seconds"]["high_s"]
        axis.annotate(text, (end, name), (6, 0), textcoords="offset points", va="center")
    axis.set(
        title="The same parameters in the end, bit for bit. Prefetch: a thread loads a batch ahead",
        xlabel="seconds of this machine",
        xlim=(0, 1.25 * max(row["seconds"]["high_s"] for row in rows.values())),
    )
    axis.invert_yaxis()
    return {"training": axes.finish(figure, axis, below=BELOW)}


def middle_and_spread(timings: list[dict]) -> tuple[list, list]:
    """Medians, and how far the lowest and the highest are from them."""
    middle = [timing["median_s"] for timing in timings]
    below = [timing["median_s"] - timing["low_s"] for timing in timings]
    return middle, [below, [timing["high_s"] - timing["median_s"] for timing in timings]]
