"""The figures of lesson 08: measured points, the formula past them, published numbers.

Each panel shows one network on one cluster.
"""

from kit import axes
from refgf.papers.scaling.headlines import HEADLINES

MS, PERCENT = 1e3, "scaling efficiency, %"
SPEEDUP = HEADLINES[0].published  # GradientFlow's word; on 512 GPUs, over one


def draw(result: dict) -> dict:
    first = draw_here(result["here"]) if "here" in result else draw_points(result)
    far, headlines = draw_far(result["far"]), draw_headlines(result["headlines"])
    return {"": first, "far": far, "headlines": headlines, "rows": draw_rows(result["rows"])}


# ---- measured points ----


def draw_points(result: dict):
    points, factor = result["points"], result["regime"]["dilation"]
    figure, (left, right) = axes.frame(
        "Lesson 08: AlexNet on an emulated cluster, measured and predicted", 1, 2, (10, 4.8)
    )
    last = points[-1]
    rows = [{"name": "no exchange", "timing": last["off"], "predicted_s": None, "note": "100 %"}]
    for row in last["rows"]:
        percent = f"{efficiency(last, row['timing']['median_s']):.0f} %"
        note = percent + ", processor" * row["processor"]
        rows.append(row | {"name": short(row["name"]), "note": note})
    times_s = [row["timing"]["median_s"] for row in rows[1:]]
    axes.bars(left, rows, MS / factor, highlight=1 + times_s.index(min(times_s)) if times_s else 0)
    left.set_xlabel(f"step, ms of the cluster (this machine's / {factor:.4g})")
    left.set_title(f"{last['ranks']} ranks: percent is scaling efficiency")
    if last["rows"]:
        left.legend()
    draw_ends(right, points)
    axes.finish(figure)
    for axis in (left, right):
        axis.grid(alpha=0.3)
    return figure


def draw_ends(axis, points: list[dict]) -> None:
    """The techniques that were measured on each number of ranks; one rank sends nothing."""
    rows = {p["ranks"]: {row["name"]: row for row in p["rows"]} for p in points}
    common = [
        name for name in rows[points[-1]["ranks"]] if all(name in r for r in rows.values() if r)
    ]
    for number, name in enumerate(common):
        shown = [(p, rows[p["ranks"]][name]) for p in points if p["rows"]]
        ranks = [p["ranks"] for p, _ in shown]
        middle, low, high = (
            [efficiency(p, row["timing"][end]) for p, row in shown]
            for end in ("median_s", "high_s", "low_s")
        )
        errors = [[m - a for m, a in zip(middle, low)], [b - m for b, m in zip(high, middle)]]
        style = axes.style(number)
        axis.errorbar(ranks, middle, errors, ls="none", capsize=3, **style)
        predicted = [100.0] + [efficiency(p, row["predicted_s"]) for p, row in shown]
        axis.plot([1, *ranks], predicted, "--", color=style["color"])
        axis.annotate(
            short(name), (ranks[-1], middle[-1]), (-8, 10), textcoords="offset points", ha="right"
        )
    sizes = [p["ranks"] for p in points]
    axis.set_xticks(sizes, sizes)
    axis.set(xlabel="ranks, a batch each (weak scaling)", ylabel=PERCENT, ylim=(0, 115))
    axis.set_title("Measured (points), predicted (dashed)")


def efficiency(point: dict, step_s: float) -> float:
    return 100 * point["off"]["median_s"] / step_s


def short(name: str) -> str:
    return name.partition(",")[0]


# ---- this machine as a cluster ----


def draw_here(here: dict):
    figure, (left, right) = axes.frame(
        "Lesson 08: this machine as a cluster; its ranks compute for real", 1, 2, (10, 4.8)
    )
    points = here["points"]
    ranks = [point["ranks"] for point in points]
    for number, name in enumerate(points[0]["steps"]):
        style, middle = axes.style(number), [point["measured"][name] for point in points]
        low, high = (
            [efficiency(point, point["steps"][name][end]) for point in points]
            for end in ("high_s", "low_s")
        )
        errors = [[m - a for m, a in zip(middle, low)], [b - m for b, m in zip(high, middle)]]
        predicted = [point["predicted"][name] for point in points]
        left.errorbar(ranks, middle, errors, ls="none", capsize=3, label=short(name), **style)
        left.plot(ranks, predicted, "--", color=style["color"])
        right.plot(
            ranks + here["beyond"],
            predicted + here["curves"][name],
            "--",
            label=short(name),
            **style,
        )
    left.set_xticks(ranks, ranks)
    left.set(xlabel="ranks", ylabel=PERCENT, ylim=(0, None))
    left.set_title("Measured (points), predicted (dashed)")
    logarithmic(right, ranks + here["beyond"])
    right.set_title("PREDICTED for more ranks like these")
    return axes.finish(figure, left, right)


