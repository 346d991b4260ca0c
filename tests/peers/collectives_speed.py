"""Collectives and choices against their simplest peers: hierarchy and hybrid against the flat ring, MSTopK against sorting.

    python tests/peers/collectives_speed.py [results.json]

The collectives are those of lesson 10, which alternates them call by call, on the emulated cluster: 4 nodes of 2 ranks at
1 Gbit/s. MSTopK runs in this process against np.argpartition of the magnitudes, one thread, in turn. A ratio is that of
medians; the range that is printed is that of the pairs where there are pairs.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from gradientflow_speed import bar, no_cluster

from refgf.exchange.topk import keep_count, mstopk

ROOT = Path(__file__).resolve().parents[2]
SHORT_BYTES, FASTER, SLOWER = 64 << 10, 1.5, 1.1
ELEMENTS, PERCENTS, REPEATS = 10_000_000, (0.1, 1, 10), 5


def main(arguments: list[str] | None = None) -> dict:
    """Prints the bars; writes the numbers to the file named by the first argument, if there is one; returns them."""
    arguments = sys.argv[1:] if arguments is None else arguments
    results = {"mstopk": [choice(percent) for percent in PERCENTS]}
    for row in results["mstopk"]:
        what = f"MSTopK, {ELEMENTS:,} elements, {row['percent']} %: times as fast as argpartition"
        bar(f"{what} ({row['low']:.2f} to {row['high']:.2f})", row["gain"], 1.0, least=True)
    if reason := no_cluster():
        print(f"collectives left out: {reason}")
    else:
        results["collectives"] = collectives()
    if arguments:
        Path(arguments[0]).write_text(json.dumps(results, indent=1) + "\n")
    return results


def collectives() -> list[dict]:
    """Lesson 10's points, each as gains over the flat ring."""
    rows = []
    for point in lesson_on_cluster()["points"]:
        seconds = {name: timing["median_s"] for name, timing in point["measured"].items()}
        ring_s, three_s = seconds["flat ring"], seconds["three phases"]
        rows.append({"bytes": point["bytes"], "seconds": seconds, "gain": ring_s / three_s,
                     "hybrid": seconds["hybrid"] / min(ring_s, three_s)})  # fmt: skip
    for row in rows:
        if row["bytes"] <= SHORT_BYTES:
            bar(f"three phases, {row['bytes']} bytes: times as fast as the flat ring", row["gain"], FASTER, least=True)
    for row in rows:
        bar(f"hybrid, {row['bytes']} bytes: time over that of the better of the two", row["hybrid"], SLOWER)
    return rows


def lesson_on_cluster() -> dict:
    with tempfile.TemporaryDirectory() as folder:
        shape = ["--nodes", "4", "--ranks-per-node", "2", "--rate", "1gbit"]
        cluster = [sys.executable, "-m", "refgf.cluster", "run", *shape, "--"]
        lesson = [sys.executable, "lessons/10_hierarchical_allreduce.py", "--output", folder]
        subprocess.run([*cluster, *lesson], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
        return json.loads(Path(folder, "10_hierarchical_allreduce.json").read_text())


def choice(percent: float) -> dict:
    """How many times as fast MSTopK is as sorting's partition, on numbers with a tail as heavy as gradients have."""
    x = np.random.default_rng(0).standard_normal(ELEMENTS).astype(np.float32)
    x *= x * x
    k, pairs = keep_count(ELEMENTS, percent), []
    for _ in range(1 + REPEATS):
        pairs.append((timed(lambda: np.argpartition(np.abs(x), x.size - k)[x.size - k :]), timed(lambda: mstopk(x, k))))
    gains = [sorting_s / bisection_s for sorting_s, bisection_s in pairs[1:]]
    return {"percent": percent, "gain": statistics.median(gains), "low": min(gains), "high": max(gains)}


def timed(function) -> float:
    start_s = time.perf_counter()
    function()
    return time.perf_counter() - start_s


if __name__ == "__main__":
    main()
