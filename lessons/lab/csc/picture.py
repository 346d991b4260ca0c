"""The figures of lesson 06: the choice of chunks, time against density; appendix: learning."""

import numpy as np

import kit
from kit import axes
from kit.rows import overlap
from kit.trials import usual_warmup
from lab.csc.claims import not_sent, sent_again, sent_so_far

TITLE = "Lesson 06: CSC, coarse-grained sparse communication"
STEPS_SHOWN = 24  # few enough to see that a chunk is sent twice
MISSED = 0.9  # of a measured time: the caption names a prediction below it
LEFT_OUT = (
    "It leaves out how long a rank waits for a core that it shares; how long that is, the lesson "
    "does not measure."
)
FORMS = {  # of momentum correction, as the figure names them
    "none": "none (the lesson's): the\nresidual adds up gradients",
    "dgc": "dgc: it adds up\ntheir momentum, too",
    "dgc_masked": "dgc_masked: as dgc, but\nsending clears momentum",
    "history": "history: the residual\ntimes m in each step",
    "dgc, no warm-up": "dgc,\nno warm-up",
}
WHAT = {  # the parts of a predicted time
    "off": ("step without exchange, measured", {"color": "lightgrey"}),
    "messages": ("messages, by the formula", {"color": axes.COLOURS[5]}),
    "own": ("own work, measured with all ranks at once", {"color": axes.COLOURS[1], "hatch": "//"}),
}
BELOW = "95 % interval; below 0: learns faster"
ABOVE = "95 % interval; below 0: CSC costs accuracy"


def draw(result: dict) -> dict:
    """{"": which chunks are sent, "times": figure, "learning": appendix}"""
    return {
        "": draw_choice(result),
        "times": draw_times(result) if result.get("times") else draw_here(result),
        "learning": draw_learning(result["study"], density_in_words(result)),
    }


def draw_times(result: dict):
    """A step at each density; dense and sparse exchanges of the small network."""
    like, factor = result["regime"]["like"], result["regime"]["dilation"]
    title = f"{TITLE}. What is gained? Like {like}, {result['ranks']} ranks"
    figure, (left, right) = axes.frame(title, 1, 2, (axes.WIDTH_INCHES, 5.5))
    off, rows = result["times"]["alone"], []
    for row in result["times"]["rows"]:
        name = "dense" if row["density"] is None else f"{row['density']:g} %"
        parts = {"off": off["median_s"], **parts_of(row)}
        rows.append({"name": name, "sent": row["payload"], "timing": row["step"], "parts": parts})
    draw_parts(left, rows, factor)
    left.set_title("A step of AlexNet, float16, no overlap")
    draw_exchange(right, result["small"], factor)
    below = f"{packed(result['ranks'])} {too_short(result['small']['rows'])}"
    return axes.finish(figure, left, right, below=below.strip())


def packed(ranks: int) -> str:
    """What the bytes at the bars are, and how many of them are sent."""
    times = f"{2 * (ranks - 1) / ranks:.3g}"
    return f"Bytes: what a rank packs; the allreduce sends 2(p-1)/p = {times} times as many."


def too_short(rows: list[dict]) -> str:
    """Predicted over measured, if a prediction is much too short; what it leaves out."""
    shares = [row["predicted_s"] / row["timing"]["median_s"] for row in rows]
    if min(shares) >= MISSED:
        return ""
    said = ", ".join(f"{share:.0%}" for share in shares)
    return f"Right, from above: the prediction is {said} of the measured time. {LEFT_OUT}"


def draw_here(result: dict):
    """The exchanges on this machine as it is."""
    figure, panels = axes.frame(f"{TITLE}. This machine as it is", 1, 2)
    for panel, name in zip(panels, ("small", "large")):
        draw_exchange(panel, result["here"][name], 1.0)
    return axes.finish(figure, *panels, below=packed(result["ranks"]))


def draw_exchange(axis, network: dict, factor: float) -> None:
    """The exchanges of a network without computing."""
    rows = [
        row | {"sent": row["chosen_bytes"] + row["norms_bytes"], "parts": parts_of(row)}
        for row in network["rows"]
    ]
    draw_parts(axis, rows, factor)
    axis.set_title(f"Exchange of {network['elements']:,} gradients, float16")


def parts_of(row: dict) -> dict:
    """The two parts of a predicted exchange."""
    return {"messages": row["messages_s"], "own": row["own"]["median_s"]}


def draw_parts(axis, rows: list[dict], factor: float) -> None:
    """Stacked bars of the predicted time; points: the measured time.

    rows: {"name", "sent" (bytes), "parts" (seconds by name, see WHAT), "timing" (measured)}
    """
    ms = axes.MS / factor
    for y, row in enumerate(rows):
        end = 0.0
        for name, seconds in row["parts"].items():
            label, look = WHAT[name]
            axis.barh(y, ms * seconds, left=end, height=0.6, label=None if y else label, **look)
            end += ms * seconds
    timings = [row["timing"] for row in rows]
    look = {"marker": "o", "color": axes.PREDICTED, "capsize": 4}
    label = "all of it, measured"
    axes.points(axis, range(len(rows)), timings, ms, across=True, label=label, **look)
    best = min(timings, key=lambda timing: timing["median_s"])
    level = [y for y, timing in enumerate(timings) if overlap(timing, best)]
    for y in level:
        end = ms * max(timings[y]["high_s"], sum(rows[y]["parts"].values()))
        said = "fastest" if len(level) == 1 else "level"
        axis.annotate(said, (end, y), (6, 0), textcoords="offset points", va="center")
    names = [f"{row['name']}\n{kit.number_of_bytes(row['sent'])}" for row in rows]
    axis.set_yticks(range(len(rows)), names)
    axis.set(xlabel=axes.clock(factor), ylim=(len(rows) + 1.3, -0.5))  # below: the legend


