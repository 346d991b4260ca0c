"""CSC next to what else can be put into DDP: what it costs, and what it learns.

    python docs/tools/torch_study.py train [--minutes 60]    goes on with what is missing
    python docs/tools/torch_study.py time                    also; on emulated clusters, 25 minutes
    python docs/tools/torch_study.py                         docs/torch.md and the figure, anew

Numbers are in figures/torch.json, with a hash of the code that measured each part.
"""

import argparse
import itertools
import json
import math
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "lessons")]

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from scipy import stats  # noqa: E402

from docs.tools import torch_times  # noqa: E402
from docs.tools.torch_hooks import AT_ONCE, DENSE, ROWS, bucket_mb  # noqa: E402
from docs.tools.torch_training import COMPUTE_S, TASKS, train  # noqa: E402
from kit.record import code_hash, cpu_name  # noqa: E402
from refgf.predict import timeline  # noqa: E402
from tests.speed import benchmark  # noqa: E402
from tests.support.gloo import on_gloo  # noqa: E402

FIGURE = ROOT / "figures" / "torch.json"
PAGE = ROOT / "docs" / "torch.md"
PROGRAM = ROOT / "docs" / "tools" / "torch_times.py"
BEGIN, END = "<!-- study: written by docs/tools/torch_study.py -->", "<!-- end of study -->"
SEEDS, RANKS = 5, 2
RATES, NODES, REAL_MBIT = (1, 10), (4, 8), 400
TIMED = (
    "Times: the tensors of ResNet-18 (11.7 million parameters), emulated clusters, a rank a node; "
    f"computing is slept, {1e3 * COMPUTE_S:.0f} ms a step as on a V100 (a batch of 64, from "
    "ResNet-50's by flops). Casts, packing and choosing run on this machine's cores, so they weigh "
    "more than on a GPU. PowerSGD has one bucket, since gloo needs that, and so no overlap. "
    "*Hidden by overlap*: of what a timeline of DDP's buckets of 25 MB hides; -: steps vary more.",
)
CURVES = DENSE, "fp16 hook", "PowerSGD, rank 2", "CSC 25 %", "CSC 10 %"
POINTS = 1  # of accuracy, in percent: what counts as no loss


def load(path: Path = FIGURE) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


def store(part: str, found: Any, program: str, path: Path = FIGURE) -> None:
    """Replace one part of the file."""
    about = {"cpu": cpu_name(), "python": platform.python_version(), "torch": torch.__version__}
    hashed = code_hash(ROOT / "docs" / "tools" / program)
    every = load(path) | {part: found | {"machine": about, "measured_with": hashed}}
    path.write_text(json.dumps(every, indent=1) + "\n")


def trainings(rank: int, stop_s: float, path: str) -> None:
    """Seed after seed, what the file does not have, until time.time() is stop_s."""
    torch.set_num_threads(1)
    for seed in range(SEEDS):
        for task in TASKS:
            for row in ROWS:
                done = load(Path(path)).get("training", {"runs": {}})
                runs = done["runs"].get(f"{task}, {row}", [])
                go = [len(runs) <= seed, time.time() >= stop_s]
                dist.broadcast_object_list(go)
                if go[1]:
                    return
                if go[0]:
                    found = train(task, row, seed)
                    if rank == 0:
                        done["runs"][f"{task}, {row}"] = [*runs, found]
                        store("training", done | {"ranks": RANKS}, "torch_training.py", Path(path))
                        print(seed, task, row, f"{found['right'][-1]:.1f} %", flush=True)
                dist.barrier()


def times(path: Path) -> None:
    """Every cluster in turn, K times slower than it says, so that links carry REAL_MBIT.

    What this code has measured before, and is in the file unfinished, is kept.
    """
    benchmark.begin()
    found: dict[str, Any] = load(path).get("times", {"runs": {}})
    whole = len(found["runs"]) == len(RATES) * len(NODES)
    if whole or found.get("measured_with") != code_hash(PROGRAM):
        found = {"runs": {}}
    found["alone"] = found.get("alone") or timed([], "ResNet-18", 0)
    found["AlexNet"] = found.get("AlexNet") or cluster("AlexNet", NODES[0], RATES[0])
    for gbit, nodes in itertools.product(RATES, NODES):
        name = f"{nodes} nodes, {gbit} Gbit/s"
        if name not in found["runs"]:
            found["runs"][name] = cluster("ResNet-18", nodes, gbit)
            store("times", found, PROGRAM.name, path)


