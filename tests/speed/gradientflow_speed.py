"""GradientFlow on the emulated cluster: 4 nodes x 1 rank at 1 Gbit/s, full-size AlexNet.

    python tests/speed/gradientflow_speed.py [results.json] [--only csc|dense|roomy|ddp] [--pairs 3]

    csc      a step with the whole stack against one without any communication, in turns; what
             overlap hides
    dense    dense float16 against what the timeline predicts from its parts
    roomy    both with a core for each rank, so fewer ranks
    ddp      the exchange against PyTorch's DDP over gloo at equal compute: both sides wait as long
             as ours was measured to compute, the processor free; pairs of runs alternate

Batch 16 a rank, one BLAS thread. The computing sides' own times without communication are printed,
so that no faster convolution looks like a better exchange.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

from tests.speed import benchmark
from tests.speed.judge import bar

from refgf.machine.meter import ExposedTime
from refgf.predict.cost import Line
from refgf.predict.timeline import lazy, predict
from refgf.papers.scaling.workloads import alexnet

HERE = Path(__file__).resolve().parent
NODES, RATE, PAIRS, THETA = 4, "1gbit", 3, 2**22
OURS, THEIRS = "gradientflow_side.py", "ddp.py"
PARTS = ("csc", "dense", "roomy", "ddp")


def main(arguments: list[str] | None = None) -> dict:
    """Print the bars; return the numbers, and write them to the file named first, if any."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", nargs="?", type=Path)
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--pairs", type=int, default=PAIRS, help="of runs against DDP")
    options = parser.parse_args(arguments)
    if reason := no_cluster():
        print(f"left out: {reason}")
        return {}
    parts = {
        "csc": csc,
        "dense": dense,
        "roomy": roomy,
        "ddp": lambda folder: ddp(folder, options.pairs),
    }
    results = {"rows": []}
    for name in [options.only] if options.only else PARTS:
        with tempfile.TemporaryDirectory() as folder:
            results[name] = parts[name](Path(folder))
        results["rows"] += results[name].pop("rows", [])
    if options.results:
        options.results.write_text(json.dumps(results, indent=1) + "\n")
    return results


def no_cluster() -> str | None:
    command = [sys.executable, "-m", "refgf.cluster", "check"]
    check = benchmark.run(command, capture_output=True, text=True)
    return None if check.returncode == 0 else (check.stdout + check.stderr).strip()


def on_cluster(script: str, mode: str, folder: Path, *more, nodes: int = NODES) -> dict | None:
    """What rank 0 of a script has written; None without PyTorch."""
    out = folder / "out.json"
    out.unlink(missing_ok=True)
    shape = ["--nodes", str(nodes), "--ranks-per-node", "1", "--rate", RATE]
    cluster = [sys.executable, "-m", "refgf.cluster", "run", *shape]
    call = [*cluster, "--", sys.executable, str(HERE / script), mode, str(out), *map(str, more)]
    ended = benchmark.run(call, capture_output=True, text=True)
    if "No module named 'torch'" in ended.stderr:
        return None
    if ended.returncode or not out.exists():
        raise RuntimeError(
            f"{script} {mode}: exit code {ended.returncode}\n"
            f"{ended.stdout[-2000:]}{ended.stderr[-4000:]}"
        )
    return json.loads(out.read_text())


def csc(folder: Path) -> dict:
    ours = on_cluster(OURS, "CSC", folder)
    waited = on_cluster(OURS, "hidden", folder, paced(folder, ours))
    print(f"a step without communication, update included: {told(ours['alone'])}")
    print(f"the whole stack: {told(ours['CSC'])}")
    name = "whole stack, CSC 10 %, over the step without communication"
    rows = [bar(name, in_turns(ours, "CSC"), 1.20)]
    where_it_goes(ours)
    meter = exposed(ours["pace"], waited)
    print(f"CSC: {meter}")
    rows.append(bar("hidden, of what can be", [meter.hidden_share or 0.0], 0.8, least=True))
    return {"compute": ours, "wait": waited, "rows": rows}


def dense(folder: Path) -> dict:
    ours = on_cluster(OURS, "float16", folder)
    predicted_s = predicted_dense(ours)
    print(f"a step without communication, update included: {told(ours['alone'])}")
    print(f"dense float16: {told(ours['float16'])}")
    tell_processor(ours)
    a_s, b_s_per_byte = ours["line"]
    print(
        f"  predicted from: computing {compute_s(ours['pace']):.2f} s, "
        f"update {ours['pace']['update_s']:.2f} s, "
        f"a ring {a_s * 1e3:.1f} ms + {b_s_per_byte * 1e9:.1f} ns a byte, "
        f"computing keeps {ours['kept']:.2f} of its speed during a call"
    )
    name = f"dense float16 (predicted {predicted_s:.2f} s) over its prediction"
    return {"compute": ours, "rows": [bar(name, over(ours["float16"], predicted_s), 1.15)]}


def roomy(folder: Path) -> dict:
    cores = len(os.sched_getaffinity(0))
    ours = {name: on_cluster(OURS, name, folder, nodes=cores) for name in ("CSC", "float16")}
    print(
        f"with a core for each rank ({cores} ranks): the whole stack over the step without "
        f"communication {median(in_turns(ours['CSC'], 'CSC')):.2f}, dense float16 over its "
        "prediction "
        f"{median(ours['float16']['float16']) / predicted_dense(ours['float16']):.2f}"
    )
    return ours


