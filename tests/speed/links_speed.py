"""What an emulated cluster promises: its rates, lesson 03's gains, nothing left of killed runs.

    python tests/speed/links_speed.py

Rates from 100 Mbit/s to 5 Gbit/s must be within 5 %; above that there is no bar, but the table
shows where this machine's cores run out. Lesson 03 exchanges ResNet-50's 161 tensors for each
theta: its gain over theta = 0 must be within 20 % of the predicted one. The killed runs are those
of tests/cluster/test_long.py.
"""

import json
import sys
import tempfile
from pathlib import Path

from tests.speed import benchmark
from tests.speed.gradientflow_speed import no_cluster
from tests.speed.judge import bar

ROOT = Path(__file__).resolve().parents[2]
RATES = ("100mbit", 1500), ("1gbit", 1500), ("2.5gbit", 1500), ("5gbit", 1500), ("5gbit", 9000)
BEYOND = ("8gbit", 1500), ("10gbit", 1500), ("10gbit", 9000), ("20gbit", 9000)
THETAS = 0, *(2**k for k in range(16, 27, 2)), "inf"  # bytes
CLUSTER = sys.executable, "-m", "refgf.cluster"
EIGHT = "run", "--nodes", "4", "--ranks-per-node", "2", "--rate", "1gbit", "--"


def main(arguments: list[str] | None = None) -> dict:
    """Print the bars; return the numbers, and write them to the file named first, if any."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if reason := no_cluster():
        print(f"left out: {reason}")
        return {}
    results = {
        "rates": [rate_row(*asked) for asked in RATES],
        "beyond": [beyond(*asked) for asked in BEYOND],
    }
    results |= {"gains": gain_rows(), "killed": killed()}
    if arguments:
        Path(arguments[0]).write_text(json.dumps(results, indent=1) + "\n")
    return results


def probe(rate: str, mtu: int) -> tuple[float, float]:
    """(share of the rate asked for, share of the cores' time that was idle)."""
    command = [*CLUSTER, "probe", "--nodes", "2", "--rate", rate, "--mtu", str(mtu)]
    said = benchmark.run(command, check=True, capture_output=True, text=True).stdout
    (row,) = [line.split() for line in said.splitlines() if line.startswith("0-1")]
    return float(row[4]), float(row[5])


def rate_row(rate: str, mtu: int) -> dict:
    off = [abs(probe(rate, mtu)[0] - 1) for _ in range(3)]
    return bar(f"off the rate asked for, {rate}, MTU {mtu}", off, 0.05)


def beyond(rate: str, mtu: int) -> dict:
    share, idle = probe(rate, mtu)
    spare = f"{100 * idle:.0f} % of the cores' time to spare"
    print(f"     {rate}, MTU {mtu}: {share:.2f} of the rate asked for, {spare}")
    return {"rate": rate, "mtu": mtu, "share": share, "idle": idle}


def gain_rows() -> list[dict]:
    """For each theta: how far the gain over theta = 0 is from the predicted one."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--theta", *THETAS, "--output", folder]
        lesson = [sys.executable, ROOT / "lessons" / "03_lazy_allreduce.py", *options]
        benchmark.run([*CLUSTER, *EIGHT, *map(str, lesson)], check=True, capture_output=True)
        rows = json.loads((Path(folder) / "03_lazy_allreduce.json").read_text())["resnet50"]["rows"]
    off, first = [], rows[0]
    for row in rows[1:]:
        measured = first["plain"]["median_s"] / row["plain"]["median_s"]
        predicted = first["predicted"]["plain"] / row["predicted"]["plain"]
        theta = f"theta {float(row['theta']) / 2**20:g} MiB"
        name = f"off the predicted gain of {predicted:.2f}, all of ResNet-50, {theta}"
        off.append(bar(name, abs(measured / predicted - 1), 0.20))
    return off


def killed() -> dict:
    test = ["tests/cluster/test_long.py", "-q", "-m", "long", "-k", "killed"]
    command = [sys.executable, "-m", "pytest", *test]
    done = benchmark.run(command, cwd=ROOT, capture_output=True, text=True)
    what = "exit code of the test that kills 50 runs and looks for what they left"
    return bar(what, float(done.returncode), 0.0)


if __name__ == "__main__":
    benchmark.begin()
    main()