def cluster(network: str, nodes: int, gbit: float) -> dict[str, Any]:
    print(f"{network}, {nodes} nodes, {gbit} Gbit/s", flush=True)
    shape = ["--nodes", str(nodes), "--ranks-per-node", "1", "--rate", f"{REAL_MBIT}mbit"]
    nodes_of = [sys.executable, "-m", "refgf.cluster", "run", *shape, "--"]
    return timed(nodes_of, network, 1e3 * gbit / REAL_MBIT)


def timed(before: list[str], network: str, dilation: float) -> dict[str, Any]:
    """Run torch_times.py; `before` are the words that bring up its ranks."""
    with tempfile.TemporaryDirectory() as folder:
        out, path_of = Path(folder, "out.json"), os.environ | {"PYTHONPATH": str(ROOT)}
        script = [sys.executable, str(PROGRAM), str(out), str(dilation), network]
        benchmark.run([*before, *script], check=True, env=path_of)
        return {"dilation": dilation, "rows": json.loads(out.read_text())}


# ---- the page and the figure ----


def lost(found: dict[str, Any], task: str, row: str) -> list[float]:
    """Right answers in percent minus those of dense training, one for each seed of both."""
    ends = [[run["right"][-1] for run in found.get(f"{task}, {r}", [])] for r in (row, DENSE)]
    return [a - b for a, b in zip(*ends)]


def interval(values: list[float]) -> tuple[float, float]:
    """Mean and half of its 95 % interval."""
    mean, count = statistics.mean(values), len(values)
    if count < 2:
        return mean, float("nan")
    return mean, stats.t.ppf(0.975, count - 1) * statistics.stdev(values) / count**0.5


def step_ms(run: dict[str, Any], row: str) -> float | None:
    """The median step in the cluster's time; rows that differ in their warm-up only are alike."""
    measured = run["rows"].get(row.removesuffix(AT_ONCE))
    return measured and 1e3 * statistics.median(measured["steps_s"]) / run["dilation"]


def table(data: dict[str, Any]) -> list[str]:
    """Markdown: a row is what is put into DDP."""
    trained = data["training"]["runs"]
    clusters = data.get("times", {"runs": {}})["runs"]
    head = [
        "",
        *(f"{name}, ms a step" for name in clusters),
        *(["MB sent", "MB memory"] if clusters else []),
    ]
    head += [f"{task}, points (95 %)" for task in TASKS]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row in ROWS:
        cells = [row]
        for run in clusters.values():
            cells.append(f"{step_ms(run, row):.0f}")
        for run in list(clusters.values())[:1]:
            measured = run["rows"][row.removesuffix(AT_ONCE)]
            cells += [f"{measured['bytes'] / 1e6:.1f}", f"{measured['memory_mb']:.0f}"]
        for task in TASKS:
            if row == DENSE:
                right = [run["right"][-1] for run in trained[f"{task}, {row}"]]
                cells.append(f"{statistics.mean(right):.1f} % right")
            else:
                points = lost(trained, task, row)
                mean, half = interval(points) if points else (0, 0)
                spread = f" ± {half:.1f}" if len(points) > 1 else ", one seed"
                cells.append(f"{mean:+.1f}{spread}" if points else "not trained yet")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def kept(trained: dict[str, Any], row: str, tasks: Iterable[str]) -> bool:
    """Is this row within POINTS of dense training in these tasks, by its mean?"""
    every = [lost(trained, task, row) for task in tasks]
    return all(values and statistics.mean(values) >= -POINTS for values in every)


def fastest(trained: dict[str, Any], run: dict[str, Any], task: str) -> tuple[str, float]:
    """Of the rows that lose no more than POINTS in this task: (row, how often DDP's own step)."""
    good = [row for row in ROWS if kept(trained, row, [task])]
    best = min(good, key=lambda row: step_ms(run, row))
    return best, step_ms(run, DENSE) / step_ms(run, best)


