"""The figures of lesson 11: accuracy and rate against batch; gains of LARS; LARS step times."""

from kit import axes
from kit.rows import level
from lab.large_batch.claims import rate, same_epochs, same_steps
from lab.large_batch.comparison import PAIRS

MS = 1e3
METHODS = "SGD", "LARS"  # in this order coloured, in both figures
NORMS = {  # how a LARS step gets its norms
    "alone": "each rank\nall norms",
    "slices": "equal slices of\nall parameters",
    "layers": "whole layers",
}


def draw(result: dict) -> dict:
    title = "Lesson 11: large batches, rates tuned for each method and batch"
    figure, (epochs, steps) = axes.frame(title, 1, 2)
    trained = result["trained"]
    draw_accuracy(epochs, result, same_epochs, f"the same {trained['epochs']} epochs")
    same = same_steps(trained["rows"], result)[0]["steps"]
    draw_accuracy(steps, result, same_steps, f"the same {same} steps")
    low = min(axis.get_ylim()[0] for axis in (epochs, steps))
    for axis in (epochs, steps):
        axis.set_ylim(low, 100)
    steps.grid(alpha=0.3)  # the left panel has the legend
    below = f"Means of {runs_of(trained['rows'])} runs, with 95 % intervals, without warm-up."
    figures = {"": axes.finish(figure, epochs, below=below)}
    figure, (rates,) = axes.frame("Lesson 11: does the best rate grow with the batch?", 1, 1)
    draw_rates(rates, result)
    below = "Rates a factor of 2 apart, searched on one split of the images, without warm-up."
    figures["rates"] = axes.finish(figure, rates, below=below)
    figure, (gains,) = axes.frame("Lesson 11: what LARS and warm-up gain", 1, 1)
    draw_gains(gains, trained["gains"])
    figures["gains"] = axes.finish(figure)
    title = "Lesson 11, appendix: time of a LARS step, by who forms the norms of AlexNet's layers"
    figure, panels = axes.frame(title, 1, len(result["norms"]), size=(axes.WIDTH_INCHES, 3.6))
    for axis, row in zip(panels, result["norms"]):
        draw_norms(axis, row)
    panels[0].legend(loc="lower right")
    figures["norms"] = axes.finish(figure)
    return figures


def runs_of(rows: list[dict]) -> str:
    """How many trainings a mean is of: "4 or 8"."""
    return " or ".join(str(count) for count in sorted({len(row["values"]) for row in rows}))


def draw_accuracy(axis, result: dict, alike, after: str) -> None:
    """SGD and LARS against the batch."""
    rows = alike([row for row in result["trained"]["rows"] if not row["warm"]], result)
    batches = sorted({row["batch"] for row in rows})
    for number, optimizer in enumerate(METHODS):
        own = [row for row in rows if row["optimizer"] == optimizer]
        x = [batches.index(row["batch"]) + 0.06 * number for row in own]  # bars side by side
        means, halves = [row["mean"] for row in own], [row["half"] or 0 for row in own]
        axis.errorbar(x, means, halves, capsize=3, label=optimizer, **axes.style(number))
    length = {row["batch"]: f"{row['steps']} steps\n{row['epochs']} epochs" for row in rows}
    axis.set_xticks(range(len(batches)), [f"{batch}\n{length[batch]}" for batch in batches])
    axis.set(
        title=f"After {after}",
        xlabel="images in a batch",
        ylabel="held-out images right, %",
        xlim=(-0.3, len(batches) - 0.6),
    )


def draw_rates(axis, result: dict) -> None:
    """Best rate of each method against the batch; what linear scaling makes of the first."""
    rows = [row for row in result["trained"]["rows"] if not row["warm"]]
    for number, optimizer in enumerate(("SGD", "LARS")):
        own, style = [r for r in rows if r["optimizer"] == optimizer], axes.style(number)
        points = [(r["batch"], r["rate"]) for r in same_epochs(own, result)]
        axis.plot(*zip(*points), ms=8, label=f"{optimizer}, best rate found", **style)
        first, least = points[0]
        line = [(batch, least * batch / first) for batch, _ in points]
        label = f"{optimizer}, predicted by linear scaling"
        axis.plot(*zip(*line), "--", color=style["color"], label=label)
    batches = [batch for batch, _ in points]
    axis.set(xscale="log", yscale="log", xlabel="images in a batch", ylabel="peak learning rate")
    axis.set_xticks(batches, batches)
    values = sorted({y for line in axis.lines for y in line.get_ydata()})
    axis.set_yticks(values, [f"{y:.3g}" for y in values])
    axis.minorticks_off()
    grown = [f"{o} {rate(result, o, -1) / rate(result, o, 0):.3g} x" for o in ("SGD", "LARS")]
    epochs, size = result["trained"]["epochs"], batches[-1] / batches[0]
    axis.set_title(f"In {epochs} epochs, the batch {size:.3g} x as large: {', '.join(grown)}")


def draw_gains(axis, gains: list[dict]) -> None:
    """Paired differences with their intervals: LARS over SGD, warm-up over none."""
    rows = [gain for name in PAIRS for gain in gains if gain["name"] == name]
    for y, gain in enumerate(rows):
        number = len(METHODS) if gain["name"] == "LARS" else METHODS.index(gain["name"].split()[-1])
        axis.errorbar(gain["mean"], y, xerr=gain["half"] or 0, capsize=3, **axes.style(number))
    axis.axvline(0, color="black", lw=1)
    names = [f"{gain['name']}, batch {gain['batch']}, {gain['epochs']} epochs" for gain in rows]
    axis.set_yticks(range(len(rows)), names)
    axis.set(
        title=f"LARS over SGD, warm-up over none: {runs_of(rows)} pairs of runs",
        xlabel="percentage points of accuracy, mean and 95 % interval\n"
        "(a pair: same images, same first weights)",
        ylim=(len(rows) - 0.5, -0.5),
    )
    axis.grid(alpha=0.3)


def draw_norms(axis, row: dict) -> None:
    bars = [
        {
            "name": title,
            "timing": row["times"][name],
            "predicted_s": row["predicted_s"].get(name),
            "note": f"{MS * row['times'][name]['median_s']:.1f} ms",
        }
        for name, title in NORMS.items()
    ]
    first = level(bars, "timing")
    for bar in first:
        bar["name"] += "\n(fastest, a tie)" if len(first) > 1 else "\n(fastest)"
    axes.bars(axis, bars, MS, bars.index(first[0]) if len(first) == 1 else None)
    longest_s = max(max(bar["timing"]["high_s"], bar["predicted_s"] or 0) for bar in bars)
    axis.set(
        xlim=(0, 1.4 * MS * longest_s),  # room for the legend
        title=f"{row['n'] / 1e6:.1f} million parameters, {row['ranks']} ranks",
        xlabel=f"{axes.clock(1)}, on the slowest rank",
    )
    axis.grid(alpha=0.3, axis="x")
