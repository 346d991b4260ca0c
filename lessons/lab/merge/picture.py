"""The figures of lesson 09: steps of all groupings, how often greedy misses, far more GPUs."""

from kit import axes
from kit.rows import at, best
from kit.words import count
from lab.merge.curves import BEST, RULE, SYNC, WFBP
from lab.merge.steps import EAGER, EXACT, GREEDY

NAMES = {EAGER: "eager", GREEDY: "greedy rule (MG-WFBP)", EXACT: "best merge (exact)"}
CURVES = {
    WFBP: "eager (WFBP)",
    SYNC: "one call (SyncEASGD)",
    RULE: NAMES[GREEDY],
    BEST: NAMES[EXACT],
}
BANDS = (
    "Bands: from the lowest to the highest prediction that the ranges of the rings' alpha and beta "
    "allow; the line is their geometric mean. Those of Ethernet have no range."
)
THREE = (
    "Ready after 1, 2 and 4 units; a call takes 2, a gradient's bytes 1. The rule merges the first "
    "two and ends at 9. The best merge sends the first alone and ends at 8."
)


def name_of(row: str) -> str:
    """The name of a grouping in words: 'lazy 1 MiB' -> 'theta = 1 MiB', as in lesson 03."""
    return NAMES.get(row, row.replace("lazy ", "theta = "))


def draw(result: dict) -> dict:
    """The first network, other networks, misses, and curves of up to 2048 GPUs."""
    networks, like = result["networks"], result["regime"]["like"]
    figures = {}
    for number, (key, network) in enumerate(networks.items()):
        where = "on this machine's links" if like == "this-machine" else f"like {like}"
        place = f"{network['title']} {where}, {result['ranks']} ranks, with overlap"
        title = f"Lesson 09: which gradients are sent together?\n{place}"
        k, distant = result["regime"]["dilation"], network.get("far")
        figure, (steps,) = axes.frame(title, 1, 1)
        draw_steps(steps, network["rows"], k)
        off = axes.MS * network["without_exchange"]["median_s"] / k
        steps.axvline(off, color="grey", lw=1, label="no exchange")
        figures[key if number else ""] = axes.finish(figure, steps)
        if distant:
            title = (
                f"Lesson 09: the same step with the latency of a ring on {distant['ranks']} ranks"
            )
            figure, (steps,) = axes.frame(f"{title}\n{place}", 1, 1, (axes.WIDTH_INCHES, 4))
            draw_steps(steps, distant["rows"], k)
            figures["far"] = axes.finish(figure, steps, below=slept(distant, result["ranks"], k))
    title = "Lesson 09: how often, and by how much, the greedy rule misses the best merge"
    figure, (misses,) = axes.frame(title, 1, 1)
    draw_misses(misses, result["misses"])
    figures["misses"] = axes.finish(figure, misses, computed=True)
    if three := result.get("counterexample"):
        title = "Lesson 09: three gradients for which the greedy rule is wrong"
        figure, (steps,) = axes.frame(title, 1, 1, (axes.WIDTH_INCHES, 3.5))
        rows = [
            row | {"name": name_of(row["name"]), "note": count(row["calls"], "call")}
            for row in three
        ]
        axes.bars(steps, rows, axes.MS, 1)
        steps.set(xlabel=f"end of the last call, {axes.clock(1)}")
        figures["counterexample"] = axes.finish(figure, steps, below=THREE)
    return figures | {"scaling": draw_curves(result["curves"])}


def draw_steps(axis, rows: list[dict], k: float) -> None:
    """Bars in the cluster's time; the best merge is highlighted, the prediction is a diamond."""
    bars = [
        row | {"name": name_of(row["name"]), "note": count(row["calls"], "call")} for row in rows
    ]
    exact = next(i for i, row in enumerate(rows) if row["name"] == EXACT)
    axes.bars(axis, bars, axes.MS / k, exact)
    axis.set(title=against_theta(rows), xlabel=f"a training step, {axes.clock(k)}")