def verdicts(data: dict[str, Any]) -> list[str]:
    """Markdown that the numbers choose: the fastest rows that lose no more than POINTS."""
    trained = data["training"]["runs"]
    head = ["", *(f"fastest whose mean is within {POINTS} point, {task}" for task in TASKS)]
    head += [f"hidden by overlap, {row}" for row in (DENSE, "CSC 10 %")]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name, run in data.get("times", {"runs": {}})["runs"].items():
        cells = [name]
        for task in TASKS:
            best, gain = fastest(trained, run, task)
            cells.append(f"{best}: {gain:.1f} x DDP alone")
        network = torch_times.of_resnet18()
        cells += [hidden(run, network, row) for row in (DENSE, "CSC 10 %")]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def alexnet_table(run: dict[str, Any]) -> list[str]:
    """Markdown: the network of the paper, whose fully connected layers come first in backward."""
    head = f"| AlexNet, {NODES[0]} nodes, {RATES[0]} Gbit/s | ms a step | x DDP alone | MB sent "
    lines = ["", head + "| hidden by overlap |", "|---" * 5 + "|"]
    for row, measured in run["rows"].items():
        gain = f"{step_ms(run, DENSE) / step_ms(run, row):.1f}"
        cells = [row, f"{step_ms(run, row):.0f}", gain, f"{measured['bytes'] / 1e6:.1f}"]
        hid = hidden(run, torch_times.of_alexnet(), row)
        lines.append(f"| {' | '.join(cells)} | {hid} |")
    return lines


def alone(run: dict[str, Any]) -> list[str]:
    """What a row costs where nothing is sent, in a sentence."""
    ratios = {row: paired(run["rows"], row) for row in run["rows"] if row != DENSE}
    said = ", ".join(
        f"{row} {x:.2f} ({low:.2f} to {high:.2f})" for row, (low, x, high) in ratios.items()
    )
    return [
        "",
        "Without a network (one rank, ResNet-18 computed on one core of this machine, steps in "
        f"turn), a step in steps of DDP alone, median and range: {said}.",
    ]


def paired(rows: dict[str, Any], row: str) -> tuple[float, float, float]:
    """Least, median and most of a row's steps over DDP's own of the same turn."""
    ratios = [a / b for a, b in zip(rows[row]["steps_s"], rows[DENSE]["steps_s"])]
    return min(ratios), statistics.median(ratios), max(ratios)


def hidden(run: dict[str, Any], network: torch_times.Network, row: str) -> str:
    """How much of what overlap can hide it does hide; "-" where steps vary by more than that.

    It can hide what predict/timeline hides of DDP's buckets, their sending as long as when alone.
    """
    measured, ms = run["rows"][row], 1e3 / run["dilation"]
    steps, alone_steps = measured["steps_s"], measured["sent_alone_s"]
    computing, sending = ms * measured["compute_s"], ms * statistics.median(alone_steps)
    sizes = [math.prod(shape) * 4 / 2**20 for shape in network.shapes]
    gradients = [(computing * ready, mb) for ready, mb in zip(network.ready_s, sizes)]
    groups = timeline.lazy(gradients, bucket_mb(row))
    step = timeline.predict(gradients, groups, lambda mb: sending * mb / sum(sizes))
    can = computing + sending - step.step_s
    if can <= ms * sum(max(each) - min(each) for each in (steps, alone_steps)):
        return "-"
    return f"{100 * (computing + sending - step_ms(run, row)) / can:.0f} % of {can:.0f} ms"


def about(data: dict[str, Any]) -> list[str]:
    """What was measured, on what."""
    trained = data["training"]
    counts = {len(runs) for runs in trained["runs"].values()}
    epochs = ", ".join(f"{name} {t.epochs * t.epoch} steps" for name, t in TASKS.items())
    parameters = {
        task: trained["runs"][f"{task}, {DENSE}"][0]["parameters"] / 1e6 for task in TASKS
    }
    sizes = ", ".join(f"{task} {n:.2f} million" for task, n in parameters.items())
    seeds = f"{min(counts)} to {max(counts)}" if len(counts) > 1 else f"{max(counts)}"
    return [
        f"Trained on {trained['ranks']} ranks, {seeds} seeds, paired: {epochs}. Parameters: "
        f"{sizes}. The cnn is ResNet-18 with a quarter of its channels on 8 x 8 digits, with SGD; "
        "the transformer predicts characters of Python's documentation, with AdamW and so with "
        f'`form="none"`. Warm-up: an epoch dense, one at 25 %; *{AT_ONCE.strip(", ")}*: without. '
        f"PyTorch {trained['machine']['torch'].split('+')[0]}, gloo.",
        early(trained["runs"]),
        *(TIMED if "times" in data else ()),
        "",
    ]


def early(trained: dict[str, Any], epoch: int = 5) -> str:
    """What a short training of the cnn has learned."""
    right = {
        row: statistics.mean(run["right"][epoch - 1] for run in trained[f"cnn, {row}"])
        for row in (DENSE, "CSC 10 %", f"CSC 10 %{AT_ONCE}")
    }
    said = ", ".join(f"{row} {percent:.1f} %" for row, percent in right.items())
    return f"After {epoch * TASKS['cnn'].epoch} steps the cnn has right: {said}."