def draw_choice(result: dict):
    """Which chunks each step sends, and after how many steps how many have been sent."""
    figure, (left, right) = axes.frame(f"{TITLE}. Which chunks are sent, and when?", 1, 2)
    chosen = result["chosen"]
    draw_sent(left, chosen)
    chunks, kinds = len(chosen["norms"]), {"by importance (the lesson's)": chosen["lists"]}
    if "after" in chosen:
        kinds["by what stays after sending"] = chosen["after"]
    for number, (name, numbers) in enumerate(kinds.items()):
        shares = [100 * share for share in sent_so_far(numbers, chunks)]
        colour = axes.style(number)["color"]
        right.plot(range(1, 1 + len(shares)), shares, label=name, color=colour)
    count = sum(1 for numbers in chosen["lists"] if numbers)
    steps = np.arange(1, 1 + count)
    turn = np.minimum(100, chosen["percent"] * steps)
    right.plot(steps, turn, ls="--", color=axes.PREDICTED, label="in turn: predicted")
    if waiting := not_sent(result):
        draw_waiting(right, *waiting)
    right.set(
        title="Chunks that have been sent at least once",
        xlabel="sparse steps",
        ylabel="share of all chunks, %",
        ylim=(0, 105),
    )
    return axes.finish(figure, right, timed=False)


def draw_waiting(axis, share: float, steps: int) -> None:
    """The share of all chunks that the lesson's choice has not sent after these steps."""
    axis.annotate("", (steps, 100 - 100 * share), (steps, 100), arrowprops={"arrowstyle": "<->"})
    said = f"{share:.0%} not sent\nin {steps} sparse steps"
    place = {"textcoords": "offset points", "va": "center"}
    axis.annotate(said, (steps, 100 - 25 * share), (6, 0), **place)


def draw_sent(axis, chosen: dict) -> None:
    """A row for each chunk, black in the steps that send it."""
    chunks, lists = len(chosen["norms"]), chosen["lists"][: STEPS_SHOWN + 1]
    picture = np.zeros((chunks, len(lists)))
    for step, numbers in enumerate(lists):
        picture[numbers if numbers else slice(None), step] = 1
    axis.imshow(picture, aspect="auto", cmap="Greys", interpolation="nearest")
    ends = [*(at for _, at in chosen["edges"][1:]), chunks]
    large = [(name, at) for (name, at), end in zip(chosen["edges"], ends) if end - at > chunks / 30]
    repeated = sent_again(chosen["lists"])
    share = "" if repeated is None else f"\n{repeated:.0%} were sent in the step before, too"
    axis.set(
        title=f"Chunks sent at {chosen['percent']:g} % (black){share}",
        xlabel="step (step 0 is dense)",
        ylabel="chunk (a tensor's name: its first chunk)",
        yticks=[at for _, at in large],
        yticklabels=[name for name, _ in large],
    )


def density_in_words(result: dict) -> str:
    """The density of the trainings: first that of the warm-up's epochs, then the lesson's."""
    epochs, warmup = result["study"]["epochs"], result["options"]["warmup"]
    warmup = usual_warmup(epochs) if warmup is None else warmup
    first, last = [f"{percent:g}" for percent in warmup], f"{result['chosen']['percent']:g}"
    sent = f"{', '.join(first)} and then {last}" if first else last
    return f"CSC's {epochs} epochs send {sent} %."


def draw_learning(study: dict, density: str):
    """The appendix: other choices of chunks, and the forms of momentum correction."""
    figure, (left, right) = axes.frame(f"{TITLE}. Appendix: what is learned", 1, 2)
    count = len(study["pairs"])
    draw_differences(left, study["choice"], "by importance", count)
    left.set_title(f"Other choices of chunks, {count} paired runs")
    left.set_xlabel(f"loss minus that of the choice by importance\n({BELOW})")
    draw_differences(right, study["forms"], "dense", count, "accuracy")
    right.set_title(f"Forms (m: momentum), {count} paired runs")
    right.set_xlabel(f"accuracy minus that of dense training, points\n({ABOVE})")
    loss = loss_in_words(study["forms"])
    return axes.finish(figure, timed=False, below=f"{density} {loss}")


def loss_in_words(forms: dict) -> str:
    """What the training loss says of the accuracy that CSC costs; nothing if it costs none."""
    points, loss = (forms["none"][key] for key in ("accuracy", "loss"))
    if not points or points["high_s"] >= 0 or loss["low_s"] <= 0:
        return ""
    return (
        "The training loss of the last epoch is higher, too (none minus dense: "
        f"{loss['median_s']:+.2f}). So in as many steps CSC has learned the images less well."
    )


def draw_differences(axis, kinds: dict, base: str, pairs: int, what: str = "loss") -> None:
    """Mean paired difference and its 95 % interval, one line for each kind.

    what: "loss" of the last epoch, or "accuracy" on held-out images
    """
    names = [name for name in kinds if name != base]
    for y, name in enumerate(names):
        if difference := kinds[name][what]:  # a single run has none
            axes.points(axis, [y], [difference], across=True, ms=7, **axes.style(0))
    if pairs < 2:
        axis.annotate("too few runs", (0.5, 0.5), xycoords="axes fraction", ha="center")
    axis.axvline(0, color="grey", lw=1)
    axis.set_yticks(range(len(names)), [FORMS.get(name, name) for name in names])
    axis.set(ylim=(max(1, len(names)) - 0.5, -0.5))
    axis.grid(alpha=0.3, axis="x")
