"""The figures of lesson 13: batch times; what the nodes' drift costs."""

import numpy as np

from kit import axes
from lab.daso.claims import training
from lab.daso.learning import CYCLING, STALE, UNROUNDED
from lab.daso.rare import DILOCO, H, LOCAL
from lab.daso.scene import HALF, OVERLAPPED, SYNCHRONOUS

NAMES = {
    SYNCHRONOUS: "synchronous: all gradients\nsummed after backward",
    OVERLAPPED: "synchronous: gradients\nsummed during backward",
    HALF: "synchronous: the same,\nfloat16 on the wire",
    "blocking, bfloat16": "DASO's warm-up: a blocking\nsum (bfloat16) every batch",
    DILOCO: f"DiLoCo: all nodes wait for\na sum every {H} batches",
}
WHOLE = "training"
TRAININGS = {
    CYCLING: "DASO with warm-up,\nphases of several B,\ncool-down",
    STALE: "DASO without these:\nalways every 8 batches,\n8 late (B = 8, W = 8)",
    DILOCO: f"DiLoCo: an outer step\nevery {H} batches",
    LOCAL: f"local SGD: the mean\nevery {H} batches",
    UNROUNDED: "DASO with them,\nnothing rounded\nto bfloat16",
}


TIMED = (
    "Last bar: the training whose accuracy the other figure shows, its mean batch at best, "
    "computed from two bars: its first and last epochs are the warm-up's, the others B = 4, W = 1."
)


def trained(accuracy: dict) -> str:
    """How the training by DASO differs from what the other figure times."""
    count = accuracy["ends"]
    ends = "its first and its last one" if count == 1 else f"its first {count} and last {count}"
    return (
        f"DASO's training of {accuracy['epochs']} epochs: a blocking sum in every batch of {ends}; "
        "between them B = 4, W = 1, until the loss stops falling. The other figure times a batch "
        "of each kind."
    )


def draw(result: dict) -> dict:
    return {"": draw_times(result), "learning": draw_learning(result)}


def draw_times(result: dict):
    """A bar for each kind of training, with the prediction."""
    times, like = result["times"], result["times"]["like"]
    where = f"ResNet-50 on an emulated {like}" if like else "A small network on this machine"
    nodes = f"{len(result['nodes'])} nodes of {len(result['nodes'][0])} ranks"
    figure, (bars,) = axes.frame(f"Lesson 13: DASO. {where}, {nodes}", 1, 1)
    rows, scale = times["rows"], axes.MS / times["dilation"]
    base_s = rows[0]["batch"]["median_s"]
    if whole := training(result):
        ends, epochs = (result["accuracy"][key] for key in ("ends", "epochs"))
        name = f"DASO, all {epochs} epochs: {2 * ends}\nwith blocking sums (computed)"
        more = {"shown": name, "batch": whole, "predicted_s": None, "computed": True}
        rows = [*rows, {"name": WHOLE} | more]
    best = min(range(len(rows)), key=lambda i: rows[i]["batch"]["median_s"])
    axes.bars(
        bars,
        [
            {
                "name": name_of(row),
                "timing": row["batch"],
                "predicted_s": row["predicted_s"],
                "computed": row.get("computed", False),
                "note": note_of(row, base_s) + ", smallest median" * (i == best),
            }
            for i, row in enumerate(rows)
        ],
        scale,
        best,
    )
    alone = scale * times["alone"]["median_s"]
    bars.axvline(alone, color="grey", lw=1, ls="--", label="computing alone, no exchange")
    bars.set(title="Mean time of a batch", xlabel=axes.clock(times["dilation"]))
    return axes.finish(figure, bars, below=TIMED if whole else "")


def name_of(row: dict) -> str:
    """What a bar shows, in words."""
    if "shown" in row:
        return row["shown"]
    if row["name"] in NAMES:
        return NAMES[row["name"]]
    skip, wait = row["phase"]
    every = f"every {skip} batches" if skip > 1 else "every batch"
    late = f"{wait} batch{'es' * (wait > 1)} late"
    return f"DASO: a sum {every} (B = {skip}),\nused {late} (W = {wait})"


def in_words(phase: str) -> str:
    """B = 4, W = 1 -> every 4 batches, 1 late (B = 4, W = 1)."""
    skip, wait = (int(part.split("=")[1]) for part in phase.split(","))
    every = f"every {skip} batches" if skip > 1 else "every batch"
    return f"{every}, {wait} late ({phase})"


def note_of(row: dict, base_s: float) -> str:
    saved = 1 - row["batch"]["median_s"] / base_s
    return f"{-100 * saved:+.0f} %" if saved else "all others are compared with this"


def rare_sums(batches: int) -> str:
    """After how many of an epoch's batches DiLoCo sums."""
    return " and ".join(str(batch) for batch in range(H, batches + 1, H))


def draw_learning(result: dict):
    """Distances of the nodes, and the paired differences in accuracy."""
    title = "Lesson 13: DASO. What it costs that nodes drift apart (a small network, trained here)"
    figure, (drift, accuracy) = axes.frame(title, 1, 2)
    shown = {name: seeds for name, seeds in result["drift"].items() if name != "no sums"}
    for number, (name, seeds) in enumerate(shown.items()):
        percent = 100 * np.array(seeds)  # (seeds, batches)
        batches, style = np.arange(1, percent.shape[1] + 1), axes.style(number)
        label = NAMES.get(name) or in_words(name)
        drift.plot(batches, np.median(percent, 0), ms=4, label=label, **style)
        drift.fill_between(batches, percent.min(0), percent.max(0), alpha=0.2, color=style["color"])
    drift.set(
        title="Sums over nodes: how far a node is from the mean\nof all (median, band: all seeds)",
        xlabel="batch of the epoch. A merged sum brings the nodes together;\n"
        "DASO's last sum is blocking: its nodes then hold the same.\n"
        f"DiLoCo sums after {rare_sums(percent.shape[1])} batches",
        ylabel="% of the parameters' norm",
        xticks=range(0, percent.shape[1] + 1, 3),
        ylim=(0, 1.8 * drift.get_ylim()[1]),  # room for the legend
    )
    pairs = result["accuracy"]["paired"]
    for y, difference in enumerate(pairs.values()):
        middle, look = difference["median_s"], {"marker": "o", "color": "black", "capsize": 4}
        axes.points(accuracy, [y], [difference], across=True, **look)
        accuracy.annotate(
            f"{middle:+.1f} points", (middle, y), (0, 10), textcoords="offset points", ha="center"
        )
    accuracy.axvline(0, color="grey", lw=1)
    accuracy.set_yticks(range(len(pairs)), [TRAININGS[name] for name in pairs])
    count = len(result["accuracy"]["runs"]["synchronous"])
    accuracy.set(
        title=f"Accuracy minus that of synchronous training\n"
        f"({result['accuracy']['epochs']} epochs, mean of {count} pairs, 95 % interval)",
        xlabel="percentage points",
        ylim=(max(1, len(pairs)) - 0.4, -0.6),  # the first on top
    )
    accuracy.grid(alpha=0.3)
    return axes.finish(figure, drift, below=trained(result["accuracy"]))
