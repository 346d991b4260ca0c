"""The figures of lesson 08: measured points, the formula past them, published numbers.

Past the points one network on one cluster is drawn; -v has the tables of all.
"""

from kit import axes
from kit.words import number_of_ranks
from lab.scaling import models_picture
from lab.scaling.claims import gains
from lab.scaling.far import ALPHA, BANDWIDTH, ETHERNET, IB, RESNET_RATE
from lab.scaling.points import efficiency, short
from lab.stack import bars
from refgf.papers.scaling.confronted import SAID, SHARP, could_fail, verdict
from refgf.papers.scaling.headlines import HEADLINES, PERCENT, SMALL_BATCH, V100_RATE
from refgf.papers.scaling.rows import SYSTEMS

MS, EFFICIENCY = 1e3, "scaling efficiency, %"
RANKS = "ranks, a batch each (weak scaling)"
NAMES = {"10GbE": "10 Gbit/s Ethernet", "56Gb IB": "56 Gbit/s InfiniBand"}
WHAT = {bars.RING: "eager", bars.CSC: "everything switched on"}
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
    last = points[-1]
    title = f"Lesson 08: what can be known with {number_of_ranks(last['ranks'])} and a formula?"
    title += f" AlexNet like {result['regime']['like']}"
    figure, (left, right) = axes.frame(title, 1, 2, (axes.WIDTH_INCHES, 4.8))
    rows = [{"name": "no exchange", "timing": last["off"], "predicted_s": None, "note": "100 %"}]
    for row in last["rows"]:
        percent = efficiency(last["off"]["median_s"], row["timing"]["median_s"])
        note = f"{percent:.0f} %" + ", processor" * row["processor"]
        rows.append(row | {"name": short(row["name"]), "note": note})
    times_s = [row["timing"]["median_s"] for row in rows[1:]]
    axes.bars(left, rows, MS / factor, highlight=1 + times_s.index(min(times_s)) if times_s else 0)
    clock = axes.clock(factor).replace("\n", " ")
    left.set_xlabel(f"step, {clock}\npercent: scaling efficiency; dark bar: fastest with exchange")
    left.set_title(f"{last['ranks']} ranks; a + is added to the bar above")
    draw_curves(right, points)
    if last["rows"]:
        left.legend()
    for axis in (left, right):
        axis.grid(alpha=0.3)
    return axes.finish(figure, below=above_100(points))


def draw_curves(axis, points: list[dict]) -> None:
    """The formula through the measured points of the first and the last stack, and past them."""
    rows, off_s = points[-1]["rows"], points[-1]["off"]["median_s"]
    sizes = {point["ranks"] for point in points}
    for last in rows[:1] + rows[1:][-1:]:
        name, style = last["name"], style_of(last["name"])
        found = [(p, row) for p in points for row in p["rows"] if row["name"] == name]
        off = [p["off"] for p, _ in found]
        percents = bars.efficiencies(off, [row["timing"] for _, row in found])
        label = WHAT.get(short(name), short(name))
        axes.points(axis, [p["ranks"] for p, _ in found], percents, label=label, **style)
        curve = last.get("curve_s") or [(p["ranks"], row["predicted_s"]) for p, row in found]
        x, predicted = zip((1, 100.0), *((p, efficiency(off_s, step_s)) for p, step_s in curve))
        axis.plot(x, predicted, "--", color=style["color"], lw=1.5)
        sizes |= set(x)
    logarithmic(axis, sorted(sizes))
    if max(sizes) > points[-1]["ranks"]:
        start = points[-1]["ranks"] * 2**0.5
        axis.axvspan(start, max(sizes), color="grey", alpha=0.12, lw=0)
    title = "Points: measured; dashed: the formula\n(grey: PREDICTED only)"
    axis.set(title=title, ylim=(0, 110))
    if rows:
        axis.legend()


def above_100(points: list[dict]) -> str:
    """What a step above 100 % is, and whether one is measured; nothing where none is predicted."""
    steps = [(row, point["off"]["median_s"]) for point in points for row in point["rows"]]
    if any(row["timing"]["median_s"] < off_s for row, off_s in steps):
        return "Above 100 %: faster than no exchange."
    if any(row["predicted_s"] < off_s for row, off_s in steps):
        return "Dashed above 100 %: predicted to be faster than no exchange; no point is."
    return ""


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
    """PREDICTED: ResNet-50 on InfiniBand; what each technique gains on few and on many ranks."""
    curves = result["far"]["ResNet-50"][IB]
    title = f"Lesson 08: PREDICTED, ResNet-50 on {IB}, each rank with a batch of its own"
    figure, (left, right) = axes.frame(title, 1, 2, (axes.WIDTH_INCHES, 4.8))
    draw_bands(left, curves)
    draw_gains(right, [gains(result, place) for place in (0, -1)], curves["sizes"])
    below = f"Bands: ranges of the inputs. {inputs('ResNet-50', IB)}"
    return axes.finish(figure, left, right, computed=True, below=below)


