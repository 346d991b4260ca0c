"""DASO and synchronous training on emulated 4 nodes x 2 ranks; communication is half of a step.

    python tests/speed/daso_speed.py [results.json]

First a step without exchange is timed. From it follows the rate of links at which a node sends as
long as it computes; the share that communication really has is measured and printed. Then epochs
of synchronous training (plain, and overlapped) and of DASO alternate: with all ranks computing on
this machine's cores; and, labelled EMULATION, with ranks that wait as long as a step without
exchange takes, so that the processors are free, as on nodes whose GPUs compute. Where ranks share
cores, sending takes time from computing, and not all that DASO hides is gained.
"""

import json
import statistics
import sys
import tempfile
from pathlib import Path

from tests.speed import benchmark
from tests.speed.gradientflow_speed import no_cluster
from tests.speed.judge import bar

SIDE = Path(__file__).resolve().parent / "daso_side.py"
MOST = 0.75  # of the time of an epoch
KINDS = {
    "compute": "ranks compute, and share this machine's cores",
    "wait": "EMULATION: ranks wait as long as a step without exchange takes",
}
SYNCHRONOUS = ("synchronous", "synchronous, overlapped")


def main(arguments: list[str] | None = None) -> dict:
    """Print the bars; return the numbers, and write them to the file named first, if any."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if reason := no_cluster():
        print(f"left out: {reason}")
        return {}
    alone = on_cluster("1gbit", "alone")
    alone_s, rate = statistics.median(alone["alone"]), f"{alone['rate'] / 1e6:.0f}mbit"
    sent = f"a node sends {alone['bytes'] / 2**10:.0f} KiB a step"
    print(f"a step without exchange {1e3 * alone_s:.1f} ms; {sent}; so links of {rate}")
    found = {kind: on_cluster(rate, kind, *([alone_s] if kind == "wait" else [])) for kind in KINDS}
    ratios = [row for kind, times in found.items() for row in report(KINDS[kind], times)]
    results = {"alone": alone, "rate": rate, **found, "ratios": ratios}
    if arguments:
        Path(arguments[0]).write_text(json.dumps(results, indent=1) + "\n")
    return results


def on_cluster(rate: str, mode: str, *more) -> dict:
    """What rank 0 of daso_side.py has written."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        shape = ["--nodes", "4", "--ranks-per-node", "2", "--rate", rate]
        cluster = [sys.executable, "-m", "refgf.cluster", "run", *shape]
        call = [*cluster, "--", sys.executable, str(SIDE), mode, str(out), *map(str, more)]
        ended = benchmark.run(call, capture_output=True, text=True)
        if ended.returncode or not out.exists():
            raise RuntimeError(
                f"daso_side.py {mode}: exit code {ended.returncode}\n"
                f"{ended.stdout[-2000:]}{ended.stderr[-4000:]}"
            )
        return json.loads(out.read_text())


def report(title: str, times: dict) -> list[dict]:
    """Print each system's time of a batch; the rows of DASO's over both synchronous ones.

    The bar is for the plain one; the other hides a part of its sums too, behind backward.
    """
    medians = {name: statistics.median(seconds) for name, seconds in times.items()}
    share = 1 - medians["no exchange"] / medians["synchronous"]
    print(f"\n{title}; communication is {100 * share:.0f} % of a synchronous step")
    for name, seconds in times.items():
        spread = f"[{1e3 * min(seconds):.1f}..{1e3 * max(seconds):.1f}]"
        less = f"{100 * (1 - medians[name] / medians['synchronous']):4.0f} % less"
        print(f"{name:>24}: {1e3 * medians[name]:6.1f} ms {spread}, {less}")
    plain, overlapped = (  # epochs next to each other
        [mine / other for mine, other in zip(times["B=4, W=1"], times[name])]
        for name in SYNCHRONOUS
    )
    row = bar(f"DASO over synchronous, {title}", plain, MOST) | {"share": share}
    print(f"     DASO over synchronous, overlapped: {statistics.median(overlapped):.2f}")
    return [
        row,
        {
            "name": f"DASO over synchronous, overlapped, {title}",
            "ratio": statistics.median(overlapped),
            "ratio_min": min(overlapped),
            "ratio_max": max(overlapped),
        },
    ]


if __name__ == "__main__":
    benchmark.begin()
    main()
