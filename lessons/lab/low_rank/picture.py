"""The figure of lesson 17: bytes as p grows, and accuracy against bytes."""

from kit import axes
from kit.trials import mean_and_half
from lab.low_rank.methods import DENSE, DROPPED, GATHERED, RANK_1, RANK_4, SUMMED, TOPK, VOTE

KIB = 1 / 1024
GROWING = (DENSE, RANK_4, VOTE, *GATHERED)  # of the left panel
KINDS = {name: 1 for name in SUMMED} | {name: 2 for name in GATHERED} | {DENSE: 0}  # looks
AWAY = {  # where a name stands: points from its mark, and how it is aligned
    DENSE: (0, -22, "center"),
    RANK_4: (0, 14, "center"),
    VOTE: (-9, -4, "right"),
    TOPK: (0, -42, "center"),
    RANK_1: (-12, 34, "left"),
}


def draw(result: dict):
    figure, (growth, learned) = axes.frame("Lesson 17: what may be summed", 1, 2, (10, 5.4))
    draw_growth(growth, result["sent"])
    draw_learned(learned, result["learning"], max(2, result["ranks"]))
    below = (
        "Left: marks counted, lines by formula; full: summed by an allreduce, dashed: gathered "
        "(lesson 06 counts CSC). Right: squares are summed, triangles gathered; hollow: the error "
        "dropped."
    )
    return axes.finish(figure, growth, below=below)


def draw_growth(axis, sent: dict) -> None:
    for number, name in enumerate(GROWING):
        look, ranks = axes.style(number), sent["ranks"]
        line = "-" if name in SUMMED else "--"
        y = [KIB * nbytes for nbytes in sent["bytes"][name]]
        axis.plot(ranks, y, line, color=look["color"], label=name)
        counted = [KIB * nbytes for nbytes in sent["counted"].get(name, [])]
        axis.plot(sent["sizes"][: len(counted)], counted, ls="none", **look)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log", base=2)
    axis.set(
        title=f"Bytes of a step: {sent['elements']:,} gradients",
        xlabel="ranks",
        ylabel="KiB that a rank sends",
        ylim=(None, 2**17),  # room for the legend
    )


def draw_learned(axis, learning: dict, p: int) -> None:
    """Mean accuracy and its 95 % interval against the bytes of a step."""
    count = len(learning["methods"][RANK_1])
    for name, values in learning["methods"].items():
        kind = name.removesuffix(DROPPED)
        look = axes.style(KINDS[kind]) | ({} if kind == name else {"mfc": "white"})
        mean, half = mean_and_half(values)
        x, (right, up, aligned) = KIB * learning["bytes"][name], AWAY.get(name, (9, -4, "left"))
        axis.errorbar(x, mean, half or 0, capsize=4, ms=8, ls="none", **look)
        place = {"textcoords": "offset points", "color": look["color"], "ha": aligned}
        if kind == name:
            axis.annotate(name, (x, mean), (right, up), **place)
    axis.set_xscale("log", base=2)
    axis.set(
        title=f"Accuracy after {learning['epochs']} epochs, {count} runs of each",
        xlabel=f"KiB that a rank sends in a step, {p} ranks (by formula)",
        ylabel="held-out images right, %\n(mean and 95 % interval)",
        ylim=(40, 100),
    )
    axis.margins(x=0.2)
    axis.grid(alpha=0.3)
