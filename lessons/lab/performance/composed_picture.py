"""Lesson 15's figure of composed steps: kernels and ring together, on several ranks."""

from kit import axes

TITLES = {
    "one after another": "Rings after backward",
    "overlapped": "Rings next to backward, on shared cores",
}
MODELS = {"roofline": axes.style(1), "perceptrons": axes.style(0)}


def draw(rows: list[dict]) -> dict:
    """{"composed": figure}; {} on one rank, which sends nothing. rows: of `composed_steps`."""
    if not rows:
        return {}
    figure, panels = axes.frame(
        "Lesson 15: a step of AlexNet on several ranks, composed of kernels and ring", 1, 2
    )
    ranks = [row["ranks"] for row in rows]
    for axis, (how, title) in zip(panels, TITLES.items()):
        timings = [row["measured_s"][how] for row in rows]
        style = {"color": axes.COLOURS[2], "ls": "-", "label": "measured"}
        axes.measured(axis, range(len(ranks)), timings, "D", **style)
        for name, style in MODELS.items():
            found = [axes.MS * row["predicted_s"][name][how] for row in rows]
            axis.plot(range(len(ranks)), found, "--", label=f"predicted, {name}", **style)
        axis.set_xticks(range(len(ranks)), ranks)
        axis.set(title=f"{title}\n{largest_errors(rows, how)}", xlabel="ranks")
        axis.set(ylabel="a step, ms of this machine", ylim=(0, None))
    for axis in panels:  # one scale, so that the two can be compared
        axis.set_ylim(0, max(other.get_ylim()[1] for other in panels))
    return {"composed": axes.finish(figure, *panels, below=overlap_in_words(rows))}


def overlap_in_words(rows: list[dict]) -> str:
    """How many times as long overlapped steps take as those whose rings follow (medians)."""
    ratios = [
        row["measured_s"]["overlapped"]["median_s"]
        / row["measured_s"]["one after another"]["median_s"]
        for row in rows
    ]
    low, high = min(ratios), max(ratios)
    return (
        f"With overlap a step takes {low:.2f} to {high:.2f} times as long (medians). "
        "Kernels and rings were each measured without the other."
    )


def largest_errors(rows: list[dict], how: str) -> str:
    """The largest error of each model in words."""
    found = []
    for name in MODELS:
        ratios = (r["predicted_s"][name][how] / r["measured_s"][how]["median_s"] for r in rows)
        found.append(f"{name} {max(abs(ratio - 1) for ratio in ratios):.0%}")
    return f"largest errors: {', '.join(found)}"
