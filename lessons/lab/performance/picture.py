"""The figures of lesson 15: kernels and steps, rooflines, one resource at a time, bottlenecks."""

import numpy as np

from kit import axes
from kit.words import number_of_bytes
from lab.performance import bottleneck_study, composed_picture
from lab.performance.claims import layers_s
from refgf.papers.barrachina import roofline
from refgf.papers.scaling.scaling import best_theta_step
from refgf.predict.cost import Link

MS = 1e3
MODELS = {"roofline": axes.style(1), "perceptrons": axes.style(0)}
SHORT = {  # layers that stand for others at the same place
    "conv1": "conv1",
    "conv2": "conv2",
    "conv3": "conv3 to 5",
    "norm1": "norm",
    "pool1": "pool",
    "fc6": "fc",
}
PEAKS = (
    "Bounds: peaks of this machine's core as measured, of a V100 as its data sheet says. No kernel "
    "is faster. The roofs of the other figure are fitted to kernels, so half of these are faster."
)
RESOURCES = {"flops": axes.style(5), "memory": axes.style(3), "network": axes.style(4)}
PARTS = {  # of a step's time
    "flops": "flops:\ncomputing",
    "memory": "memory: reading\nand writing",
    "network": "network:\nexchange that\nis not hidden",
}
SWEPT = {  # the same colours, and two more
    "batch": axes.style(2),
    "flops": RESOURCES["flops"],
    "memory": RESOURCES["memory"],
    "link": RESOURCES["network"],
    "ranks": axes.style(6),
}


def draw(result: dict) -> dict:
    figure, (kernels, steps) = axes.frame(
        "Lesson 15: kernels and steps that the models have not seen", 1, 2
    )
    clock = "GPU" if "device" in result else "processor"
    draw_kernels(kernels, result["kernels"], result["training"], clock)
    draw_steps(steps, result["steps"], clock)
    figures = {"": axes.finish(figure, kernels, steps)}
    figure, (axis,) = axes.frame("Lesson 15: rooflines", 1, 1)
    draw_limits(axis, result["layers"])
    figures["roofline"] = axes.finish(figure, axis, computed=True, below=PEAKS)
    base = result["base"]
    sweeps = result["sweeps"]["ResNet-50"]
    title = f"Lesson 15: one resource at a time (PREDICTED)\n{source_of(sweeps, base)}"
    figure, (axis,) = axes.frame(title, 1, 1, (axes.WIDTH_INCHES, 5.6))
    draw_sweep(axis, sweeps, base)
    figures["resources"] = axes.finish(figure, axis, computed=True, below=kept(sweeps, base))
    maps = result["map"]["bottlenecks"]
    title = (
        f"Lesson 15: the bottleneck, which takes the largest share of a step, on {base['ranks']} "
        f"V100s (PREDICTED)\nEach as its data sheet says: {base['flops'] / 1e12:g} Tflop/s, "
        f"{base['memory'] / 1e9:g} GB/s. Star: the base of the other figure,\n"
        f"{base['batch']} images a rank and {8e-9 * base['link']:g} Gbit/s"
    )
    figure, panels = axes.frame(title, 1, len(maps))
    for axis, (name, rows) in zip(panels, maps.items()):
        draw_map(axis, name, rows, result["map"], base)
    figures["bottlenecks"] = axes.finish(figure, computed=True)
    rows = result.get("composed", [])
    composed = composed_picture.draw(rows)
    for figure in composed.values():
        ranks = " and ".join(", ".join(str(row["ranks"]) for row in rows).rsplit(", ", 1))
        figure.set_label(f"{ranks} ranks, while the others sleep; {result['place']}")
    return figures | composed


def draw_kernels(axis, kernels: list, training: dict, clock: str) -> None:
    measured = np.array([MS * kernel["measured_s"] for kernel in kernels])
    for name, style in MODELS.items():
        predicted = np.array([MS * kernel[name] for kernel in kernels])
        shown = "roofline, both roofs fitted" if name == "roofline" else name
        label = f"{shown}: median error {np.median(abs(predicted / measured - 1)):.1%}"
        axis.plot(measured, predicted / measured, ls="none", ms=4, alpha=0.6, label=label, **style)
    axis.axhline(1, color="black", lw=1)
    ticks = [0.25, 0.5, 0.8, 1, 1.25, 2, 4]
    again = f"measured twice, {training['repeatability']:.1%} apart (median)"
    axis.set(
        title=f"Convolutions and fully connected layers,\n{training['unseen']} shapes; {again}",
        xlabel=f"measured, ms of this machine's {clock}",
        ylabel="predicted / measured, forward or backward",
        xscale="log",
        yscale="log",
    )
    axis.set_yticks(ticks, [f"{tick:g}" for tick in ticks], minor=False)
    axis.set_yticks([], minor=True)
    low, high = axis.get_ylim()
    axis.set_ylim(min(low, 0.5), 1.6 * max(high, 2))  # room for the legend


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
        title=f"{steps[0].get('network', 'A narrow AlexNet')}:\n"
        "all such layers together, at unseen batch sizes",
        xlabel="images in a batch",
        ylabel=f"ms of this machine's {clock}",
    )


