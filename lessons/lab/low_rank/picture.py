"""The figure of lesson 17: bytes as p grows, and accuracy against bytes."""

from kit import axes
from kit.trials import mean_and_half
from lab.low_rank.methods import DENSE, DROPPED, GATHERED, RANK_1, RANK_4, SIGNS, TOPK, VOTE

KIB = 1 / 1024
GROWING = {  # of the left panel: the number of ranks at which a name stands, and points from there
    DENSE: (2, (0, 12)),
    RANK_4: (32, (0, -16)),
    VOTE: (2, (6, -12)),
    SIGNS: (128, (-40, 4)),
    TOPK: (4, (10, -12)),
}
AWAY = {  # where a name stands: points from its mark, and how it is aligned
    RANK_4: (-9, -4, "right"),
    VOTE: (-9, -4, "right"),
    TOPK: (-9, 4, "right"),
}
BELOW = DENSE, RANK_1  # names that stand below all of their marks


def kind_of(name: str) -> tuple[str, dict]:
    """What happens to its bytes, and how that looks in both panels: colour, marker."""
    kinds = {DENSE: "dense, summed"} | dict.fromkeys(GATHERED, "compressed, gathered")
    kind = kinds.get(name, "compressed, summed")
    return kind, axes.style(
        ["dense, summed", "compressed, summed", "compressed, gathered"].index(kind)
    )


def draw(result: dict):
    figure, (growth, learned) = axes.frame("Lesson 17: what may be summed", 1, 2, (10, 5.4))
    draw_growth(growth, result["sent"])
    draw_learned(learned, result["learning"], max(2, result["ranks"]))
    below = (
        "Colours and shapes mean the same in both panels. Left: five exchanges; marks are counted, "
        "with ranks as threads, lines by formula. Right: the intervals are those of each mean. "
        "Verdicts take differences between runs of the same fold and seed: -v prints them."
    )
    return axes.finish(figure, growth, learned, below=below)


def draw_growth(axis, sent: dict) -> None:
    named = set()
    for name, (p, away) in GROWING.items():
        (kind, look), ranks = kind_of(name), sent["ranks"]
        y = [KIB * nbytes for nbytes in sent["bytes"][name]]
        label = None if kind in named else kind
        named.add(kind)
        axis.plot(ranks, y, color=look["color"], label=label)
        counted = [KIB * nbytes for nbytes in sent["counted"].get(name, [])]
        axis.plot(sent["sizes"][: len(counted)], counted, ls="none", **look)
        place = {"xytext": away, "textcoords": "offset points", "color": look["color"]}
        axis.annotate(name, (p, y[ranks.index(p)]), **place)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log", base=2)
    axis.set(
        title=f"Bytes of a step: {sent['elements']:,} gradients",
        xlabel="ranks",
        ylabel="KiB that a rank sends",
        ylim=(None, 2**14),  # room for the legend
    )


def draw_learned(axis, learning: dict, p: int) -> None:
    """Mean accuracy and its 95 % interval against the bytes of a step."""
    count, lowest = len(learning["methods"][RANK_1]), {}
    for name, values in learning["methods"].items():
        kind = name.removesuffix(DROPPED)
        dropped = kind != name or name == VOTE
        look = kind_of(kind)[1] | ({"mfc": "white"} if dropped else {})
        mean, half = mean_and_half(values)
        x, (right, up, aligned) = KIB * learning["bytes"][name], AWAY.get(name, (9, -4, "left"))
        axis.errorbar(x, mean, half or 0, capsize=4, ms=8, ls="none", **look)
        lowest[kind] = min(lowest.get(kind, mean), mean - (half or 0))
        place = {"textcoords": "offset points", "color": look["color"], "ha": aligned}
        if kind == name and kind not in BELOW:
            axis.annotate(name, (x, mean), (right, up), **place)
    for name in BELOW:
        place = {"textcoords": "offset points", "color": kind_of(name)[1]["color"]}
        spot = KIB * learning["bytes"][name], lowest[name]
        axis.annotate(name, spot, (0, -16), ha="center", **place)
    axis.plot([], [], "s", color="grey", mfc="white", ms=8, label="no error fed back")
    axis.set_xscale("log", base=2)
    axis.set(
        title=f"Accuracy after {learning['epochs']} epochs, {count} runs of each",
        xlabel=f"KiB that a rank sends in a step, {p} ranks (by formula)",
        ylabel="held-out images right, %\n(mean and 95 % interval)",
        ylim=(min(40, min(lowest.values()) - 5), 100),
    )
    axis.margins(x=0.3)
