"""The emulated cluster and the ring on it: 4 nodes at 1 Gbit/s, MTU 1500, 1 or 2 ranks a node.

    python tests/speed/cluster_speed.py [results.json]

bus      bus bandwidth 2(p-1)/p N/t: what every link transfers, whatever p is
raw TCP  goodput one way between two nodes, measured in turn with the ring
ring     the pipelined one, which adds while it sends; `plain` goes a step at a time
own      MPI's own Allreduce. It knows the nodes, so where a node has several ranks ring/own is that
         of the two-level ring, which knows them too (with the 95 % interval of the median)
own/own  two equal sides: the smallest difference that means something

Every figure is a median of repeats, with its range.
"""

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from tests.speed import benchmark
from tests.speed.gradientflow_speed import no_cluster
from tests.speed.judge import bar, compared, worst, written

HERE = Path(__file__).resolve().parent
NODES, RATE = 4, "1gbit"
SHARE = {1: 0.97, 2: 0.93}  # of raw goodput, by ranks a node
FROM_BYTES, OWN_FROM_BYTES = 4 << 20, 1 << 20  # smaller vectors are latency


def main(arguments: list[str] | None = None) -> dict:
    """Print the bars; return the numbers, and write them to the file named first, if any."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if reason := no_cluster():
        print(f"left out: {reason}")
        return {}
    results = {"start_stop_s": [start_and_stop() for _ in range(5)]}
    results["start_stop_row"] = bar(
        "start and stop of 4 nodes, seconds", results["start_stop_s"], 2.0
    )
    for each, share in SHARE.items():
        results[each] = on_cluster(each)
        report(NODES * each, results[each], share)
    if arguments:
        Path(arguments[0]).write_text(json.dumps(results, indent=1) + "\n")
    return results


def cluster(each: int, *program) -> list[str]:
    shape = ["--nodes", str(NODES), "--ranks-per-node", str(each), "--rate", RATE]
    return [sys.executable, "-m", "refgf.cluster", "run", *shape, "--", *map(str, program)]


def start_and_stop() -> float:
    start_s = time.perf_counter()
    benchmark.run(cluster(1, "true"), check=True, capture_output=True)
    return time.perf_counter() - start_s


def on_cluster(each: int) -> dict:
    out = HERE.parents[1] / "results" / f"cluster_side_{each}.json"
    out.parent.mkdir(exist_ok=True)
    benchmark.run(
        cluster(each, sys.executable, HERE / "cluster_side.py", out),
        check=True,
        stdout=subprocess.DEVNULL,
    )
    found = json.loads(out.read_text())
    out.unlink()
    return found


def report(p: int, found: dict, share: float) -> None:
    print(f"{NODES} nodes x {p // NODES} ranks, {RATE}; rates in MB/s")
    heads = (
        f"{'raw TCP':>16} {'ring, bus':>16} {'own, bus':>16} {'ring/raw':>9} {'plain/own s':>12} "
        f"{'ring/own s':>22} {'fastest/own s':>14} {'own/own s':>10}"
    )
    print(f"{'bytes':>12} {heads}")
    for row in found["sizes"]:
        factor = 2 * (p - 1) / p * row["bytes"] / 1e6
        rates = {"raw": [r / 1e6 for r in row["raw"]]} | {
            side: [factor / s for s in row[side]] for side in ("ring", "own")
        }
        cells = " ".join(
            f"{statistics.median(r):5.1f} [{min(r):.0f}..{max(r):.0f}]".rjust(16)
            for r in rates.values()
        )
        row["of_raw"] = statistics.median(
            ring / raw for ring, raw in zip(rates["ring"], rates["raw"])
        )
        name = f"{row['bytes']} bytes, {NODES} x {p // NODES}"
        row["ring_row"] = compared(
            f"ring / MPI's own, {name}", row.get("ring by nodes", row["ring"]), row["own"]
        )
        plain, same = (
            compared(side, row[side], row["own"])["ratio"] for side in ("plain ring", "own again")
        )
        if row["bytes"] < OWN_FROM_BYTES:
            del row["ring_row"]["wanted"]
        row["fastest_row"] = compared(f"fastest / MPI's own, {name}", row["fastest"], row["own"])
        if row["chosen"] == "MPI's own":  # the same call on both sides
            del row["fastest_row"]["wanted"]
        print(
            f"{row['bytes']:>12} {cells} {row['of_raw']:>9.3f} {plain:>12.3f} "
            f"{written(row['ring_row']):>22} {row['fastest_row']['ratio']:>14.3f} {same:>10.3f} "
            f"{row['chosen']}"
        )
    long = [row["of_raw"] for row in found["sizes"] if row["bytes"] >= FROM_BYTES]
    what = f"ring over raw TCP, worst size from {FROM_BYTES >> 20} MiB, {NODES} x {p // NODES}"
    found["raw_row"] = bar(what, min(long), share, least=True)
    worst(
        f"ring over MPI's own from {OWN_FROM_BYTES >> 20} MiB",
        [row["ring_row"] for row in found["sizes"] if row["bytes"] >= OWN_FROM_BYTES],
    )
    worst(
        "the call measured fastest over MPI's own, where it is another one",
        [row["fastest_row"] for row in found["sizes"] if "wanted" in row["fastest_row"]],
    )
    small = found["small"]
    gains = [eager / lazy for eager, lazy in zip(small["eager"], small["lazy"])]
    what = f"one call for ResNet-50's {small['tensors']} small tensors, times faster than eager"
    if p == 8:
        small["row"] = bar(what, gains, 5.0, least=True)
    else:
        print(f"     {what}: {statistics.median(gains):.1f}")


if __name__ == "__main__":
    benchmark.begin()
    main()
