"""The picture of lesson 00: how far ranks are apart, and how long Send takes."""

from kit import axes
from kit.words import number_of_bytes

NAMES = {
    "mean": "steps with the mean of all gradients",
    "own": "each rank steps with its own gradient",
}


def draw(result: dict):
    figure, (apart, sends) = axes.frame("Lesson 00: two ranks", 1, 2)
    for number, (name, title) in enumerate(NAMES.items()):
        apart.plot(result["apart"][name], label=title, color=axes.style(number)["color"])
    apart.set(
        title=f"How far the weights of {result['ranks']} ranks are apart",
        xlabel="step",
        ylabel="largest difference of a weight",
    )
    rows = result["sends"]
    x = [row["bytes"] for row in rows]
    style = axes.style(0)
    axes.measured(
        sends,
        x,
        [row["timing"] for row in rows],
        style["marker"],
        color=style["color"],
        label="Send returns",
    )
    sends.axhline(
        axes.MS * result["late_s"], ls="--", color="black", label="the receiver calls Recv"
    )
    sends.set(
        title="How long Send takes where Recv comes late",
        xlabel="bytes of the message",
        ylabel="since the start of Send, ms",
        ylim=(0, None),
    )
    if rows:
        sends.set_xscale("log", base=2)
        ticks = x[:: max(1, len(x) // 5)]
        sends.set_xticks(ticks, [number_of_bytes(n) for n in ticks])
    return axes.finish(figure, apart, sends)
