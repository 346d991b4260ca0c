"""GradientFlow on the emulated cluster, 4 nodes x 1 rank at 1 Gbit/s, full-size AlexNet, batch 16 a rank, one BLAS thread.

    python tests/peers/gradientflow_speed.py [results.json]

First with the ranks computing: a step with the whole stack beside the step without any communication, and dense float16
beside what the timeline predicts from its parts. Then the exchange beside PyTorch's DDP over gloo at equal compute: both
sides wait as long as ours was measured to compute, the processor free; pairs of runs alternate. The computing sides' own
times without communication are printed, so that nobody takes a faster convolution for a better exchange.
"""

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from refgf.exchange.meter import ExposedTime
from refgf.predict.cost import Line
from refgf.predict.timeline import lazy, predict
from refgf.predict.workloads import alexnet

HERE = Path(__file__).resolve().parent
NODES, RATE, PAIRS, THETA = 4, "1gbit", 3, 2**22


def main(arguments: list[str] | None = None) -> dict:
    """Prints the bars; writes the numbers to the file named by the first argument, if there is one; returns them."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if reason := no_cluster():
        print(f"left out: {reason}")
        return {}
    folder = Path(tempfile.mkdtemp())
    ours = on_cluster("gradientflow_side.py", "compute", folder)
    theirs = on_cluster("ddp.py", "compute", folder)
    pace = folder / "pace.json"
    pace.write_text(json.dumps(ours["pace"]))
    pairs = [
        {"refgf": on_cluster("gradientflow_side.py", "wait", folder, pace), "ddp": on_cluster("ddp.py", "wait", folder, pace)}
        for _ in range(PAIRS)
    ]
    shutil.rmtree(folder)
    results = {"refgf": ours, "ddp": theirs, "pairs": pairs}
    report(results)
    if arguments:
        Path(arguments[0]).write_text(json.dumps(results, indent=1) + "\n")
    return results


def no_cluster() -> str | None:
    check = subprocess.run([sys.executable, "-m", "refgf.cluster", "check"], capture_output=True, text=True)
    return None if check.returncode == 0 else (check.stdout + check.stderr).strip()


def on_cluster(script: str, mode: str, folder: Path, *more) -> dict | None:
    """What rank 0 of a script has written; None without PyTorch."""
    out = folder / "out.json"
    out.unlink(missing_ok=True)
    cluster = [sys.executable, "-m", "refgf.cluster", "run", "--nodes", str(NODES), "--ranks-per-node", "1", "--rate", RATE]
    call = [*cluster, "--", sys.executable, str(HERE / script), mode, str(out), *map(str, more)]
    ended = subprocess.run(call, capture_output=True, text=True)
    if "No module named 'torch'" in ended.stderr:
        return None
    if ended.returncode or not out.exists():
        raise RuntimeError(f"{script} {mode}: exit code {ended.returncode}\n{ended.stdout[-2000:]}{ended.stderr[-4000:]}")
    return json.loads(out.read_text())


def report(results: dict) -> None:
    ours, theirs = results["refgf"], results["ddp"]
    alone_s = statistics.median(ours["alone"])
    print(f"computing, no communication, update included: refgf {told(ours['alone'])}"
          + (f", PyTorch {told(theirs['alone'])}; DDP float32 {told(theirs['float32'])}" if theirs else ""))  # fmt: skip
    csc_s, half_s = (statistics.median(ours[name]) for name in ("CSC", "float16"))
    bar("whole stack, CSC 10 %, over the step without communication", csc_s / alone_s, 1.20)
    predicted_s = predicted_dense(ours)
    bar(f"dense float16 (predicted {predicted_s:.2f} s) over its prediction", half_s / predicted_s, 1.15)
    pairs = results["pairs"]
    for name in ("float32", "float16", "CSC"):
        print(f"at equal compute, {name}: refgf {told(joined(pairs, 'refgf', name))}")
    if theirs:
        for name in ("float32", "float16"):
            print(f"at equal compute, {name}: DDP   {told(joined(pairs, 'ddp', name))}")
            bar(f"{name}: refgf over DDP, median of the pairs", ratio(pairs, name, name), 1.0)
        bar("DDP float32 over the whole stack (at least 2)", 1 / ratio(pairs, "CSC", "float32"), 2.0, least=True)
        slowest = max(median(p["refgf"]["CSC"]) / median(p["ddp"]["float32"]) for p in pairs)
        bar("the whole stack over DDP float32, in the worst pair", slowest, 1.0)
    meter = exposed(results)
    print(f"CSC: {meter}")
    bar("hidden, of what can be", meter.hidden_share or 0.0, 0.8, least=True)


def predicted_dense(ours: dict) -> float:
    """The timeline of a dense float16 step from measured parts: pace of backward, a and b of the ring, update."""
    pace, line = ours["pace"], Line(*ours["line"])
    ready, now_s = [], pace["forward_s"]
    for seconds, tensor in zip(pace["steps_s"], alexnet().tensors):
        now_s += seconds
        ready.append((now_s, 2 * tensor.elements))
    return predict(ready, lazy(ready, THETA), line, compute_s=now_s + pace["rest_s"]).step_s + pace["update_s"]


def exposed(results: dict) -> ExposedTime:
    pace, some = results["refgf"]["pace"], results["pairs"]
    compute_s = pace["forward_s"] + sum(pace["steps_s"]) + pace["rest_s"]
    window_s = sum(pace["steps_s"][1:]) + pace["rest_s"]
    together, alone, sequential = (median(joined(some, "refgf", name)) for name in ("CSC", "CSC alone", "CSC sequential"))
    return ExposedTime(compute_s, alone, together, sequential, window_s=window_s)


def median(values) -> float:
    return statistics.median(values)


def joined(pairs, side: str, name: str) -> list[float]:
    return [seconds for pair in pairs for seconds in pair[side][name]]


def ratio(pairs, ours: str, theirs: str) -> float:
    return median([median(pair["refgf"][ours]) / median(pair["ddp"][theirs]) for pair in pairs])


def told(seconds: list[float]) -> str:
    return f"{median(seconds):.2f} s [{min(seconds):.2f}..{max(seconds):.2f}]"


def bar(name: str, value: float, limit: float, least: bool = False) -> None:
    held = value >= limit if least else value <= limit
    print(f"{'ok  ' if held else 'MISS'} {name}: {value:.2f} (wanted {'at least' if least else 'at most'} {limit:g})")


if __name__ == "__main__":
    main()