def draw_gains(axis, pairs: list[dict], sizes: list[int]) -> None:
    """By how many times each technique raises the efficiency, on few and on many ranks."""
    few, many = pairs
    for y, name in enumerate(few):
        axis.plot([few[name], many[name]], [y, y], color="grey", lw=1)
    for number, (found, ranks) in enumerate(zip(pairs, (sizes[0], sizes[-1]))):
        style = {"ls": "none", "ms": 10 - 3 * number} | axes.style((1, 0)[number])
        axis.plot(list(found.values()), range(len(found)), label=f"{ranks} ranks", **style)
    best = max(many, key=many.get)
    spot = many[best], list(many).index(best)
    axis.annotate(f"{many[best]:.3g} x", spot, (0, 9), textcoords="offset points", ha="center")
    axis.axvline(1, color="black", lw=1)
    axis.set_yticks(range(len(few)), few)
    axis.set(
        title="None gains on many ranks what it gains on few",
        xlabel="efficiency with it over that without it",
        xscale="log",
        xlim=(0.8, 2 * many[best]),
        ylim=(len(few) - 0.5, -0.5),
    )
    ticks = [1, 2, 5, 10, 20]
    axis.set_xticks(ticks, ticks)
    axis.minorticks_off()


def inputs(network: str, cluster: str) -> str:
    """What is assumed of a GPU and of the link."""
    ends = [RESNET_RATE.values[0]]
    if network == "AlexNet":
        ends = [f(V100_RATE.values) * f(SMALL_BATCH.values) for f in (min, max)]
    link = link_in_words((ETHERNET.alpha_s,), (1 / ETHERNET.beta_s_per_byte,))
    link += f"; adding {1e-9 / ETHERNET.gamma_s_per_byte:.2g} GB/s"
    if cluster == IB:
        link = link_in_words(ALPHA.values, BANDWIDTH.values)
    rate = " to ".join(f"{end:.0f}" for end in ends)
    return f"{rate} images/s a GPU; {link}; the best theta. CSC sends {bars.DENSITY:g} %."


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


def draw_bands(axis, curves: dict) -> None:
    """A line in the middle of each band, on a scale of ratios; bands of the first and the last."""
    sizes, names = curves["sizes"], list(curves["systems"])
    for name, ends in curves["systems"].items():
        style, (low, high) = style_of(name), zip(*ends)
        middles = [(a * b) ** 0.5 for a, b in ends]
        axis.plot(sizes, middles, lw=1.5, ms=4, label=short(name), **style)
        if name in (names[0], names[-1]):
            axis.fill_between(sizes, low, high, color=style["color"], alpha=0.2, lw=0)
    logarithmic(axis, sizes)
    axis.set_title("Without lazy allreduce efficiency falls to a few percent")


# ---- published numbers ----


def draw_headlines(headlines: list):
    """Each predicted interval, divided by its published number."""
    figure, (axis,) = axes.frame(
        "Lesson 08: the papers' headlines, PREDICTED from independent inputs\n"
        f"faint: {SHARP:g} times wide or more, so it could hardly have missed",
        1,
        1,
        (10, 1.5 + 0.6 * len(headlines)),
    )
    ordered = sorted(headlines, key=lambda each: each["low"] / each["high"])  # narrow ones on top
    for y, headline in enumerate(ordered):
        low, high = ends = [headline[end] / headline["published"] for end in ("low", "high")]
        colour = axes.COLOURS[5 if headline["inside"] else 6]
        faint = 1.0 if could_fail(high / low) == SAID else 0.4
        axis.plot(ends, [y, y], lw=6, color=colour, alpha=faint, solid_capstyle="butt")
        where = verdict(headline["published"], headline["low"], headline["high"])
        if headline["inside"]:  # shorter; what is faint is said above
            where = f"{high / low:.2g} times wide"
        text = (
            f"{headline['name']}: {headline['published']:g} {headline['unit']}; "
            f"predicted {headline['low']:.3g} to {headline['high']:.3g}, {where}"
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
    """MG-WFBP's published rows: a panel a cluster, with how far predictions are off."""
    clusters = sorted({row["link"] for row in rows})
    networks = len({row["network"] for row in rows})
    title = (
        f"Lesson 08, appendix: MG-WFBP's published steps on 16 GPUs: {networks} networks, "
        f"float32 and float16, {len(SYSTEMS)} systems"
    )
    figure, panels = axes.frame(title, 1, len(clusters), (axes.WIDTH_INCHES, 5))
    for axis, link in zip(panels, clusters):
        chosen = [row for row in rows if row["link"] == link]
        for i, system in enumerate(SYSTEMS):  # coloured as in lesson 09
            points = [(row["measured_s"][i], row["predicted_s"][i]) for row in chosen]
            axis.plot(*zip(*points), ls="none", mfc="none", label=system, **axes.style(i))
        axis.plot([0.2, 1.4], [0.2, 1.4], color="grey", lw=1)
        plain, fitted = (mean_error(chosen, key) for key in ("predicted_s", "calibrated_s"))
        axis.set(
            xlabel="measured by the authors, s per step",
            ylabel="predicted, s per step; below the line: too fast",
            title=f"{NAMES[link]}: off by {plain:.0%} on average\n"
            f"(CALIBRATED, one overhead fitted: {fitted:.0%})",
        )
    return axes.finish(figure, *panels, computed=True)


def mean_error(rows: list[dict], key: str) -> float:
    """Mean of the relative errors of all steps."""
    errors = [abs(p / m - 1) for row in rows for p, m in zip(row[key], row["measured_s"])]
    return sum(errors) / len(errors)
