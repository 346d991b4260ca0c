"""The figure of lesson 15: predicted and measured kernels and steps, rooflines, the study."""

import numpy as np

COLOURS = {"roofline": "tab:orange", "perceptrons": "tab:blue"}
LABELS = {
    "conv1": "conv1",
    "conv2": "conv2",
    "conv3": "conv3 to 5",
    "norm1": "norm",
    "pool1": "pool",
    "fc6": "fc",
}
RESOURCES = {"flops": "tab:green", "memory": "tab:purple", "network": "tab:red"}


def draw(result: dict):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 3, figsize=(19, 10.5))
    draw_kernels(axes[0, 0], result["kernels"], result["training"])
    draw_steps(axes[0, 1], result["steps"])
    draw_limits(axes[0, 2], result["layers"])
    draw_sweep(axes[1, 0], result["sweeps"]["ResNet-50"], result["base"])
    for axis, (name, rows) in zip(axes[1, 1:], result["map"]["bottlenecks"].items()):
        draw_map(axis, name, rows, result["map"], result["base"])
    for axis in axes.flat:
        axis.grid(alpha=0.3)
    figure.suptitle(
        "Lesson 15: measured kernels predict held-out steps; the study below is predicted only"
    )
    figure.tight_layout(rect=(0, 0.02, 1, 1))
    return figure


def draw_kernels(axis, kernels: list, training: dict) -> None:
    measured = np.array([1e3 * kernel["measured_s"] for kernel in kernels])
    for name, colour in COLOURS.items():
        predicted = np.array([1e3 * kernel[name] for kernel in kernels])
        median = np.median(abs(predicted / measured - 1))
        axis.plot(
            measured,
            predicted / measured,
            ".",
            color=colour,
            alpha=0.6,
            label=f"{name}: median error {median:.1%}",
        )
    axis.axhline(1, color="grey")
    axis.axhspan(0.9, 1.1, color="grey", alpha=0.2)
    axis.set(xscale="log", yscale="log", xlabel="measured, ms", ylabel="predicted / measured")
    others = f"trained on {training['shapes']} others; measured in {training['seconds']:.0f} s"
    again = f"measured twice, they differ by {training['repeatability']:.1%}"
    axis.set_title(
        f"{training['unseen']} held-out shapes, both directions; {others};\n{again}", fontsize=10
    )
    axis.legend(fontsize=8)


def draw_steps(axis, steps: list) -> None:
    for i, step in enumerate(steps):
        for j, (name, colour) in enumerate({"measured": "black", **COLOURS}.items()):
            axis.bar(
                i + 0.27 * (j - 1),
                1e3 * step["totals_s"][name],
                0.25,
                color=colour,
                alpha=0.8,
                label=None if i else name,
            )
    axis.set_xticks(range(len(steps)), [step["batch"] for step in steps])
    axis.set(
        title="A step of one rank at held-out batch sizes",
        xlabel="images",
        ylabel="ms, forward and backward",
    )
    axis.legend(fontsize=8)


def draw_limits(axis, layers: dict) -> None:
    """AlexNet's layers under the roofs, for 8 images."""
    intensity = np.logspace(-1.5, 3.5, 200)
    for (name, node), style in zip(layers["nodes"].items(), ("-", "--")):
        axis.plot(
            intensity,
            np.minimum(node["flops"], node["bandwidth"] * intensity),
            style,
            color="black",
            label=name,
        )
        for layer, flops, nbytes in layers["points"]:
            bound = node["bandwidth"] * flops / nbytes < node["flops"]
            y = min(node["flops"], node["bandwidth"] * flops / nbytes)
            axis.plot(flops / nbytes, y, "o", color=RESOURCES["memory" if bound else "flops"], ms=5)
            if name != "V100" and layer in LABELS:
                axis.annotate(
                    LABELS[layer],
                    (flops / nbytes, y),
                    rotation=60,
                    fontsize=7,
                    xytext=(1, -6),
                    va="top",
                    ha="right",
                    textcoords="offset points",
                )
    axis.set(
        xscale="log",
        yscale="log",
        xlabel="flops a byte",
        ylabel="attainable flop/s",
        xlim=(0.03, 3000),
    )
    axis.set_title(
        "Roofline: AlexNet's layers, forward, 8 images (green: flops, purple: memory)", fontsize=10
    )
    axis.legend(fontsize=8)


def draw_sweep(axis, sweeps: dict, base: dict) -> None:
    """Line and marker: the resource that grows. Colour: the resource that limits."""
    from matplotlib.patches import Patch

    styles = ("o", "-"), ("s", "--"), ("v", ":"), ("D", "-."), ("^", (0, (6, 3)))
    for (resource, points), (marker, style) in zip(sweeps.items(), styles):
        middle = next(point["images_per_s"] for point in points if point["factor"] == 1)
        values = [point["images_per_s"] / middle for point in points]
        drawn = {"color": "dimgrey", "marker": marker, "mfc": "white", "ls": style}
        axis.plot([point["factor"] for point in points], values, lw=1, label=resource, **drawn)
        for point, value in zip(points, values):
            axis.plot(
                point["factor"],
                value,
                marker,
                color=RESOURCES[point["bottleneck"]],
                mec="dimgrey",
                ms=7,
            )
    axis.set_xscale("log", base=2)
    axis.set_yscale("log", base=2)
    given = (
        f"times {base['batch']} images, {base['flops'] / 1e12:g} Tflop/s, "
        f"{base['memory'] / 1e9:g} GB/s, {8e-9 * base['link']:g} Gbit/s, {base['ranks']} ranks"
    )
    axis.set(
        xlabel=given,
        ylabel="images/s relative to the base",
    )
    axis.set_title("PREDICTED: ResNet-50, one resource at a time", fontsize=10)
    limits = [Patch(color=colour, label=f"limited by {name}") for name, colour in RESOURCES.items()]
    axis.legend(handles=[*axis.get_legend_handles_labels()[0], *limits], fontsize=8)


def draw_map(axis, name: str, rows: list, given: dict, base: dict) -> None:
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    numbers = [[list(RESOURCES).index(bottleneck) for bottleneck in row] for row in rows]
    axis.imshow(
        numbers,
        origin="lower",
        aspect="auto",
        cmap=ListedColormap(list(RESOURCES.values())),
        vmin=-0.5,
        vmax=2.5,
    )
    axis.set_xticks(range(len(given["batches"])), given["batches"])
    axis.set_yticks(range(len(given["links"])), [f"{8e-9 * link:.4g}" for link in given["links"]])
    axis.set(xlabel="images a rank", ylabel="Gbit/s of each link")
    axis.set_title(
        f"PREDICTED: the bottleneck of a step of {name}, {base['ranks']} ranks", fontsize=10
    )
    axis.legend(
        handles=[Patch(color=colour, label=what) for what, colour in RESOURCES.items()],
        fontsize=8,
        loc="upper left",
    )
