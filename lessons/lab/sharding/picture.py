"""The figures of lesson 16: what a rank holds, and the time of a step; predicted links."""

from kit import axes
from lab.sharding.predicted import RATES
from lab.sharding.training import ALL, PARTS, ZERO

MB = 1e-6
HATCH = {"weights": "", "gradients": "//", "state": ".."}
NETWORKS = {"alexnet": "AlexNet", "resnet50": "ResNet-50"}


def draw(result: dict) -> dict:
    figure, (memory, steps) = axes.frame("Lesson 16: who holds the optimiser's state?", 1, 2)
    draw_memory(memory, result)
    draw_steps(steps, result)
    below = (
        "Left: the small AlexNet that is trained, momentum SGD; activations and ZeRO-3's two whole "
        "layers are not counted. Paler: by formula, not run."
    )
    figures = {"": axes.finish(figure, memory, steps, below=below)}
    return figures | {"links": draw_links(result["predicted"])}


def draw_memory(axis, result: dict) -> None:
    """Stacked bars of what is counted, paler ones by formula; the formula through what is counted.

    The longest slice is that of the rank shown.
    """
    found = result["training"]
    counted = {row["name"]: row["held"] for row in found["rows"]}
    for x, (name, formula) in enumerate(found["stages"].items()):
        shown, bottom = counted.get(name, formula), 0.0
        for number, part in enumerate(PARTS):
            look = {"color": axes.COLOURS[number], "hatch": HATCH[part], "edgecolor": "white"}
            label = None if x else part
            alpha = 1.0 if name in counted else 0.4
            height = MB * shown[part]
            axis.bar(x, height, 0.7, bottom, label=label, alpha=alpha, **look)
            bottom += height
        if name in counted:
            at, label = MB * sum(formula.values()), None if x else "predicted"
            axis.plot(x, at, "D", color=axes.PREDICTED, mfc="white", ms=7, label=label)
        share = bottom / (MB * sum(found["stages"][ALL].values()))
        axis.annotate(f"{share:.0%}", (x, bottom), (0, 9), textcoords="offset points", ha="center")
    names = [
        f"{name}\n{'counted' if name in counted else 'by formula'}" for name in found["stages"]
    ]
    axis.set_xticks(range(len(names)), names)
    top = MB * sum(found["stages"][ALL].values())
    axis.set(
        title=f"What a rank holds: {found['elements']:,} weights, {result['ranks']} ranks",
        ylabel="MB on the rank with the longest slice",
        ylim=(0, 1.45 * top),  # room for the legend
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
    best = min(range(len(bars)), key=lambda i: bars[i]["timing"]["median_s"])
    axes.bars(axis, bars, axes.MS / k, best)
    off_s = result["steps"]["off"]["median_s"]
    axis.axvline(axes.MS * off_s / k, color="grey", lw=1, label="nothing sent")
    longest_s = max(max(row["timing"]["high_s"], row["predicted_s"] or 0) for row in rows)
    axis.set(
        title="Time of a step",
        xlabel=axes.clock(k),
        xlim=(0, 1.4 * axes.MS * longest_s / k),  # room for the legend
    )


def draw_links(rows: list[dict]):
    """FSDP's and ZeRO-1's step over DDP's against the link, both networks. All predicted."""
    figure, panels = axes.frame("Lesson 16: where sharing loses, predicted", 1, 2)
    for axis, (network, title) in zip(panels, NETWORKS.items()):
        own = [row for row in rows if row["network"] == network]
        counts = sorted({row["units"] for row in own}, reverse=True)
        lines = [(ZERO, counts[0], f"{ZERO}, predicted")]
        lines += [("FSDP", units, f"FSDP in {units} units, predicted") for units in counts]
        for number, (name, units, label) in enumerate(lines):
            y = [row["step_s"][name] / row["step_s"]["DDP"] for row in own if row["units"] == units]
            axis.plot(range(len(y)), y, "--", label=label, **axes.style(number))
        axis.axhline(1, color="black", lw=1)
        axis.set_xticks(range(len(RATES)), [rate.replace("gbit", "") for rate in RATES])
        axis.set(
            title=title,
            xlabel="link, Gbit/s",
            ylabel="step over DDP's step",
            ylim=(0, None),
        )
    below = (
        "By refgf/plan/sharding.py: DDP sums 25 MiB at a time during backward; a rank on each "
        "node. A unit is what FSDP gathers at once, the next one ahead."
    )
    return axes.finish(figure, *panels, computed=True, below=below)
