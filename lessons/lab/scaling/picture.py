"""The figures of lesson 08: measured points, the formula past them, published numbers.

Each panel shows one network on one cluster.
"""

from kit import axes
from lab.scaling import models_picture
from lab.scaling.far import ALPHA, BANDWIDTH, ETHERNET, IB, RESNET_RATE
from lab.scaling.points import efficiency, short
from lab.stack import bars
from refgf.papers.scaling.confronted import WIDE, verdict
from refgf.papers.scaling.headlines import HEADLINES, PERCENT, SMALL_BATCH, V100_RATE
from refgf.papers.scaling.rows import SYSTEMS

MS, EFFICIENCY = 1e3, "scaling efficiency, %"
SOURCES = (
    f"CSC sends {bars.DENSITY:g} %. One GPU's images/s are measured by others here, computed from "
    "published steps in the first figure: see V100 in the glossary."
)
RANKS = "ranks, a batch each (weak scaling)"
NAMES = {"10GbE": "10 Gbit/s Ethernet", "56Gb IB": "56 Gbit/s InfiniBand"}
OF_512 = "throughput of 512 GPUs over one GPU"
# GradientFlow's word: throughput of 512 GPUs over one GPU's, AlexNet
SPEEDUP = next(each.published for each in HEADLINES if each.name.endswith(OF_512))


def draw(result: dict) -> dict:
    first = draw_here(result["here"]) if "here" in result else draw_points(result)
    found = {"": first, "far": draw_far(result)} | models_picture.draw(result.get("models", {}))
    if "headlines" in result:
        found["headlines"] = draw_headlines(result["headlines"])
        found["rows"] = draw_rows(result["rows"])
    return found


def style_of(name: str) -> dict:
    """The line of a technique, as in lesson 07."""
    return bars.style(short(name))


# ---- measured points ----


def draw_points(result: dict):
    points, factor = result["points"], result["regime"]["dilation"]
    figure, (left, right) = axes.frame(
        f"Lesson 08: AlexNet like {result['regime']['like']}, measured and predicted",
        1,
        2,
        (10, 4.8),
    )
    last = points[-1]
    rows = [{"name": "no exchange", "timing": last["off"], "predicted_s": None, "note": "100 %"}]
    for row in last["rows"]:
        percent = efficiency(last["off"]["median_s"], row["timing"]["median_s"])
        note = f"{percent:.0f} %" + ", processor" * row["processor"]
        rows.append(row | {"name": short(row["name"]), "note": note})
    times_s = [row["timing"]["median_s"] for row in rows[1:]]
    axes.bars(left, rows, MS / factor, highlight=1 + times_s.index(min(times_s)) if times_s else 0)
    clock = axes.clock(factor).replace("\n", " ")
    left.set_xlabel(f"step, {clock}\npercent: scaling efficiency; dark bar: fastest")
    left.set_title(f"{last['ranks']} ranks; a + is added to the bar above")
    draw_curves(right, points)
    if last["rows"]:
        left.legend()
    for axis in (left, right):
        axis.grid(alpha=0.3)
    return axes.finish(figure)


def draw_curves(axis, points: list[dict]) -> None:
    """The formula through the measured points of each technique, and past them."""
    off_s, sizes = points[-1]["off"]["median_s"], {point["ranks"] for point in points}
    for last in points[-1]["rows"]:
        name, style = last["name"], style_of(last["name"])
        found = [(p, row) for p in points for row in p["rows"] if row["name"] == name]
        off = [p["off"] for p, _ in found]
        percents = bars.efficiencies(off, [row["timing"] for _, row in found])
        axes.points(axis, [p["ranks"] for p, _ in found], percents, label=short(name), **style)
        curve = last.get("curve_s") or [(p["ranks"], row["predicted_s"]) for p, row in found]
        x, predicted = zip((1, 100.0), *((p, efficiency(off_s, step_s)) for p, step_s in curve))
        axis.plot(x, predicted, "--", color=style["color"], lw=1)
        sizes |= set(x)
    logarithmic(axis, sorted(sizes))
    axis.set(
        title=f"Points: measured; dashed: predicted\n{above_100(points[-1], off_s)}",
        ylim=(0, 150),
        yticks=range(0, 101, 20),
    )
    if points[-1]["rows"]:
        axis.legend(loc="upper right", ncols=2)


