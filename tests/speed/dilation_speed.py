"""Is time dilation honest? Two factors must give one answer, and a slept network the real one's.

    python tests/speed/dilation_speed.py [results.json]

factors   steps of AlexNet like v100-56gbit on 4 nodes, K and K/2 times slower, both in the
          cluster's time: the same within 10 %
real      full-size AlexNet on 2 nodes with a core each, computed for real, and slept at the pace
          that was measured: the same within 10 %, without an exchange and with one

Rows are ratios of medians; their range is that of single steps over the other side's median.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.speed import benchmark
from tests.speed.gradientflow_speed import no_cluster
from tests.speed.judge import bar

HERE = Path(__file__).resolve().parent
FACTORS = ("500mbit", "1gbit")  # K = 112 and 56
SAME = 1.10


def main(arguments: list[str] | None = None) -> dict:
    """Print the bars; return the numbers, and write them to the file named first, if any."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if reason := no_cluster():
        print(f"left out: {reason}")
        return {}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out.json")
        ladders = [side("ladder", out, "--like", "v100-56gbit", "--rate", r) for r in FACTORS]
        real = side("real", out, "--nodes", "2", "--cpus-per-node", "1", "--rate", "1gbit")
    slow, fast = (found["cluster_s"] for found in ladders)
    k, half_k = (found["dilation"] for found in ladders)
    rows = [alike(f"{s}: K = {k:g} over K = {half_k:g}", slow[s], fast[s]) for s in slow]
    for name in ("off", "on"):
        title = f"exchange {name}: AlexNet slept over computed, a core for each rank"
        rows.append(alike(title, real["slept"][name], real["real"][name]))
    measured = {key: real[key] for key in ("date", "machine", "measured_with")}
    results = {"rows": rows, "ladders": ladders, "real": real} | measured
    if arguments:
        Path(arguments[0]).write_text(json.dumps(results, indent=1) + "\n")
    return results


def side(mode: str, out: Path, *shape: str) -> dict:
    """What rank 0 of dilation_side.py has written."""
    cluster = [sys.executable, "-m", "refgf.cluster", "run", *shape]
    script = [sys.executable, str(HERE / "dilation_side.py"), mode, str(out)]
    benchmark.run([*cluster, "--", *script], check=True, stdout=subprocess.DEVNULL)
    return json.loads(out.read_text())


def alike(name: str, ours: list[float], theirs: list[float]) -> dict:
    """The row of two sides that should be equal: the larger median over the smaller one."""
    a, b = statistics.median(ours), statistics.median(theirs)
    longer, shorter = (ours, b) if a >= b else (theirs, a)
    return bar(name, [t / shorter for t in longer], SAME)


if __name__ == "__main__":
    benchmark.begin()
    main()
