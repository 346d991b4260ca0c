"""The figures of lesson 13: batch times; what the nodes' drift costs."""

import numpy as np

from kit import axes


def draw(result: dict) -> dict:
    return {"": draw_times(result["times"]), "learning": draw_learning(result)}


def draw_times(times: dict):
    """A bar for each kind of training, with the prediction."""
    where = f"ResNet-50 like {times['like']}" if times["like"] else "a small network, as it is here"
    figure, (bars,) = axes.frame(f"Lesson 13: DASO. {where}", 1, 1, size=(axes.WIDTH_INCHES, 4.5))
    rows, scale = times["rows"], axes.MS / times["dilation"]
    base_s = rows[0]["batch"]["median_s"]
    best = min(range(len(rows)), key=lambda i: rows[i]["batch"]["median_s"])
    axes.bars(
        bars,
        [
            {
                "name": row["name"],
                "timing": row["batch"],
                "predicted_s": row["predicted_s"],
                "note": note_of(row, base_s),
            }
            for row in rows
        ],
        scale,
        best,
    )
    alone = scale * times["alone"]["median_s"]
    bars.axvline(alone, color="grey", lw=1, ls="--", label="no exchange")
    time = "the cluster's time" if times["like"] else "this machine's time"
    bars.set(title="A batch of an epoch, without its last one", xlabel=f"ms, {time}")
    return axes.finish(figure, bars)


def note_of(row: dict, base_s: float) -> str:
    saved = 1 - row["batch"]["median_s"] / base_s
    return "" if row["batch"]["median_s"] == base_s else f"{-100 * saved:+.0f} %"


def draw_learning(result: dict):
    """Distances of the nodes, and the paired differences in accuracy."""
    title = "Lesson 13: DASO. What it costs that nodes drift apart (trained for real)"
    figure, (drift, accuracy) = axes.frame(title, 1, 2)
    for number, (name, seeds) in enumerate(result["drift"].items()):
        percent = 100 * np.array(seeds)  # (seeds, batches)
        batches, style = np.arange(1, percent.shape[1] + 1), axes.style(number)
        drift.plot(batches, np.median(percent, 0), ms=4, label=name, **style)
        drift.fill_between(batches, percent.min(0), percent.max(0), alpha=0.2, color=style["color"])
    drift.set(
        title="Distance of a node from the mean (band: all seeds)",
        xlabel="batch of the epoch",
        ylabel="% of the parameters' norm",
        ylim=(0, None),
    )
    pairs = result["accuracy"]["paired"]
    for y, difference in enumerate(pairs.values()):
        middle, low, high = (difference[key] for key in ("median_s", "low_s", "high_s"))
        style = axes.style(y)
        accuracy.errorbar(
            middle, y, xerr=[[middle - low], [high - middle]], ls="none", capsize=4, **style
        )
        accuracy.annotate(
            f"{middle:+.1f} points", (middle, y), (0, 10), textcoords="offset points", ha="center"
        )
    accuracy.axvline(0, color="grey", lw=1)
    accuracy.set_yticks(range(len(pairs)), list(pairs))
    count = len(result["accuracy"]["runs"]["synchronous"])
    accuracy.set(
        title=f"Accuracy minus that of synchronous training\nafter "
        f"{result['accuracy']['epochs']} epochs: mean of {count} pairs, 95 % interval",
        xlabel="points",
        ylim=(-0.6, max(1, len(pairs)) - 0.4),
    )
    accuracy.grid(alpha=0.3)
    return axes.finish(figure, drift)