def above_100(point: dict, off_s: float) -> str:
    """Why an efficiency is above 100 %, and whether that one is measured."""
    measured = any(row["timing"]["median_s"] < off_s for row in point["rows"])
    return f"{'' if measured else 'dashed '}above 100 %: fewer weights updated"


# ---- this machine as a cluster ----


def draw_here(here: dict):
    figure, (left, right) = axes.frame(
        "Lesson 08: this machine as a cluster; its ranks compute for real", 1, 2, (10, 4.8)
    )
    points = here["points"]
    ranks = [point["ranks"] for point in points]
    for name in points[0]["steps"]:
        style, off = style_of(name), [point["off"] for point in points]
        percents = bars.efficiencies(off, [point["steps"][name] for point in points])
        predicted = [point["predicted"][name] for point in points]
        axes.points(left, ranks, percents, label=short(name), **style)
        left.plot(ranks, predicted, "--", color=style["color"])
        right.plot(
            ranks + here["beyond"],
            predicted + here["curves"][name],
            "--",
            label=short(name),
            **style,
        )
    left.set_xticks(ranks, ranks)
    left.set(xlabel=RANKS, ylabel=EFFICIENCY, ylim=(0, None))
    left.set_title("Measured (points), predicted (dashed)")
    logarithmic(right, ranks + here["beyond"])
    right.set_title("PREDICTED for more ranks like these")
    return axes.finish(figure, left, right)


def logarithmic(axis, sizes: list[int]) -> None:
    axis.set_xscale("log", base=2)
    shown = sizes[:: 2 if len(sizes) > 5 else 1]
    axis.set_xticks(shown, shown)
    axis.minorticks_off()
    axis.set(xlabel=RANKS, ylabel=EFFICIENCY, ylim=(0, 105))


# ---- past the points ----


def draw_far(result: dict):
    """PREDICTED: two networks on two published clusters; bands are the inputs' ranges."""
    far = result["far"]
    title = "Lesson 08: PREDICTED, each rank with a batch of its own and the best theta"
    figure, panels = axes.frame(title, 2, 2, (10, 9.6))
    both = [(network, cluster) for network in far for cluster in far[network]]
    for axis, (network, cluster) in zip(panels, both):
        draw_bands(axis, far[network][cluster], f"{network}, {inputs(network, cluster)}")
    panels[1].legend(loc="upper right")
    for axis in panels:
        axis.grid(alpha=0.3)
    return axes.finish(figure, computed=True, below=SOURCES)


def inputs(network: str, cluster: str) -> str:
    """What is assumed of a GPU and of the link."""
    ends = [RESNET_RATE.values[0]]
    if network == "AlexNet":
        ends = [f(V100_RATE.values) * f(SMALL_BATCH.values) for f in (min, max)]
    link = link_in_words((ETHERNET.alpha_s,), (1 / ETHERNET.beta_s_per_byte,))
    link += f"; adding {1e-9 / ETHERNET.gamma_s_per_byte:.2g} GB/s"
    if cluster == IB:
        link = link_in_words(ALPHA.values, BANDWIDTH.values)
    return f"{cluster}\n{' to '.join(f'{end:.0f}' for end in ends)} images/s a GPU\n{link}"


def share_of_chunks(headline: dict) -> str:
    """Why the interval of AlexNet's speedup is wide."""
    low, high = PERCENT.values
    begins = f"{headline['low']:.0f} of 512 ({100 * headline['low'] / 512:.0f} %)"
    return (
        f"CSC sends {low:g} to {high:g} % of the chunks here, because {SPEEDUP} of 512 states no "
        f"share: its interval begins at {begins}. Elsewhere CSC sends {bars.DENSITY:g} %."
    )


def link_in_words(alphas_s, bandwidths) -> str:
    """Latency and bandwidth, or the ends of their ranges: 5 to 7.9 us, 4.6 to 7 GB/s."""
    latency = " to ".join(f"{1e6 * alpha_s:.3g}" for alpha_s in alphas_s)
    return f"{latency} us, {' to '.join(f'{b / 1e9:.3g}' for b in bandwidths)} GB/s"


