"""The figures of lesson 16: what a rank holds, and the time of a step; predicted links."""

from kit import axes
from lab.sharding.predicted import LARGER, LAYERS, RATES
from lab.sharding.training import ALL, PARTS, ZERO

MB = 1e-6
HATCH = {"weights": "", "gradients": "//", "state": ".."}
NETWORKS = {"alexnet": "AlexNet", "resnet50": "ResNet-50"}
GIGABITS = [int(rate.removesuffix("gbit")) for rate in RATES]
WRAPPED = {
    "alexnet": {LAYERS: "layers", LARGER: "convolutions; the rest"},
    "resnet50": {LAYERS: "layers", LARGER: "blocks"},
}


def draw(result: dict) -> dict:
    figure, (memory, steps) = axes.frame("Lesson 16: who holds the optimiser's state?", 1, 2)
    draw_memory(memory, result)
    draw_steps(steps, result)
    below = (
        "Left: the small AlexNet that is trained, momentum SGD; activations and ZeRO-3's two whole "
        "layers are not counted. Paler: by formula, not run. Right: ZeRO-1 sends after backward; "
        "in the other figure, which is predicted, its reduce-scatters run during backward."
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
    full = "the full " * (result["regime"]["like"] != "this-machine")
    axis.set(
        title=f"A step of {full}AlexNet (dark: shortest)",
        xlabel=axes.clock(k),
        xlim=(0, 1.4 * axes.MS * longest_s / k),  # room for the legend
    )


def draw_links(rows: list[dict]):
    """FSDP's and ZeRO-1's step over DDP's against the link, both networks. All predicted."""
    figure, panels = axes.frame("Lesson 16: where sharing loses, predicted", 1, 2)
    top = 1.45 * max(s / row["step_s"]["DDP"] for row in rows for s in row["step_s"].values())
    for axis, (network, title) in zip(panels, NETWORKS.items()):  # top: room for the legend
        by_wrap = {wrapped: [] for wrapped in WRAPPED[network]}
        for row in rows:
            if row["network"] == network:
                by_wrap[row["wrapped"]].append(row)
        lines = [(ZERO, by_wrap[LAYERS], ZERO)]
        for wrapped, own in by_wrap.items():
            units = f"{own[0]['units']} units ({WRAPPED[network][wrapped]})"
            lines.append(("FSDP", own, f"FSDP, {units}"))
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
        "By formula (refgf/plan/sharding.py), not for the links of the line below. FSDP gathers a "
        "unit at once, the next one ahead. Sums of DDP and reduce-scatters of ZeRO-1, 25 MiB each, "
        "run during backward; the measured ZeRO-1 sends after it."
    )
    return axes.finish(figure, *panels, computed=True, below=below)
