"""The figures of lesson 11: accuracy against batch and gains; the rate search; LARS step times."""

from kit import axes
from lab.large_batch.comparison import METHODS, PAIRS, name_of

MS = 1e3
WARMUP_SHARE = 1 / 6  # of all steps, as in the lesson
NORMS = {  # how a LARS step gets its norms
    "alone": "each rank\nall norms",
    "slices": "equal slices of\nall parameters",
    "layers": "whole layers",
}


def draw(result: dict) -> dict:
    trained = result["trained"]
    batches = sorted({row["batch"] for row in trained["rows"]})
    title = "Lesson 11: large batches, rates tuned for each method and batch"
    figure, (accuracy, gains) = axes.frame(title, 1, 2)
    draw_accuracy(accuracy, trained, batches)
    draw_gains(gains, trained["gains"], batches)
    figures = {"": axes.finish(figure, gains, below=warm_up(trained, batches[-1]))}
    shown = sorted({batches[0], batches[-1]})
    title = (
        f"Lesson 11: the search for the peak rate. A marker: one training of {trained['epochs']} "
        "epochs;\nthe rate of a line's highest marker is judged by other runs (the other figure)"
    )
    figure, panels = axes.frame(title, 1, len(shown))
    for axis, batch in zip(panels, shown):
        draw_search(axis, trained["rows"], batch)
    panels[0].legend()
    figures["search"] = axes.finish(figure)
    title = "Lesson 11: time of a LARS step, by who forms the norms |w|, |g| of AlexNet's layers"
    figure, panels = axes.frame(title, 1, len(result["norms"]), size=(axes.WIDTH_INCHES, 3.6))
    for axis, row in zip(panels, result["norms"]):
        draw_norms(axis, row)
    panels[0].legend(loc="lower right")
    figures["norms"] = axes.finish(figure)
    return figures


def warm_up(trained: dict, batch: int) -> str:
    """What warm-up changes at this batch, and what is not known of it."""
    rows = [r for r in trained["rows"] if (r["optimizer"], r["batch"]) == ("SGD", batch)]
    with_it, without = (next(r for r in rows if r["warm"] == warm) for warm in (True, False))
    lower, rates = round(WARMUP_SHARE * with_it["steps"]), (with_it["rate"], without["rate"])
    found = "other peak rates for SGD, {:.3g} with warm-up and {:.3g} without".format(*rates)
    if len(set(rates)) == 1:
        found = f"the same peak rate for SGD, {rates[0]:.3g}"
    return (
        f"Warm-up lowers the rate of the first {lower} of {with_it['steps']} steps at batch "
        f"{batch}. The search, one training for each rate, has found {found}. What of it changes "
        "the accuracy is not measured here."
    )


def draw_accuracy(axis, trained: dict, batches: list[int]) -> None:
    """SGD and LARS without warm-up, labelled at the line."""
    steps = {row["batch"]: row["steps"] for row in trained["rows"]}
    for number, optimizer in enumerate(("SGD", "LARS")):
        rows = [r for r in trained["rows"] if r["optimizer"] == optimizer and not r["warm"]]
        rows.sort(key=lambda row: row["batch"])
        x = [batches.index(row["batch"]) + 0.06 * number for row in rows]  # bars side by side
        means, halves = [row["mean"] for row in rows], [row["half"] or 0 for row in rows]
        style = axes.style(number)
        axis.errorbar(x, means, halves, capsize=3, **style)
        place = {"textcoords": "offset points", "va": "center", "color": style["color"]}
        axis.annotate(optimizer, (x[-1], means[-1]), (10, 0), **place)
    ticks = [f"{batch}\n{steps[batch]} steps" for batch in batches]
    axis.set_xticks(range(len(batches)), ticks)
    axis.set(
        title=f"Accuracy after {trained['epochs']} epochs, without warm-up\n"
        f"(mean of {len(trained['judged_on'])} runs, 95 % interval)",
        xlabel="images in a batch",
        ylabel="% of the held-out images",
        xlim=(-0.3, len(batches) - 0.5),
    )
    axis.grid(alpha=0.3)


def draw_gains(axis, gains: list[dict], batches: list[int]) -> None:
    """Differences of METHODS with their intervals, a line for each batch."""
    names = [name for name in PAIRS if any(gain["name"] == name for gain in gains)]
    for number, batch in enumerate(batches):
        own = {gain["name"]: gain for gain in gains if gain["batch"] == batch}
        y = [i + 0.22 * (number - (len(batches) - 1) / 2) for i in range(len(names))]
        means = [own[name]["mean"] for name in names]
        halves = [own[name]["half"] or 0 for name in names]
        style = axes.style(number + 2)  # not the colours of SGD and LARS
        axis.errorbar(means, y, xerr=halves, ls="none", capsize=3, label=f"batch {batch}", **style)
    axis.axvline(0, color="black", lw=1)
    axis.set_yticks(range(len(names)), [name.replace(", ", ",\n") for name in names])
    axis.set(
        title="Gain of LARS over SGD, of warm-up over none\n(mean of "
        f"{len(gains[0]['values'])} pairs of runs, 95 % interval)",
        xlabel="percentage points of accuracy\n(a pair: same images, same first weights)",
        ylim=(len(names) + 0.3, -0.6),  # room for the legend
    )


def draw_search(axis, rows: list[dict], batch: int) -> None:
    for number, method in enumerate(METHODS):
        row = next(r for r in rows if (r["optimizer"], r["warm"], r["batch"]) == (*method, batch))
        dashed = {"ls": "--", "mfc": "white"} if method[1] else {}
        axis.semilogx(
            *zip(*row["tried"]), label=name_of(method), **axes.style(number // 2), **dashed
        )
    axis.set(
        title=f"Batch of {batch} images",
        xlabel="peak learning rate: the highest of a training",
        ylabel="accuracy, % of the held-out images",
        ylim=(0, 102),
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
    best = min(range(len(bars)), key=lambda i: bars[i]["timing"]["median_s"])
    bars[best]["name"] += "\n(smallest median)"
    axes.bars(axis, bars, MS, best)
    longest_s = max(max(bar["timing"]["high_s"], bar["predicted_s"] or 0) for bar in bars)
    axis.set(
        xlim=(0, 1.4 * MS * longest_s),  # room for the legend
        title=f"{row['n'] / 1e6:.1f} million parameters, {row['ranks']} ranks",
        xlabel=f"{axes.clock(1)}, on the slowest rank",
    )
    axis.grid(alpha=0.3, axis="x")