def draw_limits(axis, layers: dict) -> None:
    """AlexNet's layers under the roofs of all nodes."""
    intensity, seen = np.logspace(-1.5, 3.5, 200), set()
    for (name, node), style in zip(layers["nodes"].items(), ("-", "--", ":")):
        roof = np.minimum(node["flops"], node["bandwidth"] * intensity)
        label = "one core of this machine" if name == "this machine" else name
        axis.plot(intensity, roof, style, color=axes.PREDICTED, label=label)
    for name, node in layers["nodes"].items():
        for layer, flops, nbytes in layers["points"]:
            x = flops / nbytes
            y = min(node["flops"], node["bandwidth"] * x)
            limit = "memory" if node["bandwidth"] * x < node["flops"] else "flops"
            label = None if limit in seen else f"limited by {limit}"
            seen.add(limit)
            axis.plot(x, y, ls="none", ms=7, label=label, **RESOURCES[limit])
            if name == "this machine" and layer in SHORT:
                place = {"xytext": (1, -8), "textcoords": "offset points", "rotation": 45}
                align = {"va": "top", "ha": "right"}
                axis.annotate(SHORT[layer], (x, y), fontsize=axes.TEXT_POINTS, **place, **align)
    axis.set(
        title="AlexNet's layers, forward, 8 images: the most flop/s that each can reach",
        xscale="log",
        yscale="log",
        xlabel="flops for each byte that is read or written",
        ylabel="flop/s, computed by the roofline",
        xlim=(0.03, 3000),
    )


def alone(sweeps: dict, base: dict) -> float:
    """Images/s of a V100 without exchange."""
    here = next(point for point in sweeps["ranks"] if point["factor"] == 1)
    return here["images_per_s"] / base["ranks"] / (1 - here["shares"]["network"])


def computing(shares: dict) -> float:
    """The scaling efficiency: percent of a step that are computing."""
    return 100 * (1 - shares["network"])


def kept(sweeps: dict, base: dict) -> str:
    """The scaling efficiency on the most ranks, and with the best theta, as in lesson 08."""
    most, system = sweeps["ranks"][-1], bottleneck_study.SYSTEM
    ranks = round(base["ranks"] * most["factor"])
    node = roofline.Node(base["flops"], base["memory"])
    link = Link(bottleneck_study.ALPHA_S, 1 / base["link"])

    def best_theta(ready, allreduce_s, compute_s):
        return best_theta_step(ready, system, allreduce_s)

    network = bottleneck_study.NETWORKS["ResNet-50"]()
    best = roofline.study(network, base["batch"], node, link, ranks, best_theta)
    return (
        f"Efficiency on {ranks} ranks: {computing(most['shares']):.0f} % with theta = "
        f"{number_of_bytes(system.threshold_bytes)}; {computing(best.shares):.0f} % with the best "
        f"theta, which lesson 08 takes, with another V100 (glossary: V100's pace)."
    )


def source_of(sweeps: dict, base: dict) -> str:
    """Whose V100 it is, in images/s without exchange."""
    return (
        f"A V100 as its data sheet says: {base['flops'] / 1e12:g} Tflop/s (float32), "
        f"{base['memory'] / 1e9:g} GB/s: at most {alone(sweeps, base):.0f} images/s alone"
    )


def draw_sweep(axis, sweeps: dict, base: dict) -> None:
    """A line for each resource: what the cluster gains from more of it."""
    units = {
        "batch": f"images a rank ({base['batch']})",
        "flops": f"flop/s of a rank ({base['flops'] / 1e12:g} T)",
        "memory": f"memory bandwidth ({base['memory'] / 1e9:g} GB/s)",
        "link": f"rate of a link ({8e-9 * base['link']:g} Gbit/s)",
        "ranks": f"ranks ({base['ranks']})",
    }
    for number, (resource, points) in enumerate(sweeps.items()):
        middle = next(point["images_per_s"] for point in points if point["factor"] == 1)
        gains = [point["images_per_s"] / middle for point in points]
        factors = [point["factor"] for point in points]
        size = 10 - 1.5 * number  # a line over another lets it be seen
        axis.plot(factors, gains, label=units[resource], ms=size, **SWEPT[resource])
        if resource == "ranks":
            text = f"x {gains[-1]:.2g}: efficiency {computing(points[-1]['shares']):.0f} %"
            spot, place = (factors[-1], gains[-1]), {"ha": "right", "textcoords": "offset points"}
            axis.annotate(text, spot, (12, 10), **place)
    axis.set(
        title=f"ResNet-50, lazy allreduce, {base['ranks']} V100s: images/s of all with one "
        "resource changed",
        xlabel="times as much of the resource (base in brackets)",
        ylabel="images/s relative to the base",
    )
    axis.set(xscale="log", yscale="log", ylim=(1 / 20, 20))
    ticks = [2.0**k for k in range(-4, 5)]
    for which in (axis.xaxis, axis.yaxis):
        which.set_ticks(ticks, [f"{t:g}" if t >= 1 else f"1/{1 / t:g}" for t in ticks])
        which.set_ticks([], minor=True)


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
    """Coloured cells, each region with the name of its resource; a star at the sweeps' base."""
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
