"""A step of one rank, layer by layer: measured, and predicted by a roofline.

steps = [events of a step, ...]
    event: (layer, "forward"), (number of a gradient, "ready") or (layer, "backward")
result = layers.compare(network, workload, batch, steps)
    {"rows": one for each layer, "ready_s": ..., ...}
layers.show_ready(run, result), layers.draw_times(axis, result), layers.draw_ready(axis, result)
"""

import time

import numpy as np

import kit
from refgf.papers.barrachina.roofline import Node, layer_times


def compare(network, workload, batch: int, steps) -> dict:
    """Measured and predicted seconds of each layer, and when each gradient is ready.

    steps: [[(event, seconds since the event before)] of each repeat]

    A time is the median of the repeats. Gradients are ready after the start of backward.
    """
    events = [event for event, _ in steps[0]]
    times = np.array([[seconds for _, seconds in step] for step in steps])  # (repeats, events)
    measured, ready_s = by_layer(events, np.median(times, axis=0))
    low, high = (by_layer(events, extreme)[0] for extreme in (times.min(axis=0), times.max(axis=0)))
    node = measured_node()
    roofline = {time.name: time for time in layer_times(workload, batch, node)}
    parameters = {layer.name: layer.parameters for layer in workload.layers}
    rows = []
    for layer in network.layers:
        name, roof = layer.name, roofline.get(layer.name)
        rows.append(
            {
                "name": name,
                "kind": name.rstrip("0123456789"),
                "parameters": parameters.get(name, 0),
                "flops": sum(layer.flops(batch)),
                "limit": roof.forward_limit if roof else "",
                "seconds": measured[name],
                "low_s": sum(low[name]),
                "high_s": sum(high[name]),
                "predicted_s": [roof.forward_s, roof.backward_s] if roof else [0.0, 0.0],
            }
        )
    backward_s = [time.backward_s for time in roofline.values()]
    return {
        "rows": rows,
        "node": vars(node),
        "steps_s": times.sum(axis=1).tolist(),
        "ready_s": ready_s,
        "predicted_ready_s": [
            t for t, _ in workload.gradients(sum(backward_s), layer_backward_s=backward_s)
        ],
        "tensors": [[spec.name, 4 * spec.size] for spec in network.tensors],
    }


def by_layer(events, seconds) -> tuple[dict, list]:
    """({layer: [forward, backward]}, when each gradient was ready after the start of backward)."""
    found, ready_s, at_s, layer_s = {}, [], 0.0, 0.0
    for (name, what), t in zip(events, seconds.tolist()):
        if what == "forward":
            found[name] = [t, 0.0]
            continue
        at_s, layer_s = at_s + t, layer_s + t
        if what == "ready":
            ready_s.append(at_s)
        else:
            found[name][1], layer_s = layer_s, 0.0
    return found, ready_s


def measured_node() -> Node:
    """Flop/s of a product of two 512 x 512 matrices, bytes/s of copying 64 MiB.

    Both are short, and the fastest of many repeats, so that other load on the machine matters
    little.
    """
    a, b, c = np.ones((3, 512, 512), np.float32)
    x, y = np.ones((2, 1 << 24), np.float32)
    return Node(
        2 * 512**3 / fastest(lambda: np.matmul(a, b, out=c)),
        2 * x.nbytes / fastest(lambda: np.copyto(y, x)),
    )


def fastest(function, repeats: int = 20) -> float:
    times = []
    for _ in range(repeats):
        start_s = time.perf_counter()
        function()
        times.append(time.perf_counter() - start_s)
    return min(times)


def backward_s(result: dict) -> float:
    return sum(row["seconds"][1] for row in result["rows"])


def show_ready(run: kit.Run, result: dict) -> None:
    """The weights only: biases and normalisation are ready just before them."""
    sizes = np.array([nbytes for _, nbytes in result["tensors"]])
    together = sizes.cumsum() / sizes.sum()
    run.say("\nWhen each weight's gradient is ready, counted from the start of backward:")
    run.table(
        ["gradient", "bytes", "ready", "predicted", "bytes ready by then"],
        [
            [name, f"{nbytes:,}", kit.seconds(at), kit.seconds(predicted), f"{share:.1%}"]
            for (name, nbytes), at, predicted, share in zip(
                result["tensors"], result["ready_s"], result["predicted_ready_s"], together
            )
            if name.endswith("weight")
        ],
    )
    nine_tenths = result["ready_s"][int(np.searchsorted(together, 0.9))]
    share = nine_tenths / backward_s(result)
    run.say(f"nine tenths of the bytes are ready after {share:.0%} of the backward pass")


def draw_times(axis, result) -> None:
    rows = [row for row in result["rows"] if row["kind"] in ("conv", "fc")]
    places, measured = np.arange(len(rows)), np.array([1e3 * sum(row["seconds"]) for row in rows])
    low, high = (np.array([1e3 * row[key] for row in rows]) for key in ("low_s", "high_s"))
    axis.bar(
        places - 0.2,
        measured,
        0.4,
        yerr=[measured - low, high - measured],
        capsize=2,
        label="time, measured",
    )
    predicted = [1e3 * sum(row["predicted_s"]) for row in rows]
    axis.plot(
        places - 0.2,
        predicted,
        "k_--",
        ms=16,
        mew=2,
        lw=0.8,
        label="time, predicted: max(flops / R, bytes / W)",
    )
    axis.set(
        title="Each layer: time and gradients", ylabel="forward + backward, ms", xlabel="layer"
    )
    axis.set(
        xticks=places,
        xticklabels=[row["name"] for row in rows],
        ylim=(0, 1.3 * max(high.max(), *predicted)),
    )
    memory, sizes = axis.twinx(), [4e-6 * row["parameters"] for row in rows]
    memory.bar(places + 0.2, sizes, 0.4, color="tab:orange", label="gradients")
    memory.set(ylabel="gradients, MB", ylim=(0, 1.3 * max(sizes)))
    handles, labels = (
        sum(both, [])
        for both in zip(axis.get_legend_handles_labels(), memory.get_legend_handles_labels())
    )
    axis.legend(handles, labels, fontsize=8, loc="upper left")


def draw_ready(axis, result) -> None:
    together = np.cumsum([nbytes for _, nbytes in result["tensors"]]) / 1e6
    measured, predicted = (
        [1e3 * t for t in result[key]] for key in ("ready_s", "predicted_ready_s")
    )
    axis.step([0, *measured], [0, *together], where="post", color="tab:blue", label="measured")
    axis.plot(measured, together, "o", ms=3, color="tab:blue")
    axis.step([0, *predicted], [0, *together], "k--", where="post", lw=1, label="predicted")
    for (name, _), at, height in zip(result["tensors"], measured, together):
        if name.endswith("weight"):
            axis.annotate(
                name.split(".")[0], (at, height), (2, -11), textcoords="offset points", fontsize=8
            )
    axis.axvline(1e3 * backward_s(result), color="grey", lw=1, label="end of backward")
    axis.set(
        title="When the gradients are ready",
        xlabel="since the start of backward, ms",
        ylabel="gradients ready, MB",
    )
    axis.set(xlim=(0, 1.1 * max(measured[-1], predicted[-1])), ylim=(0, None))
    axis.legend(fontsize=8, loc="lower right")
    axis.grid(alpha=0.3)
