"""Tables of a training step: size and time of each layer, and when each gradient is ready."""

import numpy as np

import kit
from kit import layers

GROUPS = {
    "norm": "5 normalisations",
    "pool": "3 poolings",
    "relu": "7 ReLUs",
    "dropout": "2 dropouts",
}


def show_sizes_and_times(run: kit.Run, result: dict) -> None:
    """Print both tables. result: of `kit.layers.compare`."""
    node, rows, steps_s = result["node"], result["rows"], result["steps_s"]
    rates = f"R = {node['flops'] / 1e9:.0f} Gflop/s, W = {node['bandwidth'] / 1e9:.1f} GB/s"
    run.say(f"One rank computes while the others sleep: {rates}.")
    groups = {row["name"]: [row] for row in rows if row["kind"] in ("conv", "fc")}
    for kind, title in GROUPS.items():
        groups[title] = [row for row in rows if row["kind"] == kind]
    groups["all"] = rows
    sizes, times = [], []
    for name, group in groups.items():
        measured, predicted = (
            np.sum([row[key] for row in group], axis=0) for key in ("seconds", "predicted_s")
        )
        pairs = [kit.seconds(t) if t else "-" for t in np.stack([measured, predicted], 1).flat]
        times.append([name, *pairs, group[0]["limit"] if len(group) == 1 else ""])
        parameters, flops = (sum(row[key] for row in group) for key in ("parameters", "flops"))
        of_bytes, of_flops = (
            f"{value / sum(row[key] for row in rows):.1%}"
            for value, key in ((parameters, "parameters"), (flops, "flops"))
        )
        sizes.append([name, f"{parameters:,}", of_bytes, f"{flops / 1e6:,.1f}", of_flops])
    run.table(["layer", "parameters", "share", "Mflop", "share"], sizes)
    run.say("Mflop: forward and backward of the whole batch.\n")
    run.table(["layer", "forward", "predicted", "backward", "predicted", "limit"], times)
    fastest, slowest = kit.seconds(min(steps_s)), kit.seconds(max(steps_s))
    run.say(f"Each time is the median of {len(steps_s)} steps of {fastest} to {slowest}.")
    run.say("The medians of the layers need not add up to that of the step.")
    for kind, title in (("conv", "convolutions"), ("fc", "fully connected layers")):
        totals = [np.array([row["parameters"], row["flops"], sum(row["seconds"])]) for row in rows]
        share = sum(t for t, row in zip(totals, rows) if row["kind"] == kind) / sum(totals)
        of_bytes, of_flops, of_time = (f"{each:.1%}" for each in share)
        run.say(f"{title}: {of_bytes} of the bytes, {of_flops} of the flops, {of_time} of the time")


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
    run.say(f"Backward takes {kit.seconds(layers.backward_s(result))}.")
