"""Momentum SGD with weight decay over AlexNet's 62 million parameters, in place, beside what memory
allows.

    python tests/speed/optimizer_speed.py [results.json]

The limit moves the same bytes with the least arithmetic: w += g; v *= m reads w, g and v and writes
w and v, once each, as a step must. `triad` is another usual measure of memory, v = w + g, per byte.
PyTorch's torch.optim.SGD does the same update on parameters of the same shapes, as it comes and
fused (one pass, written in C++). All sides have one thread, then two where there are two cores;
they alternate; ratios are medians of the rounds', with their range.

The order of six roundings is the definition (`refgf/training/sgd.py`). `plain` is the core's
update (`refgf/ops.py`): NumPy passes over blocks of 2 MiB. `refgf` is the engine's, with the same
bits: one compiled pass with Numba (the extra `fast`), else passes over blocks that fit the cache.
"""

import json
import os
import statistics
import sys
import time
from pathlib import Path

from tests.speed import benchmark
import numpy as np

from refgf import engine
from refgf.engine.threaded import ThreadedWorkspace
from refgf.nn.alexnet import AlexNet
from refgf.training.sgd import MomentumSGD

ROUNDS, RATE, MOMENTUM, DECAY = 15, 1e-6, 0.9, 5e-4
BAR = 1.3  # of the limit


def main(arguments: list[str] | None = None) -> dict:
    """Print a table; return the numbers, and write them to the file named first, if any."""
    arguments = sys.argv[1:] if arguments is None else arguments
    tensors = AlexNet(1000, normalization="none").tensors
    n = sum(spec.size for spec in tensors)
    results = {"parameters": n, "rounds": ROUNDS, "seconds": {}, "rows": []}
    for threads in range(1, min(2, os.cpu_count()) + 1):
        seconds = alternate(numpy_sides(tensors, n, threads) | torch_sides(tensors, threads))
        results["seconds"][threads] = seconds
        results["rows"] += table(seconds, n, threads)
    if arguments:
        Path(arguments[0]).write_text(json.dumps(results, indent=1) + "\n")
    return results


def table(seconds: dict, n: int, threads: int) -> list[dict]:
    """Prints one line a side; the rows of ratios."""
    print(f"momentum SGD, {n:,} float32 parameters, {threads} thread(s), median of {ROUNDS} rounds")
    print(f"{'':<14}{'ms':>8}{'GB/s':>8}{'over the limit':>16}   range")
    rows = []
    for name in seconds:
        moved, median_s = (12 if name == "triad" else 20) * n, statistics.median(seconds[name])
        row = {"name": f"{name}, {threads} thread(s), over the limit"} | over(seconds, name)
        rows += (
            [row | ({"wanted": ["at most", BAR]} if name == "refgf" else {})]
            if name != "limit"
            else []
        )
        print(
            f"{name:<14}{1e3 * median_s:>8.1f}{moved / median_s / 1e9:>8.1f}"
            f"{row['ratio']:>16.2f}   {row['ratio_min']:.2f} to {row['ratio_max']:.2f}"
        )
    return rows


def numpy_sides(tensors, n: int, threads: int) -> dict:
    w, v, g = (
        np.random.default_rng(seed).standard_normal(n, dtype=np.float32) for seed in range(3)
    )
    workspace = ThreadedWorkspace(threads)
    optimizer = MomentumSGD(tensors, w.copy(), MOMENTUM, DECAY, workspace)

    def step() -> None:
        optimizer.step(g, RATE)

    def plain() -> None:
        with engine.off():
            step()

    def limit(worker: int, part: slice) -> None:
        np.add(w[part], g[part], out=w[part])
        np.multiply(v[part], MOMENTUM, out=v[part])

    def triad(worker: int, part: slice) -> None:
        np.add(w[part], g[part], out=v[part])

    return {
        "limit": lambda: workspace.share(limit, n),
        "refgf": step,
        "plain": plain,
        "triad": lambda: workspace.share(triad, n),
    }


def torch_sides(tensors, threads: int) -> dict:
    """PyTorch's optimiser, as it comes and fused; none without PyTorch."""
    try:
        import torch
    except ImportError:
        print("left out: PyTorch is not installed")
        return {}
    torch.set_num_threads(threads)
    sides = {}
    for name, options in {"torch": {}, "torch, fused": {"fused": True}}.items():
        parameters = [torch.nn.Parameter(torch.randn(spec.shape)) for spec in tensors]
        for parameter in parameters:
            parameter.grad = torch.randn_like(parameter)
        groups = [
            {"params": [p], "weight_decay": DECAY * spec.decay}
            for p, spec in zip(parameters, tensors)
        ]
        sides[name] = torch.optim.SGD(groups, lr=RATE, momentum=MOMENTUM, **options).step
    return sides


def alternate(sides: dict) -> dict[str, list[float]]:
    """Seconds of each side and round, after one round that does not count."""
    seconds = {name: [] for name in sides}
    for _ in range(1 + ROUNDS):
        for name, step in sides.items():
            start_s = time.perf_counter()
            step()
            seconds[name].append(time.perf_counter() - start_s)
    return {name: times_s[1:] for name, times_s in seconds.items()}


def over(seconds: dict, name: str) -> dict:
    """Ratios to the limit of the same round; triad's per byte."""
    bytes_of_limit = 20 / 12 if name == "triad" else 1
    ratios = [
        bytes_of_limit * side_s / limit_s
        for side_s, limit_s in zip(seconds[name], seconds["limit"])
    ]
    return {"ratio": statistics.median(ratios), "ratio_min": min(ratios), "ratio_max": max(ratios)}


if __name__ == "__main__":
    benchmark.begin()
    main()
