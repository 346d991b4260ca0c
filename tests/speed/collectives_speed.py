"""Hierarchies and hybrids against the flat ring, MSTopK against sorting.

    python tests/speed/collectives_speed.py [results.json]

The collectives take turns call by call (collectives_side.py) on the emulated cluster: 4 nodes of
2 ranks, at 10 and at 1 Gbit/s, RUNS runs each in turn. A ratio is that of a run's medians; the
median of the runs counts, their range is printed. Next to each gain stands the largest that any
allreduce could have: the flat ring's time over that of 2(m-1)/m n bytes through the busiest link.
MSTopK runs in this process against np.argpartition of the magnitudes, one thread, in turn.
"""

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.speed import benchmark
import numpy as np
from tests.speed.gradientflow_speed import no_cluster
from tests.speed.judge import bar

from refgf.machine.units import parse_rate
from refgf.papers.mstopk.topk import keep_count, mstopk
from refgf.papers.scaling.collectives import least_between_s
from refgf.predict.cost import Link

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RATES, RUNS, NODES = ("10gbit", "1gbit"), 3, 4
FORMS = {"three phases": "three phases (Jia et al.)", "log phases": "log phases"}
SHORT_BYTES, FASTER, SLOWER = 64 << 10, 1.5, 1.1
ELEMENTS, PERCENTS, REPEATS = 10_000_000, (0.1, 1, 10), 5


def main(arguments: list[str] | None = None) -> dict:
    """Print the bars; return the numbers, and write them to the file named first, if any."""
    arguments = sys.argv[1:] if arguments is None else arguments
    results = {"mstopk": [choice(percent) for percent in PERCENTS]}
    for row in results["mstopk"]:
        what = f"MSTopK, {ELEMENTS:,} elements, {row['percent']} %: times as fast as argpartition"
        row |= bar(what + spread(row["gains"]), row["gains"], 1.0, least=True)
    if reason := no_cluster():
        print(f"collectives left out: {reason}")
    else:
        results["collectives"] = collectives()
    if arguments:
        Path(arguments[0]).write_text(json.dumps(results, indent=1) + "\n")
    return results


def collectives() -> dict:
    """The times of every run, and the bars over them. -> {rate: {"runs", "bars"}}"""
    runs = {rate: [] for rate in RATES}
    for _ in range(RUNS):
        for rate in RATES:
            runs[rate].append(on_cluster(rate))
    results = {}
    for rate in RATES:
        print(f"{NODES} nodes x 2 ranks, {rate}, {RUNS} runs")
        bars = gains(rate, runs[rate]) + hybrids(rate, runs[rate])
        results[rate] = {"runs": runs[rate], "bars": bars}
    return results


def gains(rate: str, runs: list[dict]) -> list[dict]:
    """Short vectors: the flat ring's time over that of a hierarchy."""
    bars, link = [], Link(0, 1 / parse_rate(rate))
    for form, title in FORMS.items():
        for nbytes in [n for n in runs[0] if int(n) <= SHORT_BYTES]:
            values = [run[nbytes]["flat ring"] / run[nbytes][form] for run in runs]
            least_s = least_between_s(NODES, int(nbytes) // 4, 4, link)
            most = statistics.median(run[nbytes]["flat ring"] / least_s for run in runs)
            name = f"{rate}, {nbytes} bytes: {title}, times as fast as the flat ring"
            name = f"{name}{spread(values)}, bytes allow {most:.2f}"
            bars.append(bar(name, values, FASTER, least=True))
    return bars


def hybrids(rate: str, runs: list[dict]) -> list[dict]:
    """Any size: the time of a hybrid over that of the better of the two it chooses from."""
    bars = []
    for form, title in FORMS.items():
        for nbytes in runs[0]:
            rows = [run[nbytes] for run in runs]
            values = [row[f"hybrid, {form}"] / min(row["flat ring"], row[form]) for row in rows]
            name = f"{rate}, {nbytes} bytes: hybrid of ring and {title}"
            bars.append(bar(f"{name}, time over the better one's{spread(values)}", values, SLOWER))
    return bars


def spread(values: list[float]) -> str:
    return f" ({min(values):.2f} to {max(values):.2f})"


def on_cluster(rate: str) -> dict:
    """{bytes: {algorithm: seconds}} of one run on the emulated cluster."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out.json")
        shape = ["--nodes", str(NODES), "--ranks-per-node", "2", "--rate", rate]
        cluster = [sys.executable, "-m", "refgf.cluster", "run", *shape, "--"]
        script = [sys.executable, str(HERE / "collectives_side.py"), str(out)]
        ended = benchmark.run([*cluster, *script], cwd=ROOT, capture_output=True, text=True)
        if ended.returncode:
            raise RuntimeError(
                f"collectives_side.py, {rate}: exit code {ended.returncode}\n"
                f"{ended.stdout[-2000:]}{ended.stderr[-4000:]}"
            )
        return json.loads(out.read_text())


def choice(percent: float) -> dict:
    """How many times as fast as sorting MSTopK is, on numbers with gradients' heavy tail."""
    x = np.random.default_rng(0).standard_normal(ELEMENTS).astype(np.float32)
    x *= x * x
    k, pairs = keep_count(ELEMENTS, percent), []
    for _ in range(1 + REPEATS):
        sorting_s = timed(lambda: np.argpartition(np.abs(x), x.size - k)[x.size - k :])
        pairs.append((sorting_s, timed(lambda: mstopk(x, k))))
    gains = [sorting_s / bisection_s for sorting_s, bisection_s in pairs[1:]]
    return {"percent": percent, "gains": gains}


def timed(function) -> float:
    start_s = time.perf_counter()
    function()
    return time.perf_counter() - start_s


if __name__ == "__main__":
    benchmark.begin()
    main()
