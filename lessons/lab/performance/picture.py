"""The figures of lesson 15: kernels and layers; for the appendix steps, rooflines, bottlenecks."""

import numpy as np

from kit import axes
from lab.performance import composed_picture
from lab.performance.claims import layers_s
from refgf.papers.scaling.workloads import alexnet

MS = 1e3
MODELS = {"roofline": axes.style(1), "perceptrons": axes.style(0)}
DRAWN = {  # {(layer, images): label}; conv1's two points lie at nearly the same place
    ("fc6", 1): "fc6 (fully connected)\n1 image",
    ("fc6", 64): "fc6\n64 images",
    ("conv1", 1): "conv1\n1 or 64 images",
    ("conv1", 64): "",
}
PEAKS = (
    "Bounds: peaks of this machine's core as measured, of a V100 as its data sheet says. "
    "The roofs of the first figure are others: they are fitted to kernels."
)
RESOURCES = {"flops": axes.style(5), "memory": axes.style(3), "network": axes.style(4)}
PARTS = {  # of a step's time
    "flops": "flops:\ncomputing",
    "memory": "memory: reading\nand writing",
    "network": "network:\nexchange that\nis not hidden",
}


def draw(result: dict) -> dict:
    title = "Lesson 15: how long will a layer take that nobody has run yet?"
    figure, (kernels, steps) = axes.frame(title, 1, 2)
    clock = "GPU" if "device" in result else "processor"
    draw_kernels(kernels, result["kernels"], clock)
    draw_steps(steps, result["steps"], clock)
    figures = {"": axes.finish(figure, kernels, steps, below=unseen(result))}
    title = "Lesson 15, appendix: a layer's limit may change with its batch (AlexNet, forward)"
    figure, (axis,) = axes.frame(title, 1, 1)
    draw_limits(axis, result["layers"]["nodes"])
    figures["roofline"] = axes.finish(figure, axis, computed=True, below=PEAKS)
    base, maps = result["base"], result["map"]["bottlenecks"]
    title = (
        f"Lesson 15, appendix: the bottleneck of a step on {base['ranks']} V100s "
        "(PREDICTED)\nBottleneck: the resource that takes the largest share of the step's time"
    )
    figure, panels = axes.frame(title, 1, len(maps))
    for axis, (name, rows) in zip(panels, maps.items()):
        draw_map(axis, name, rows, result["map"], base)
    figures["bottlenecks"] = axes.finish(figure, computed=True, below=star_in_words(base))
    rows = result.get("composed", [])
    composed = composed_picture.draw(rows)
    for figure in composed.values():
        ranks = " and ".join(", ".join(str(row["ranks"]) for row in rows).rsplit(", ", 1))
        figure.set_label(f"{ranks} ranks, while the others sleep; {result['place']}")
    return figures | composed


def unseen(result: dict) -> str:
    """What the models have not seen, and how well the clock repeats itself."""
    training, name = result["training"], result["steps"][0].get("network", "a narrow AlexNet")
    return (
        f"Left: {training['unseen']} shapes that no model has seen, forward and backward. Measured "
        f"twice, a kernel differs by {training['repeatability']:.1%} (median). Right: {name}, at "
        "batch sizes that no model has seen."
    )


def draw_kernels(axis, kernels: list, clock: str) -> None:
    measured = np.array([MS * kernel["measured_s"] for kernel in kernels])
    for name, style in MODELS.items():
        predicted = np.array([MS * kernel[name] for kernel in kernels])
        shown = "roofline, both roofs fitted" if name == "roofline" else name
        label = f"{shown}: median error {np.median(abs(predicted / measured - 1)):.1%}"
        axis.plot(measured, predicted / measured, ls="none", ms=4, alpha=0.6, label=label, **style)
    axis.axhline(1, color="black", lw=1)
    ticks = [0.25, 0.5, 0.8, 1, 1.25, 2, 4]
    axis.set(
        title="Single layers: a point on the line is right",
        xlabel=f"measured, ms of this machine's {clock}",
        ylabel="predicted / measured",
        xscale="log",
        yscale="log",
    )
    axis.set_yticks(ticks, [f"{tick:g}" for tick in ticks], minor=False)
    axis.set_yticks([], minor=True)
    low, high = axis.get_ylim()
    axis.set_ylim(min(low, 0.5), 1.4 * max(high, 2))  # room for the legend