def draw_bands(axis, curves: dict, title: str) -> None:
    """A line in the middle of each band, on a scale of ratios; bands of the first and the last."""
    sizes, middles, names = curves["sizes"], {}, list(curves["systems"])
    for name, ends in curves["systems"].items():
        style, (low, high) = style_of(name), zip(*ends)
        middles[name] = [(a * b) ** 0.5 for a, b in ends]
        axis.plot(sizes, middles[name], lw=1.5, ms=4, label=short(name), **style)
        if name in (names[0], names[-1]):
            label = "bands: ranges of the inputs" if name == names[-1] else None
            axis.fill_between(sizes, low, high, color=style["color"], alpha=0.2, lw=0, label=label)
    logarithmic(axis, sizes)
    winner = max(middles, key=lambda name: middles[name][-1])
    text, spot = f"{middles[winner][-1]:.0f} %", (sizes[-1], middles[winner][-1])
    axis.annotate(text, spot, (6, 2), textcoords="offset points", weight="bold")
    axis.set_xlim(right=2.6 * sizes[-1])
    axis.set_title(f"{title}\nbest on {sizes[-1]} ranks: {short(winner)}", fontsize=10)


# ---- published numbers ----


def draw_headlines(headlines: list):
    """Each predicted interval, divided by its published number."""
    figure, (axis,) = axes.frame(
        "Lesson 08: the papers' headlines, PREDICTED from independent inputs\n"
        "a bar: from the lowest to the highest prediction that the inputs' ranges allow\n"
        f"faint: more than {WIDE:g} times wide, so that to be inside says little",
        1,
        1,
        (10, 1.5 + 0.6 * len(headlines)),
    )
    for y, headline in enumerate(headlines[::-1]):
        low, high = ends = [headline[end] / headline["published"] for end in ("low", "high")]
        colour = axes.COLOURS[5 if headline["inside"] else 6]
        faint = 0.4 if high > WIDE * low else 1.0
        axis.plot(ends, [y, y], lw=6, color=colour, alpha=faint, solid_capstyle="butt")
        where = verdict(headline["published"], headline["low"], headline["high"])
        if headline["inside"]:  # shorter; what is faint is said above
            where = f"inside, {high / low:.2g} times wide"
        text = (
            f"{headline['name']}: published {headline['published']:g} {headline['unit']}, "
            f"predicted {headline['low']:.3g} to {headline['high']:.3g}: {where}"
        )
        white = {"facecolor": "white", "edgecolor": "none", "pad": 1}
        place = (0.02, y), (0, 8), ("axes fraction", "data"), "offset points"
        axis.annotate(text, *place, bbox=white).set_in_layout(False)
    axis.axvline(1, color=axes.PREDICTED, lw=1, zorder=0)
    ticks = [0.2, 0.5, 1, 2, 5, 10]
    axis.set(xscale="log", xlabel="predicted number over published number, both in the row's unit")
    axis.set(yticks=[], ylim=(-0.5, len(headlines) - 0.3), xlim=(0.15, 20))
    axis.set_xticks(ticks, ticks)
    axis.minorticks_off()
    axis.grid(alpha=0.3)
    return axes.finish(figure, computed=True, below=share_of_chunks(headlines[0]))


def draw_rows(rows: list):
    """MG-WFBP's published rows: a column a cluster, above without and below with a fitted overhead.

    One cluster's panels have the same networks.
    """
    clusters = sorted({row["link"] for row in rows})
    networks = len({row["network"] for row in rows})
    title = (
        "Lesson 08: MG-WFBP's published steps on 16 GPUs\n"
        f"a panel: {networks} networks, in float32 and float16, by {len(SYSTEMS)} systems\n"
        "CALIBRATED: the same seconds are added to every step of a panel, fitted to its points"
    )
    figure, panels = axes.frame(title, 2, len(clusters), (10, 9))
    kinds = {"predicted_s": "from inputs only", "calibrated_s": "CALIBRATED, one overhead"}
    both = [(key, kind, link) for key, kind in kinds.items() for link in clusters]
    for axis, (key, kind, link) in zip(panels, both):
        chosen = [row for row in rows if row["link"] == link]
        for i, system in enumerate(SYSTEMS):  # coloured as in lesson 09
            points = [(row["measured_s"][i], row[key][i]) for row in chosen]
            axis.plot(*zip(*points), ls="none", mfc="none", label=system, **axes.style(i))
        axis.plot([0.2, 1.4], [0.2, 1.4], color="grey", lw=1)
        axis.set(
            xlabel="measured by the authors, s per step",
            ylabel="predicted, s per step; below the line: too fast",
            title=f"{NAMES[link]}, {kind}",
        )
    return axes.finish(figure, *panels, computed=True)
