"""Two tables of a training step: the size of each layer, and its time measured and predicted."""

import numpy as np

import kit


def show(run: kit.Run, result: dict) -> None:
    """Print both tables. result: of `kit.layers.compare`."""
    node, rows, steps_s = result["node"], result["rows"], result["steps_s"]
    rates = f"R = {node['flops'] / 1e9:.0f} Gflop/s, W = {node['bandwidth'] / 1e9:.1f} GB/s"
    run.say(f"One rank computes while the others sleep: {rates}.")
    kinds = {
        "norm": "5 normalisations",
        "pool": "3 poolings",
        "relu": "7 ReLUs",
        "dropout": "2 dropouts",
    }
    groups = {row["name"]: [row] for row in rows if row["kind"] in ("conv", "fc")}
    for kind, title in kinds.items():
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