def draw_steps(axis, steps: list, clock: str) -> None:
    """What the models predict of a step: the layers without the rest, which none predicts."""
    measured = [MS * layers_s(step, "measured") for step in steps]
    series = {"measured": {"color": axes.COLOURS[2]}, **MODELS}
    for j, (name, style) in enumerate(series.items()):
        x = [i + 0.27 * (j - 1) for i in range(len(steps))]
        heights = [MS * layers_s(step, name) for step in steps]
        label = "measured, each layer's fastest" if name == "measured" else name
        look = {"color": style["color"], "ec": "white", "hatch": ("", "//", "..")[j]}
        bars = axis.bar(x, heights, 0.25, label=label, **look)
        if name != "measured":
            errors = [f"{high / true - 1:+.0%}" for high, true in zip(heights, measured)]
            axis.bar_label(bars, errors, padding=2)
    axis.set_ylim(0, 1.35 * axis.get_ylim()[1])  # room for the legend
    axis.set_xticks(range(len(steps)), [step["batch"] for step in steps])
    axis.set(
        title="All layers of a step together: measured, predicted",
        xlabel="images in a batch",
        ylabel=f"ms of this machine's {clock}",
    )


def draw_limits(axis, nodes: dict) -> None:
    """Layers of AlexNet under the roofs of all nodes, with one image and with many."""
    intensity, seen = np.logspace(-1.5, 3.5, 200), set()
    for (name, node), style in zip(nodes.items(), ("-", "--", ":")):
        roof = np.minimum(node["flops"], node["bandwidth"] * intensity)
        label = "one core of this machine" if name == "this machine" else name
        axis.plot(intensity, roof, style, color=axes.PREDICTED, label=label)
    layers = {layer.name: layer for layer in alexnet().layers}
    for name, node in nodes.items():
        for (layer, images), text in DRAWN.items():
            x = images * layers[layer].forward_flops / layers[layer].forward_bytes(images, 4)
            y = min(node["flops"], node["bandwidth"] * x)
            limit = "memory" if node["bandwidth"] * x < node["flops"] else "flops"
            label = None if limit in seen else f"limited by {limit}"
            seen.add(limit)
            axis.plot(x, y, ls="none", ms=9, label=label, **RESOURCES[limit])
            if name == "this machine":
                place = {"xytext": (6, -8), "textcoords": "offset points", "va": "top"}
                axis.annotate(text, (x, y), fontsize=axes.TEXT_POINTS, **place)
    axis.set(
        xscale="log",
        yscale="log",
        xlabel="flops for each byte that is read or written",
        ylabel="the most flop/s, computed by the roofline",
        xlim=(0.03, 3000),
    )


def star_in_words(base: dict) -> str:
    """What the map leaves unchanged, and where its star is."""
    return (
        f"A V100 as its data sheet says: {base['flops'] / 1e12:g} Tflop/s (float32), "
        f"{base['memory'] / 1e9:g} GB/s. Star: {base['batch']} images a rank, "
        f"{8e-9 * base['link']:g} Gbit/s."
    )


def inside(region) -> tuple[float, float]:
    """(x, y) of this region's cell that is furthest from its border, the most central of those.

    region: (rows, columns) of bool
    """
    cells, outside = np.argwhere(region), np.argwhere(~np.pad(region, 1)) - 1
    away = np.array([np.abs(outside - cell).max(axis=1).min() for cell in cells])
    deepest = cells[away == away.max()]
    y, x = min(deepest, key=lambda cell: np.abs(cell - deepest.mean(axis=0)).sum())
    return x, y


def draw_map(axis, name: str, rows: list, given: dict, base: dict) -> None:
    """Coloured cells, each region with the name of its resource; a star at the base."""
    from matplotlib.colors import ListedColormap

    resources = list(RESOURCES)
    numbers = np.array([[resources.index(bottleneck) for bottleneck in row] for row in rows])
    colours = ListedColormap([style["color"] for style in RESOURCES.values()])
    axis.imshow(numbers, origin="lower", aspect="auto", cmap=colours, vmin=-0.5, vmax=2.5)
    for number, resource in enumerate(resources):
        if (numbers == number).any():
            axis.annotate(PARTS[resource], inside(numbers == number), ha="center", va="center")
    x, y = (
        np.interp(np.log(base[key]), np.log(given[scale]), range(len(given[scale])))
        for key, scale in (("batch", "batches"), ("link", "links"))
    )
    axis.plot(x, y, "*", color="white", mec="black", ms=12)
    axis.set_xticks(range(len(given["batches"])), given["batches"])
    axis.set_yticks(range(len(given["links"])), [f"{8e-9 * link:.4g}" for link in given["links"]])
    axis.set(title=name, xlabel="images a rank", ylabel="rate of a link, Gbit/s")
