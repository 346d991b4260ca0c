"""The figures of lesson 13: batch times; what the nodes' drift costs; DiLoCo next to them."""

import numpy as np

from kit import axes
from lab.daso.claims import BLOCKING, MAIN, change, training
from lab.daso.learning import CYCLING, STALE, UNROUNDED
from lab.daso.rare import DILOCO, H, LOCAL
from lab.daso.scene import HALF, SYNCHRONOUS

NAMES = {
    SYNCHRONOUS: "synchronous: all gradients\nsummed after backward",
    HALF: "synchronous: in float16,\nduring backward",
    BLOCKING: "DASO's warm-up: a blocking\nsum (bfloat16) every batch",
}
WHOLE = "training"
SHOWN = SYNCHRONOUS, HALF, MAIN, BLOCKING  # the other rows stand in the table (-v)
HIDDEN = "no sums", DILOCO  # whose drift the other figure does not draw
RARELY = {  # of DiLoCo's figure: name and bytes between nodes
    SYNCHRONOUS: ("synchronous", "all bytes"),
    HALF: ("float16, during\nbackward", "1/2"),
    MAIN: (f"DASO,\n{MAIN}", "1/4"),
    DILOCO: (DILOCO, f"1/{H}"),
}
TRAININGS = {
    CYCLING: "DASO with warm-up,\nphases of several B,\ncool-down",
    STALE: "DASO without these:\nalways every 8 batches,\n8 late (B = 8, W = 8)",
    UNROUNDED: "DASO with them,\nnothing rounded\nto bfloat16",
}


TIMED = (
    "Last bar: the training whose accuracy the other figure shows, its mean batch at best, "
    "computed from the two bars above: its first and last epochs are as the warm-up, the others "
    "B = 4, W = 1."
)


def trained(accuracy: dict) -> str:
    """How the training by DASO differs from what the other figure times."""
    count = accuracy["ends"]
    ends = "its first and its last one" if count == 1 else f"its first {count} and last {count}"
    return (
        f"DASO's training of {accuracy['epochs']} epochs: a blocking sum in every batch of {ends}; "
        "between them B = 4, W = 1, until the loss stops falling. The first figure times a batch "
        "of both kinds."
    )


def draw(result: dict) -> dict:
    figures = {"": draw_times(result), "learning": draw_learning(result)}
    return figures | {"diloco": draw_diloco(result)}


def place(result: dict) -> str:
    """What is trained where, in words."""
    like = result["times"]["like"]
    where = f"ResNet-50 on an emulated {like}" if like else "A small network on this machine"
    return f"{where}, {len(result['nodes'])} nodes of {len(result['nodes'][0])} ranks"


def rows_of(result: dict, names) -> list[dict]:
    """The rows with these names, in this order."""
    by_name = {row["name"]: row for row in result["times"]["rows"]}
    return [by_name[name] for name in names if name in by_name]


