"""The picture of lesson 08: measured points, curves through and past them, published numbers."""


def draw(result: dict):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 3, figsize=(19, 11))
    draw_measured(axes[0, 0], result["here"])
    draw_beyond(axes[0, 1], result["here"])
    draw_headlines(axes[0, 2], result["headlines"])
    draw_far(axes[1, 0], "AlexNet", "56 Gbit/s InfiniBand", result["far"])
    draw_far(axes[1, 1], "ResNet-50", "10 Gbit/s Ethernet", result["far"])
    draw_rows(axes[1, 2], result["rows"])
    for axis in axes.flat:
        axis.grid(alpha=0.3)
    figure.suptitle("Lesson 08: measured on a few ranks, predicted for many")
    figure.tight_layout(rect=(0, 0.02, 1, 1))
    return figure


def colours(names) -> dict:
    return {name: f"C{i}" for i, name in enumerate(names)}


def draw_measured(axis, here: dict) -> None:
    points = here["points"]
    ranks = [point["ranks"] for point in points]
    for name, colour in colours(points[0]["measured"]).items():
        steps = [point["steps"][name] for point in points]
        off_s = [point["alone"]["median_s"] for point in points]
        measured = [point["measured"][name] for point in points]
        low, high = (
            [p * off / step[end] for p, off, step in zip(ranks, off_s, steps)]
            for end in ("high_s", "low_s")
        )
        spread = [m - a for m, a in zip(measured, low)], [b - m for m, b in zip(measured, high)]
        axis.errorbar(
            ranks, measured, spread, marker="o", ls="none", capsize=3, color=colour, label=name
        )
        axis.plot(ranks, [point["predicted"][name] for point in points], "--", color=colour)
    axis.plot(ranks, ranks, color="grey", lw=1)
    axis.set(xlabel="ranks", ylabel="throughput, in ranks", ylim=(0, None))
    axis.set_title("This cluster: measured (points), predicted (dashed)")
    axis.set_xticks(ranks, ranks)
    axis.legend(fontsize=8)


def draw_beyond(axis, here: dict) -> None:
    points = here["points"]
    for name, colour in colours(points[0]["measured"]).items():
        axis.plot(
            [p["ranks"] for p in points],
            [p["measured"][name] for p in points],
            "o",
            color=colour,
            ms=4,
        )
        ranks = [p["ranks"] for p in points] + here["beyond"]
        predicted = [p["predicted"][name] for p in points] + here["curves"][name]
        axis.plot(ranks, predicted, "--", color=colour, label=name)
    logarithmic(axis, ranks)
    axis.set_title("PREDICTED past the points: more ranks on links like these", fontsize=10)


def logarithmic(axis, ranks) -> None:
    axis.plot(ranks, ranks, color="grey", lw=1, label="100 % efficiency")
    axis.set_xscale("log", base=2)
    axis.set_yscale("log", base=2)
    axis.set_xticks(ranks, ranks, fontsize=8)
    axis.set(xlabel="ranks", ylabel="throughput, in ranks")
    axis.legend(fontsize=7)


def draw_far(axis, network: str, cluster: str, far: dict) -> None:
    curves = dict(far[network][cluster])
    fitted = curves.pop("fitted lines")
    for name, colour in colours(curves).items():
        sizes = [int(size) for size in curves[name]]
        low, high = zip(*curves[name].values())
        axis.fill_between(sizes, low, high, color=colour, alpha=0.15)
        axis.plot(
            sizes,
            [(a * b) ** 0.5 for a, b in zip(low, high)],
            "-",
            color=colour,
            lw=1.5,
            label=name,
        )
    axis.plot(
        [int(p) for p in fitted],
        list(fitted.values()),
        "kx",
        label="lazy, published fits of 4 to 64 GPUs",
    )
    logarithmic(axis, sizes)
    axis.set_title(f"PREDICTED: {network}, {cluster} (bands: the inputs' ranges)", fontsize=10)


def draw_headlines(axis, headlines: list) -> None:
    """Each predicted interval, divided by its published number."""
    for y, headline in enumerate(headlines[::-1]):
        ends = [headline[end] / headline["published"] for end in ("low", "high")]
        axis.plot(
            ends,
            [y, y],
            lw=6,
            color="tab:green" if headline["inside"] else "tab:red",
            solid_capstyle="butt",
        )
        published = f"published {headline['published']:g} {headline['unit']}"
        text = f"{headline['name']}\n{published}; widest input: {headline['widest']}"
        axis.annotate(text, (ends[0], y), xytext=(0, 6), textcoords="offset points", fontsize=8)
    axis.axvline(1, color="lightgrey", zorder=0)
    axis.set(
        xscale="log",
        xlabel="predicted / published",
        yticks=[],
        ylim=(-0.5, len(headlines) - 0.2),
        xlim=(0.15, 20),
    )
    axis.set_title("The papers' headlines: intervals from independent inputs", fontsize=10)


def draw_rows(axis, rows: list) -> None:
    styles = {"10GbE": "tab:orange", "56Gb IB": "tab:blue"}
    for what, marker, fill in (("predicted_s", "o", "none"), ("calibrated_s", "x", None)):
        for link, colour in styles.items():
            chosen = [row for row in rows if row["link"] == link]
            measured = [t for row in chosen for t in row["measured_s"]]
            ours = [t for row in chosen for t in row[what]]
            label = f"{link}, {'from inputs only' if fill else 'CALIBRATED, one overhead'}"
            colour_ = {"facecolors": fill, "edgecolors": colour} if fill else {"color": colour}
            axis.scatter(measured, ours, marker=marker, s=25, label=label, **colour_)
    axis.plot([0.2, 1.4], [0.2, 1.4], color="grey", lw=1)
    axis.set(xlabel="measured by the authors, s per step", ylabel="predicted, s")
    axis.set_title("MG-WFBP's 16 rows x 3 systems", fontsize=10)
    axis.legend(fontsize=8)
