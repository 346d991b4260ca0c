"""The figures of lesson 16: what a rank holds, and the time of a step; predicted links."""

from kit import axes
from kit.images import NETWORKS
from kit.rows import level
from lab.sharding.predicted import LARGER, LAYERS, RATES, peak_share
from lab.sharding.training import ALL, PARTS, ZERO, ZERO3, of_own_size

MIB = 1 / 2**20
HATCH = {"weights": "", "gradients": "//", "state": ".."}
GIGABITS = [int(rate.removesuffix("gbit")) for rate in RATES]
WRAPPED = {
    "alexnet": {LAYERS: "layers", LARGER: "convolutions; the rest"},
    "resnet50": {LAYERS: "layers", LARGER: "blocks"},
}


def draw(result: dict) -> dict:
    found = result["training"]
    most, kept = (sum(found["stages"][name].values()) for name in (ALL, ZERO3))
    own = (kept + of_own_size(found)) / most
    figure, (memory, steps) = axes.frame("Lesson 16: who holds the optimiser's state?", 1, 2)
    draw_memory(memory, result)
    draw_steps(steps, result)
    trained = NETWORKS[result["options"]["network"]]
    below = (
        f"Left: the small {trained} that is trained, momentum SGD, without activations; paler: by "
        "formula, without a unit's whole gradients. Whole units: this code's 4 buffers of the "
        f"largest layer; with buffers of each layer's own size: {own:.0%}. Right: ZeRO-1 sends "
        "after backward. The other figure predicts one that sends during backward."
    )
    figures = {"": axes.finish(figure, memory, steps, below=below)}
    return figures | {"links": draw_links(result["predicted"], result["ranks"])}


def draw_memory(axis, result: dict) -> None:
    """Stacked bars of what is counted, paler ones by formula; the formula through what is counted.

    The longest slice is that of the rank shown.
    """
    found, whole = result["training"], MIB * result["training"]["whole_layers"]
    counted = {row["name"]: row["held"] for row in found["rows"]}
    top = MIB * sum(found["stages"][ALL].values())
    for x, (name, formula) in enumerate(found["stages"].items()):
        shown, bottom = counted.get(name, formula), 0.0
        for number, part in enumerate(PARTS):
            look = {"color": axes.COLOURS[number], "hatch": HATCH[part], "edgecolor": "white"}
            label = None if x else part
            alpha = 1.0 if name in counted else 0.4
            height = MIB * shown[part]
            axis.bar(x, height, 0.7, bottom, label=label, alpha=alpha, **look)
            bottom += height
        if name in counted:
            at, label = MIB * sum(formula.values()), None if x else "predicted"
            axis.plot(x, at, "D", color=axes.PREDICTED, mfc="white", ms=7, label=label)
        words = {"textcoords": "offset points", "ha": "center"}
        axis.annotate(f"{bottom / top:.0%}", (x, bottom), (0, 9), **words)
        if name == ZERO3:
            look = {"color": "none", "edgecolor": "black", "ls": "--", "label": "whole units"}
            axis.bar(x, whole, 0.7, bottom, **look)
            bottom += whole
            axis.annotate(f"{bottom / top:.0%}\nat its peak", (x, bottom), (0, 9), **words)
    names = [
        f"{name}\n{'counted' if name in counted else 'by formula'}" for name in found["stages"]
    ]
    axis.set_xticks(range(len(names)), names)
    axis.set(
        title=f"What a rank holds: {found['elements']:,} weights, {result['ranks']} ranks",
        ylabel="MiB on the rank with the longest slice",
        ylim=(0, 1.6 * max(top, bottom)),  # room for the legend
    )


def draw_steps(axis, result: dict) -> None:
    k, rows = result["regime"]["dilation"], result["steps"]["rows"]
    bars = [
        {
            "name": row["name"].replace(", ", ",\n"),
            "timing": row["timing"],
            "predicted_s": row["predicted_s"],
            "note": f"{axes.MS * row['timing']['median_s'] / k:.3g} ms",
        }
        for row in rows
    ]
    first, *others = level(bars, "timing")
    axes.bars(axis, bars, axes.MS / k, None if others else bars.index(first))
    off_s = result["steps"]["off"]["median_s"]
    axis.axvline(axes.MS * off_s / k, color="grey", lw=1, label="nothing sent")
    longest_s = max(max(row["timing"]["high_s"], row["predicted_s"] or 0) for row in rows)
    options, network = result["options"], "AlexNet"
    if here := result["regime"]["like"] == "this-machine":
        network = NETWORKS[options["network"]]
    full = "a small " if options["quick"] or here else "the full "
    axis.set(
        title=f"A step of {full}{network} ({'shortest: a tie' if others else 'dark: shortest'})",
        xlabel=axes.clock(k),
        xlim=(0, 1.4 * axes.MS * longest_s / k),  # room for the legend
    )


def draw_links(rows: list[dict], ranks: int):
    """FSDP's and ZeRO-1's step over DDP's against the link, both networks. All predicted."""
    figure, panels = axes.frame("Lesson 16, appendix: where sharing loses, predicted", 1, 2)
    top = 1.45 * max(s / row["step_s"]["DDP"] for row in rows for s in row["step_s"].values())
    for axis, (network, title) in zip(panels, NETWORKS.items()):  # top: room for the legend
        by_wrap = {wrapped: [] for wrapped in WRAPPED[network]}
        for row in rows:
            if row["network"] == network:
                by_wrap[row["wrapped"]].append(row)
        lines = [(ZERO, by_wrap[LAYERS], f"{ZERO}, sums during backward")]
        for wrapped, own in by_wrap.items():
            units = f"{own[0]['units']} units ({WRAPPED[network][wrapped]})"
            held = peak_share(network, wrapped, max(2, ranks))
            lines.append(("FSDP", own, f"FSDP, {units}: {held:.0%} held"))
        for number, (name, own, label) in enumerate(lines):
            y = [row["step_s"][name] / row["step_s"]["DDP"] for row in own]
            axis.plot(GIGABITS, y, "--", label=label, **axes.style(number))
        axis.axhline(1, color="black", lw=1)
        axis.set_xscale("log")
        axis.set_xticks(GIGABITS, [str(rate) for rate in GIGABITS])
        axis.set_xticks([], minor=True)
        axis.set(
            title=title,
            xlabel="predicted link, Gbit/s (logarithmic)",
            ylabel="step over DDP's step",
            ylim=(0, top),
        )
    below = (
        f"For {max(2, ranks)} ranks, one on each node. held: at its peak, of all weights, "
        "gradients and momentum; two neighbours' weights are whole, and one unit's gradients "
        "twice. Here a normalization belongs to its convolution's unit; in the measured steps it "
        "is a unit of its own. The other figure's predictions are longer: they have this "
        "machine's copies and update."
    )
    return axes.finish(figure, *panels, computed=True, below=below)
