"""Momentum SGD with weight decay over AlexNet's 62 million parameters, in place, beside what memory allows.

    python tests/peers/optimizer_speed.py [results.json]

The limit moves the same bytes with the least arithmetic: w += g; v *= m reads w, g and v and writes w and v, once each, as
a step must. `triad` is another usual measure of memory, v = w + g, per byte. PyTorch's torch.optim.SGD does the same
update on parameters of the same shapes, as it comes and fused (one pass, written in C++). One thread each; the sides
alternate; ratios are medians of the rounds', with their range.

Here the order of six roundings is the definition (`refgf/training/sgd.py`), so there are six passes. Three of them read
what is in the cache already: that is what the step takes beyond the limit where memory is fast.
"""

import refgf.launch  # noqa: F401  one thread a library

import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np

from refgf.nn.alexnet import AlexNet
from refgf.training.sgd import MomentumSGD

ROUNDS, RATE, MOMENTUM, DECAY = 15, 1e-6, 0.9, 5e-4
BAR = 1.3  # of the limit


def main(arguments: list[str] | None = None) -> dict:
    """Prints a table; writes the numbers to the file named by the first argument, if there is one; returns them."""
    arguments = sys.argv[1:] if arguments is None else arguments
    tensors = AlexNet(1000, normalization="none").tensors
    n = sum(spec.size for spec in tensors)
    sides = numpy_sides(tensors, n) | torch_sides(tensors)
    seconds = alternate(sides)
    results = {"parameters": n, "rounds": ROUNDS, "seconds": seconds, "rows": []}
    print(f"momentum SGD, {n:,} float32 parameters, one thread, median of {ROUNDS} rounds")
    print(f"{'':<14}{'ms':>8}{'GB/s':>8}{'over the limit':>16}   range")
    for name in seconds:
        moved = (12 if name == "triad" else 20) * n
        row = over(seconds, name) | {"name": f"{name} over the limit"}
        if name != "limit":
            results["rows"].append(row | ({"wanted": ["at most", BAR]} if name == "refgf" else {}))
        median_s = statistics.median(seconds[name])
        print(f"{name:<14}{1e3 * median_s:>8.1f}{moved / median_s / 1e9:>8.1f}{row['ratio']:>16.2f}   "
              f"{row['ratio_min']:.2f} to {row['ratio_max']:.2f}")  # fmt: skip
    if arguments:
        Path(arguments[0]).write_text(json.dumps(results, indent=1) + "\n")
    return results


def numpy_sides(tensors, n: int) -> dict:
    w, v, g = (np.random.default_rng(seed).standard_normal(n, dtype=np.float32) for seed in range(3))
    optimizer = MomentumSGD(tensors, w.copy(), MOMENTUM, DECAY)

    def limit() -> None:
        np.add(w, g, out=w)
        np.multiply(v, MOMENTUM, out=v)

    return {"limit": limit, "refgf": lambda: optimizer.step(g, RATE), "triad": lambda: np.add(w, g, out=v)}


def torch_sides(tensors) -> dict:
    """PyTorch's optimiser, as it comes and fused; none without PyTorch."""
    try:
        import torch
    except ImportError:
        print("left out: PyTorch is not installed")
        return {}
    torch.set_num_threads(1)
    sides = {}
    for name, options in {"torch": {}, "torch, fused": {"fused": True}}.items():
        parameters = [torch.nn.Parameter(torch.randn(spec.shape)) for spec in tensors]
        for parameter in parameters:
            parameter.grad = torch.randn_like(parameter)
        groups = [{"params": [p], "weight_decay": DECAY * spec.decay} for p, spec in zip(parameters, tensors)]
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
    ratios = [bytes_of_limit * side_s / limit_s for side_s, limit_s in zip(seconds[name], seconds["limit"])]
    return {"ratio": statistics.median(ratios), "ratio_min": min(ratios), "ratio_max": max(ratios)}


if __name__ == "__main__":
    main()
