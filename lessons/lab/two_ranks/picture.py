"""The picture of lesson 00: what messages are worth, and how long Send takes."""

from kit import axes
from kit.words import number_of_bytes

NAMES = {"own": "each with its own gradient", "mean": "with the mean of all gradients"}


def draw(result: dict):
    figure, (worth, sends) = axes.frame("Lesson 00: two ranks", 1, 2)
    rows = result["worth"]
    ranks = [row["ranks"] for row in rows]
    for number, (name, title) in enumerate(NAMES.items()):
        worth.plot(ranks, [row[name] for row in rows], label=title, **axes.style(number))
    worth.plot(
        ranks,
        [row["predicted"] for row in rows],
        "--",
        color=axes.PREDICTED,
        label="predicted: one rank's (of all 16) over sqrt(p)",
    )
    worth.set(
        title=f"How far {result['steps']} steps end from the true weights",
        xlabel="ranks p, with 16 samples each in a step",
        ylabel="distance of a weight (root mean square)",
        ylim=(0, None),
    )
    worth.set_xscale("log", base=2)
    worth.set_xticks(ranks, [str(p) for p in ranks])
    draw_sends(sends, result)
    return axes.finish(figure, worth, sends)


def draw_sends(axis, result: dict) -> None:
    rows = result["sends"]
    x = [row["bytes"] for row in rows]
    style = axes.style(0) | {"label": "Send returns"}
    axes.measured(axis, x, [row["timing"] for row in rows], **style)
    axis.axhline(
        axes.MS * result["late_s"], ls="--", color="black", label="the receiver calls Recv"
    )
    axis.set(
        title="How long Send takes where Recv comes late",
        xlabel="bytes of the message",
        ylabel="since the start of Send, ms",
        ylim=(0, None),
    )
    if rows:
        axis.set_xscale("log", base=2)
        ticks = x[:: max(1, len(x) // 5)]
        axis.set_xticks(ticks, [number_of_bytes(n) for n in ticks])