def ddp(folder: Path, count: int) -> dict:
    ours, theirs = on_cluster(OURS, "alone", folder), on_cluster(THEIRS, "compute", folder)
    print(f"computing, no communication, update included: refgf {told(ours['alone'])}")
    if theirs:
        print(f"  PyTorch {told(theirs['alone'])}; DDP float32 {told(theirs['float32'])}")
    pace, rows = paced(folder, ours), []
    sides = {"refgf": OURS, "ddp": THEIRS}
    pairs = [
        {side: on_cluster(script, "wait", folder, pace) for side, script in sides.items()}
        for _ in range(count)
    ]
    for name in ("float32", "float16", "CSC"):
        print(f"at equal compute, {name}: refgf {told(joined(pairs, 'refgf', name))}")
    if theirs:
        for name in ("float32", "float16"):
            print(f"at equal compute, {name}: DDP   {told(joined(pairs, 'ddp', name))}")
            what = f"{name}: refgf over DDP, median of the pairs"
            rows.append(bar(what, ratios(pairs, name, name), 1.0))
        times_faster = [1 / value for value in ratios(pairs, "CSC", "float32")]
        what = "DDP float32 over the whole stack"
        rows.append(bar(what, times_faster, 2.0, least=True))
        rows.append(bar(f"{what}, in the worst pair", [min(times_faster)], 1.0, least=True))
    return {"refgf": ours, "ddp": theirs, "pairs": pairs, "rows": rows}


def paced(folder: Path, ours: dict) -> Path:
    """The file that tells a waiting side how long to wait."""
    path = folder / "pace.json"
    path.write_text(json.dumps(ours["pace"]))
    return path


def in_turns(ours: dict, name: str) -> list[float]:
    """Each step of a kind over the step without communication just before it."""
    return [one / alone for one, alone in zip(ours[name], ours["alone"], strict=True)]


def tell_processor(ours: dict) -> None:
    """Print the processor seconds of a step, of all ranks together, as a share of the cores'."""
    cores = len(os.sched_getaffinity(0))
    print(f"where it goes: processor seconds a step of all {NODES} ranks, on {cores} cores")
    for name, row in ours["spent"].items():
        step_s, used_s = median(row["step_s"]), row["computing_s"] + row["communicating_s"]
        share = f"{100 * used_s / (cores * step_s):.0f} % of the cores' time"
        print(
            f"  {name:<8} step {step_s:.2f} s: computing {row['computing_s']:.2f}, communicating "
            f"{row['communicating_s']:.2f}, together {share}; of both {row['kernel_s']:.2f} in the "
            "kernel"
        )


def where_it_goes(ours: dict) -> None:
    tell_processor(ours)
    cores, alone = len(os.sched_getaffinity(0)), ours["spent"]["alone"]
    stack, update_s = ours["spent"]["CSC"], ours["pace"]["update_s"]
    print(
        f"  CSC's arithmetic {median(ours['CSC arithmetic']):.3f} s a step without messages, all "
        f"ranks at once, in place of momentum SGD's {update_s:.3f} s while ranks compute"
    )
    used_s = stack["computing_s"] + stack["communicating_s"]
    free_s = max(0.0, median(stack["step_s"]) - used_s / cores)
    more_s = stack["computing_s"] - alone["computing_s"] + stack["communicating_s"]
    print(
        f"  CSC needs {more_s:.2f} processor seconds more than a step without communication: "
        f"{more_s / cores:.2f} s of a step if no core is idle (idle: {free_s:.2f} s), "
        f"{more_s / NODES:.2f} s with a core for each rank"
    )


def predicted_dense(ours: dict) -> float:
    """Seconds of a dense float16 step, from the timeline and measured parts.

    The parts: pace of backward, a and b of the ring, the share of its speed that a matrix product
    keeps while a call is in flight, update.
    """
    pace, line = ours["pace"], Line(*ours["line"])
    ready, now_s = [], pace["forward_s"]
    for seconds, tensor in zip(pace["steps_s"], alexnet().tensors):
        now_s += seconds
        ready.append((now_s, 2 * tensor.elements))
    groups, end_s = lazy(ready, THETA), now_s + pace["rest_s"]
    step = predict(ready, groups, line, compute_s=end_s, overlap=ours["kept"])
    return step.step_s + pace["update_s"]


def compute_s(pace: dict) -> float:
    return pace["forward_s"] + sum(pace["steps_s"]) + pace["rest_s"]


def exposed(pace: dict, waited: dict) -> ExposedTime:
    window_s = sum(pace["steps_s"][1:]) + pace["rest_s"]
    names = "CSC", "CSC alone", "CSC sequential"
    together, alone, sequential = (median(waited[name]) for name in names)
    return ExposedTime(compute_s(pace), alone, together, sequential, window_s=window_s)


def median(values) -> float:
    return statistics.median(values)


def joined(pairs, side: str, name: str) -> list[float]:
    return [seconds for pair in pairs for seconds in pair[side][name]]


def ratios(pairs, ours: str, theirs: str) -> list[float]:
    return [median(pair["refgf"][ours]) / median(pair["ddp"][theirs]) for pair in pairs]


def over(seconds: list[float], other_s: float) -> list[float]:
    return [one / other_s for one in seconds]


def told(seconds: list[float]) -> str:
    return f"{median(seconds):.2f} s [{min(seconds):.2f}..{max(seconds):.2f}]"


if __name__ == "__main__":
    benchmark.begin()
    main()
