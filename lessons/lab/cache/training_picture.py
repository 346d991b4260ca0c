"""Lesson 14's figure of trainings through the cache: the epochs, and what they wait for images."""

from kit import axes

PARTS = {"waits for images": axes.style(1), "takes steps": axes.style(0)}


def draw(training: dict) -> dict:
    """{"training": figure}; {} where nothing was trained. training: of `training.compare`."""
    if not training:
        return {}
    figure, (axis,) = axes.frame(
        "Lesson 14: a training from the slow store waits for its images", 1, 1, (10, 4.4)
    )
    names = []
    bars = {part: [] for part in PARTS}
    for loader, epochs in training.items():
        for number, epoch in enumerate(epochs, start=1):
            names.append(f"{loader}, epoch {number}")
            waited_s = epoch["waited_s"]
            for part, seconds in zip(bars, (waited_s, max(0.0, epoch["seconds"] - waited_s))):
                bars[part].append(seconds)
    left = [0.0] * len(names)
    for number, (part, seconds) in enumerate(bars.items()):
        style = {"color": PARTS[part]["color"], "hatch": ("//", "")[number], "ec": "white"}
        axis.barh(names, seconds, left=left, label=part, **style)
        left = [start + each for start, each in zip(left, seconds)]
    for name, waited_s, end_s in zip(names, bars["waits for images"], left):
        text = f"{waited_s:.2f} s waiting"
        axis.annotate(text, (end_s, name), (4, 0), textcoords="offset points", va="center")
    axis.set(
        title="One training each; the same parameters in the end, bit for bit\n"
        "Prefetch: a thread loads a batch ahead",
        xlabel="seconds of this machine: the slowest rank; waiting: the rank that waits most",
        xlim=(0, 1.25 * max(left)),
    )
    axis.invert_yaxis()
    return {"training": axes.finish(figure, axis)}