def slept(distant: dict, ranks: int, k: float) -> str:
    """What is slept, and where the theta comes from."""
    return (
        f"Each call sleeps the {axes.MS * distant['late_s'] / k:.2g} ms by which the latency of a "
        f"ring on {distant['ranks']} ranks is longer than on {ranks}. The theta is, of those in "
        f"the first figure, predicted best on {ranks} ranks. The merges are computed anew."
    )


def against_theta(rows: list[dict]) -> str:
    """The best merge's time over that of the fastest theta, and whether their ranges overlap."""
    fastest = best([row for row in rows if row["theta"] is not None], "timing")
    merged, swept = at(rows, {"name": EXACT}, "timing"), fastest["timing"]
    ratio = merged["median_s"] / swept["median_s"]
    level = merged["low_s"] <= swept["high_s"] and swept["low_s"] <= merged["high_s"]
    close = ", within noise" if level else ""
    return f"The best merge takes {ratio:.2f} times as long as {name_of(fastest['name'])}{close}"


def draw_misses(axis, misses: list[dict]) -> None:
    """Of each kind of network, the share on which greedy is longer by at least x percent."""
    missed = [row for row in misses if row["excesses"]]
    for number, row in enumerate(missed):
        excesses = [100 * excess for excess in row["excesses"]]
        shares = [100 * row["missed"] * (1 - i / len(excesses)) for i in range(len(excesses))]
        label = f"{row['kind'].replace('any', 'random networks')}: {row['networks']} cases"
        axis.plot(excesses, shares, ms=4, label=label, **axes.style(number))
    never = [row["kind"] for row in misses if not row["excesses"]]
    text = "\n".join(["never missed, of random networks:", *never])
    axis.annotate(text, (0.98, 0.6), xycoords="axes fraction", ha="right", va="top")
    axis.set(
        title="Computed from ready times and a + b m for a call of m bytes; nothing is measured",
        xlabel="the greedy rule's step is longer than the best merge's by at least, %",
        ylabel="share of cases, %",
        xscale="log",
        xlim=(1e-2, None),
    )


def draw_curves(curves: dict):
    """PREDICTED scaling efficiency: a panel for each cluster; inputs with a range have a band."""
    title = (
        "Lesson 09: PREDICTED for up to 2048 GPUs, ResNet-50 in float32, 64 images a GPU\n"
        "253 images/s a GPU, and the rings' alpha and beta, as others have measured (lesson 08)"
    )
    figure, panels = axes.frame(title, 1, len(curves))
    for axis, (cluster, found) in zip(panels, curves.items()):
        sizes, ends = found["sizes"], found["systems"]
        for number, (name, label) in enumerate(CURVES.items()):
            style, middle = axes.style(number), [(low * high) ** 0.5 for low, high in ends[name]]
            size = 11 - 2.5 * number  # where two series coincide, both are seen
            axis.plot(sizes, middle, label=label, ms=size, **style)
            axis.fill_between(sizes, *zip(*ends[name]), color=style["color"], alpha=0.2, lw=0)
        axis.set_xscale("log", base=2)
        axis.set_xticks(sizes[::2], sizes[::2])
        axis.minorticks_off()
        axis.set(xlabel="GPUs", ylabel="scaling efficiency, %", ylim=(0, 105))
        axis.set_title(f"{cluster}\n{becomes_one_call(found)}")
    return axes.finish(figure, *panels, computed=True, below=BANDS)


def becomes_one_call(found: dict) -> str:
    """From how many GPUs on the greedy rule sends what SyncEASGD sends, in words."""
    sizes, (rule, sync) = found["sizes"], (found["systems"][name] for name in (RULE, SYNC))
    same = [a == b for a, b in zip(rule, sync)]
    first = next((size for i, size in enumerate(sizes) if all(same[i:])), None)
    if first is None:
        return "the greedy rule never makes one call"
    return f"from {first} GPUs on the greedy rule makes one call"