def draw_times(result: dict):
    """A bar for each kind of training, with the prediction."""
    times = result["times"]
    title = f"Lesson 13: what does DASO save, against which baseline?\n{place(result)}"
    figure, (bars,) = axes.frame(title, 1, 1)
    rows, scale = rows_of(result, SHOWN), axes.MS / times["dilation"]
    base_s = rows[0]["batch"]["median_s"]
    if whole := training(result):
        ends, epochs = (result["accuracy"][key] for key in ("ends", "epochs"))
        name = f"DASO, all {epochs} epochs: {2 * ends}\nas in warm-up (computed)"
        more = {"shown": name, "batch": whole, "predicted_s": None, "computed": True}
        rows = [*rows, {"name": WHOLE} | more]
    axes.bars(
        bars,
        [
            {
                "name": name_of(row),
                "timing": row["batch"],
                "predicted_s": row["predicted_s"],
                "computed": row.get("computed", False),
                "note": note_of(row, base_s),
            }
            for row in rows
        ],
        scale,
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
    ratio = row["batch"]["median_s"] / base_s
    return change(ratio) if ratio != 1 else "all others are compared with this"


def draw_learning(result: dict):
    """Distances of the nodes, and the paired differences in accuracy."""
    title = "Lesson 13: DASO. What it costs that nodes drift apart (a small network, trained here)"
    figure, (drift, accuracy) = axes.frame(title, 1, 2)
    shown = {name: seeds for name, seeds in result["drift"].items() if name not in HIDDEN}
    for number, (name, seeds) in enumerate(shown.items()):
        percent = 100 * np.array(seeds)  # (seeds, batches)
        batches, style = np.arange(1, percent.shape[1] + 1), axes.style(number)
        drift.plot(batches, np.median(percent, 0), ms=4, label=in_words(name), **style)
        drift.fill_between(batches, percent.min(0), percent.max(0), alpha=0.2, color=style["color"])
    drift.set(
        title="Sums over nodes: how far a node is from the mean\nof all (median, band: all seeds)",
        xlabel="batch of the epoch. A merged sum brings the nodes together;\n"
        "the last one is blocking: all nodes then hold the same",
        ylabel="% of the parameters' norm",
        xticks=range(0, percent.shape[1] + 1, 3),
        ylim=(0, 1.8 * drift.get_ylim()[1]),  # room for the legend
    )
    pairs = result["accuracy"]["paired"]
    shown = {text: pairs[name] for name, text in TRAININGS.items() if name in pairs}
    draw_differences(accuracy, shown)
    accuracy.set_title(f"Accuracy minus that of synchronous training\n{paired(result)}")
    return axes.finish(figure, drift, below=trained(result["accuracy"]))


def paired(result: dict) -> str:
    """How many trainings a difference comes from, in words."""
    count = len(result["accuracy"]["runs"]["synchronous"])
    return f"({result['accuracy']['epochs']} epochs, mean of {count} pairs, 95 % interval)"


def draw_differences(axis, differences: dict) -> None:
    """{label: difference in points}, a row each, the first on top; a line where there is none."""
    for y, difference in enumerate(differences.values()):
        middle, look = difference["median_s"], {"marker": "o", "color": "black", "capsize": 4}
        axes.points(axis, [y], [difference], across=True, **look)
        axis.annotate(
            f"{middle:+.1f} points", (middle, y), (0, 10), textcoords="offset points", ha="center"
        )
    axis.axvline(0, color="grey", lw=1)
    axis.margins(x=0.15)
    axis.set_yticks(range(len(differences)), list(differences))
    axis.set(xlabel="percentage points", ylim=(max(1, len(differences)) - 0.4, -0.6))
    axis.grid(alpha=0.3)


def draw_diloco(result: dict):
    """DiLoCo's and local SGD's bytes and time of a batch; accuracy at equal steps and seconds."""
    times, pairs, rare = result["times"], result["accuracy"]["paired"], result["rare"]
    figure, (bars, accuracy) = axes.frame(
        f"Lesson 13, appendix: DiLoCo and local SGD, a sum every {H} batches\n{place(result)}", 1, 2
    )
    axes.bars(
        bars,
        [
            {
                "name": RARELY[row["name"]][0],
                "timing": row["batch"],
                "predicted_s": row["predicted_s"],
                "note": RARELY[row["name"]][1],
            }
            for row in rows_of(result, RARELY)
        ],
        axes.MS / times["dilation"],
    )
    bars.set(title="Mean time of a batch;\nin the bars: bytes between nodes")
    bars.set(xlabel=axes.clock(times["dilation"]))
    found = {}
    for name, short in ((DILOCO, "DiLoCo"), (LOCAL, "local SGD")):
        found |= {f"{short}:\nas many steps": pairs[name]} if name in pairs else {}
        seconds = rare.get(name, {}).get(SYNCHRONOUS)
        found |= {f"{short}:\nthe same seconds": seconds} if seconds else {}
    draw_differences(accuracy, found)
    title = "A small network: accuracy minus that\nof synchronous training, nothing hidden"
    accuracy.set_title(title)
    return axes.finish(figure, bars, below=rare_in_words(result))


def rare_in_words(result: dict) -> str:
    """What local SGD is, from how many trainings, and how far the nodes of DiLoCo part."""
    text = "Local SGD sends the same bytes, and its outer step is the mean. Right: "
    text += f"{paired(result)[1:-1]}."
    if apart := result["drift"].get(DILOCO):
        most = 100 * np.median([max(distances) for distances in apart])
        text += f" Between DiLoCo's sums a node drifts {most:.1f} % of the norm from the mean, at "
        text += f"most (median of {len(apart)} seeds)."
    return text
