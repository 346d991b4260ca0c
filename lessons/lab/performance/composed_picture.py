"""Lesson 15's figure of composed steps: kernels and rings together, on several ranks."""

from kit import axes
from lab.performance.composed_steps import BLOCKING

MODELS = {"roofline": axes.style(1), "perceptrons": axes.style(0)}
APART = (
    "Rings follow backward. Kernels and rings were measured apart: one rank computing while the "
    "others sleep, and ranks that only send."
)


def draw(rows: list[dict]) -> dict:
    """{"composed": figure}; {} on one rank, which sends nothing. rows: of `composed_steps`."""
    if not rows:
        return {}
    title = "Lesson 15, appendix: a step of AlexNet on several ranks, kernels and rings composed"
    figure, (axis,) = axes.frame(title, 1, 1, (axes.WIDTH_INCHES, 4.2))
    ranks, style = [row["ranks"] for row in rows], {"color": axes.COLOURS[2], "ls": "-"}
    timings = [row["measured_s"][BLOCKING] for row in rows]
    axes.measured(axis, range(len(ranks)), timings, "D", label="measured", **style)
    for name, style in MODELS.items():
        found = [axes.MS * row["predicted_s"][name][BLOCKING] for row in rows]
        axis.plot(range(len(ranks)), found, "--", label=f"predicted, {name}", **style)
    axis.set_xticks(range(len(ranks)), ranks)
    axis.set(title=largest_errors(rows), xlabel="ranks")
    axis.set(ylabel="a step, ms of this machine", ylim=(0, None))
    return {"composed": axes.finish(figure, axis, below=APART)}


def largest_errors(rows: list[dict]) -> str:
    """The largest error of each model in words."""
    found = []
    for name in MODELS:
        ratios = [
            row["predicted_s"][name][BLOCKING] / row["measured_s"][BLOCKING]["median_s"]
            for row in rows
        ]
        worst = max(ratios, key=lambda ratio: abs(ratio - 1))
        found.append(f"{name} {abs(worst - 1):.0%} too {'short' if worst < 1 else 'long'}")
    return f"Predictions at worst: {', '.join(found)}"