def page(data: dict[str, Any]) -> None:
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    lines = [*about(data), *table(data), "", *verdicts(data)]
    if "times" in data:
        lines += [*alexnet_table(data["times"]["AlexNet"]), *alone(data["times"]["alone"])]
        lines += ["", "![step times and accuracy](../figures/torch.png)"]
    PAGE.write_text("\n".join([before + BEGIN, *lines, END]) + rest.split(END)[1])


def figure(data: dict[str, Any]) -> None:
    """Rows are what is put into DDP: step times of two clusters, and points lost in each task."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    trained, clusters = data["training"]["runs"], data["times"]["runs"]
    rows = [row for row in ROWS if not row.endswith(AT_ONCE)]
    shown = [name for name in clusters if name.startswith(f"{NODES[0]} ")]
    good = [sum(kept(trained, row, [task]) for task in TASKS) for row in rows]
    colours = [("#c9c9c9", "#9fcdb9", "#2a7f62")[tasks] for tasks in good]
    _, axes = plt.subplots(1, len(shown) + 2, figsize=(15, 5.6), layout="constrained")
    *axes, over_time = axes
    for axis in axes[1:]:
        axis.sharey(axes[0])
        axis.tick_params(labelleft=False)
    against_seconds(over_time, trained, shown[0], clusters[shown[0]])
    for axis, name in zip(axes, shown):
        values = [step_ms(clusters[name], row) for row in rows]
        axis.barh(rows, values, color=colours)
        axis.axvline(1e3 * COMPUTE_S, color="black", linestyle=":", label="computing alone")
        for i, value in enumerate(values):
            axis.text(value, i, f" {value:.0f}", va="center", fontsize=8)
        axis.set(title=name, xlabel="ms a step (ResNet-18)")
        axis.margins(x=0.15)
        axis.legend(loc="lower right", fontsize=8)
    marks = {task: mark for task, mark in zip(TASKS, "os")}
    for task, mark in marks.items():
        points = [interval(lost(trained, task, row) or [float("nan")]) for row in rows]
        means, halves = zip(*points)
        axes[-1].errorbar(means, rows, xerr=halves, fmt=mark, capsize=2, label=task)
    axes[-1].axvspan(-POINTS, POINTS, color="#2a7f62", alpha=0.15)
    axes[-1].set(title="accuracy minus dense", xlabel="points, 95 % of seeds", xlim=(-10, 3))
    axes[-1].legend(loc="upper left", fontsize=8)
    axes[0].invert_yaxis()
    some = [row for row in rows if not kept(trained, row, TASKS)]
    one = [task for task in TASKS if any(kept(trained, row, [task]) for row in some)]
    lines = []
    for task in TASKS:
        found = [(*fastest(trained, clusters[name], task), name) for name in shown]
        said = (f"{row}, {gain:.1f} x DDP alone on {name}" for row, gain, name in found)
        lines.append(f"\nFastest for the {task}: {'; '.join(said)}")
    plt.suptitle(
        f"Shorter is faster. Dark green: mean within {POINTS} point of dense in both tasks; "
        f"light: in the {' or the '.join(one)} only; grey: in none" + "".join(lines),
        fontsize=11,
    )
    plt.savefig(FIGURE.with_suffix(".png"), dpi=110)


def against_seconds(axis, trained: dict[str, Any], name: str, cluster: dict[str, Any]) -> None:
    """Composed: what the transformer has learned after so many steps, of the time of ResNet-18."""
    task = "transformer"
    for row in CURVES:
        runs = trained[f"{task}, {row}"]
        right = [statistics.mean(ends) for ends in zip(*(run["right"] for run in runs))]
        steps = [TASKS[task].epoch * (epoch + 1) for epoch in range(len(right))]
        axis.plot([n * step_ms(cluster, row) / 1e3 for n in steps], right, label=row)
    axis.set(
        title=f"{task}, {name}", xlabel="s, its steps as long as ResNet-18's", ylabel="% right"
    )
    axis.legend(loc="lower right", fontsize=8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("part", nargs="?", choices=("train", "time"))
    parser.add_argument("--minutes", type=float, default=60, help="of training (default: 60)")
    parser.add_argument("--file", default=str(FIGURE), help="(default: figures/torch.json)")
    arguments = parser.parse_args()
    if arguments.part == "train":
        on_gloo(RANKS, trainings, time.time() + 60 * arguments.minutes, arguments.file)
    elif arguments.part == "time":
        times(Path(arguments.file))
    else:
        data = load(Path(arguments.file))
        page(data)
        if "times" in data:
            figure(data)


if __name__ == "__main__":
    main()