def logarithmic(axis, sizes: list[int]) -> None:
    axis.set_xscale("log", base=2)
    axis.set_xticks(sizes[::2], sizes[::2])
    axis.minorticks_off()
    axis.set(xlabel="ranks", ylabel=PERCENT, ylim=(0, 105))


# ---- past the points ----


def draw_far(far: dict):
    """PREDICTED: two networks on two published clusters; bands are the inputs' ranges."""
    figure, panels = axes.frame(
        "Lesson 08: PREDICTED past the points, with the best theta (bands: the inputs' ranges)",
        2,
        2,
        (10, 9),
    )
    both = [(network, cluster) for network in far for cluster in far[network]]
    for axis, (network, cluster) in zip(panels, both):
        best = draw_bands(axis, far[network][cluster])
        axis.set_title(f"{network}, {cluster}; {best}", fontsize=axes.TEXT_POINTS)
    published, text = (512, 100 * SPEEDUP / 512), f"published:\n{SPEEDUP} of 512"
    panels[0].plot(*published, "*", ms=14, color=axes.PREDICTED, mfc="white")
    panels[0].annotate(text, published, (8, 4), textcoords="offset points")
    panels[1].legend(loc="upper right")
    for axis in panels:
        axis.grid(alpha=0.3)
    return axes.finish(figure)


def draw_bands(axis, curves: dict) -> str:
    """A line in the middle of each band, on a scale of ratios. Returns the winner in words."""
    sizes, middles = curves["sizes"], {}
    for number, (name, ends) in enumerate(curves["systems"].items()):
        style, (low, high) = axes.style(number), zip(*ends)
        middles[name] = [(a * b) ** 0.5 for a, b in ends]
        axis.fill_between(sizes, low, high, color=style["color"], alpha=0.15)
        axis.plot(sizes, middles[name], lw=1.5, ms=4, label=short(name), **style)
    logarithmic(axis, sizes)
    winner = max(middles, key=lambda name: middles[name][-1])
    return f"best on {sizes[-1]}: {short(winner)}, {middles[winner][-1]:.0f} %"


# ---- published numbers ----


def draw_headlines(headlines: list):
    """Each predicted interval, divided by its published number."""
    figure, (axis,) = axes.frame(
        "Lesson 08: the papers' headlines, PREDICTED from independent inputs", 1, 1, (10, 5)
    )
    for y, headline in enumerate(headlines[::-1]):
        ends = [headline[end] / headline["published"] for end in ("low", "high")]
        colour = axes.COLOURS[0 if headline["inside"] else 4]
        axis.plot(ends, [y, y], lw=6, color=colour, solid_capstyle="butt")
        where = "inside" if headline["inside"] else "OUTSIDE"
        text = f"{headline['name']}: {headline['published']:g} {headline['unit']}, {where}"
        axis.annotate(text, (ends[0], y), (0, 7), textcoords="offset points")
    axis.axvline(1, color=axes.PREDICTED, lw=1, zorder=0)
    ticks = [0.2, 0.5, 1, 2, 5, 10]
    axis.set(xscale="log", xlabel="predicted / published; a bar is the range of the inputs")
    axis.set(yticks=[], ylim=(-0.5, len(headlines) - 0.3), xlim=(0.15, 20))
    axis.set_xticks(ticks, ticks)
    axis.minorticks_off()
    axis.grid(alpha=0.3)
    return axes.finish(figure)


def draw_rows(rows: list):
    """MG-WFBP's published rows; one cluster a panel, with the same four networks."""
    clusters = sorted({row["link"] for row in rows})
    figure, panels = axes.frame(
        "Lesson 08: MG-WFBP's rows on 16 V100, four networks x float32 and float16 x 3 systems",
        1,
        len(clusters),
        (10, 5),
    )
    for axis, link in zip(panels, clusters):
        chosen = [row for row in rows if row["link"] == link]
        measured = [t for row in chosen for t in row["measured_s"]]
        kinds = {"predicted_s": "from inputs only", "calibrated_s": "CALIBRATED, one overhead"}
        for number, (key, label) in enumerate(kinds.items()):
            ours = [t for row in chosen for t in row[key]]
            axis.plot(measured, ours, ls="none", mfc="none", label=label, **axes.style(number))
        axis.plot([0.2, 1.4], [0.2, 1.4], color="grey", lw=1)
        axis.set(xlabel="measured by the authors, s per step", ylabel="predicted, s", title=link)
    return axes.finish(figure, *panels)
