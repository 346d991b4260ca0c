"""Does `plan` predict what it has not seen? Calibrated on 2 emulated nodes, judged on 4.

    python tests/speed/unseen.py [results.json] [--rates 100mbit 250mbit] [--quick] [--no-ddp]

calibrate   for each rate, on 2 nodes: `refgf.predict measure`, and when each gradient of a network
            is ready on a rank without exchange. Predictions read these files only
steps       networks x rates x systems on 4 nodes: predicted step and its interval, measured step
            (median of steps of the slowest rank). Bars: median error, share inside the interval
sweep       networks x rates: theta of refgf, bucket_cap_mb of PyTorch's DDP over gloo. Is the value
            that is predicted best within 5 % of the best one measured?

Computing is slept, and the links are slow, so the cores are nearly free: what the processor does
for a message, a cast above all, is not predicted (unseen_side.py). About 8 minutes.
"""

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import benchmark
from gradientflow_speed import no_cluster
from judge import bar

from refgf.papers.mgwfbp.merge import exact_merge
from refgf.plan import buckets, fabric, inputs
from refgf.plan.systems import FLOAT32, Question, best_theta
from refgf.plan.uncertainty import planned

SIDE = Path(__file__).resolve().with_name("unseen_side.py")
RANKS = 4
RATES = ("100mbit", "250mbit")
NETWORKS = ("ResNet-50", "AlexNet", "GoogLeNet", "VGG-16", "BERT-Large")
SYSTEMS = ("eager", "theta", "merged", "half", "CSC")
SWEPT = {"refgf": [0, 1 << 16, 1 << 18, 1 << 20, 1 << 22], "ddp": [1, 2, 4, 8]}
MEDIAN_ERROR, COVERED, NEAR, OF_TEN = 0.10, 0.80, 1.05, 8


@dataclass(frozen=True)
class Case:
    """One network at one rate, as `plan` sees it."""

    network: str
    rate: str
    question: Question


def main(arguments: list[str] | None = None) -> dict:
    """Print tables and bars; return the numbers, and write them to the file named first, if any."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", nargs="?", type=Path)
    parser.add_argument("--rates", nargs="+", default=RATES)
    parser.add_argument("--quick", action="store_true", help="two networks")
    parser.add_argument("--no-ddp", action="store_true")
    options = parser.parse_args(arguments)
    if reason := no_cluster():
        print(f"left out: {reason}")
        return {}
    with_ddp = not options.no_ddp and importlib.util.find_spec("torch") is not None
    if not with_ddp:
        print("left out: DDP (--no-ddp, or no PyTorch)")
    names, found = NETWORKS[: 2 if options.quick else None], {"steps": [], "sweeps": []}
    for rate in options.rates:
        with tempfile.TemporaryDirectory() as folder:
            cases, link = calibrated(Path(folder), rate, names)
            found |= json.loads(Path(folder, "record.json").read_text()) | {rate: link}
            steps, sweeps = measured(Path(folder), cases, with_ddp)
        found["steps"] += steps
        found["sweeps"] += sweeps
    found |= {"ranks": RANKS, "rows": judged(found["steps"], found["sweeps"])}
    if options.results:
        options.results.write_text(json.dumps(found, indent=1) + "\n")
    return found


def on_nodes(nodes: int, rate: str, *arguments: str | Path) -> None:
    shape = ["--nodes", str(nodes), "--rate", rate]
    command = [sys.executable, "-m", "refgf.cluster", "run", *shape, "--", sys.executable]
    benchmark.run(
        [*command, str(SIDE), *map(str, arguments)], check=True, stdout=subprocess.DEVNULL
    )


def calibrated(folder: Path, rate: str, names: tuple[str, ...]) -> tuple[list[Case], dict]:
    on_nodes(2, rate, "calibrate", folder)
    network = fabric.load(str(folder / "machine.json"))
    cases = []
    for name in names:
        ready = inputs.read_model(str(folder / f"{name}.json"), network, None, None)
        cases.append(Case(name, rate, Question(ready, network, RANKS)))
    link = network.between
    print(f"{rate}: {1e6 * link.alpha_s:.0f} us, {8e-6 / link.beta_s_per_byte:.1f} Mbit/s")
    return cases, vars(link) | {"ranges": network.ranges}


def measured(folder: Path, cases: list[Case], with_ddp: bool) -> tuple[list[dict], list[dict]]:
    """(rows of steps, rows of sweeps)."""
    jobs = [job(case, system) for case in cases for system in SYSTEMS]
    sweeps = [
        {"network": case.network, "system": "sweep", "theta": theta}
        for case in cases
        for theta in SWEPT["refgf"]
    ]
    seconds = run(folder, cases[0].rate, "refgf", jobs + sweeps)
    steps = []
    for one, step_s in zip(jobs, seconds):
        case = next(case for case in cases if case.network == one["network"])
        steps.append(row_of(case, one["system"], step_s))
    swept = [sweep(case, "refgf", seconds[len(jobs) :], i) for i, case in enumerate(cases)]
    if with_ddp:
        caps = [{"network": c.network, "cap_mib": mib} for c in cases for mib in SWEPT["ddp"]]
        seconds = run(folder, cases[0].rate, "ddp", caps)
        swept += [sweep(case, "ddp", seconds, i) for i, case in enumerate(cases)]
    return steps, swept


def run(folder: Path, rate: str, side: str, jobs: list[dict]) -> list[float]:
    """The median step of each job, in seconds."""
    given, out = folder / "jobs.json", folder / "out.json"
    given.write_text(json.dumps(jobs))
    on_nodes(RANKS, rate, side, given, out)
    return [statistics.median(seconds) for seconds in json.loads(out.read_text())]


def job(case: Case, system: str) -> dict:
    """What this system has to run to be the one that `plan` predicts: its theta or its groups."""
    question = case.question
    found = {"network": case.network, "system": system}
    if system == "merged":
        gradients = [(ready_s, FLOAT32 * n) for ready_s, n in question.step.ready]
        return found | {"groups": [len(group) for group in exact_merge(gradients, question.flat)]}
    if system == "eager":
        return found | {"theta": 0}
    return found | {"theta": best_theta(system, question)}


def row_of(case: Case, system: str, step_s: float) -> dict:
    found = planned(system, case.question)
    row = {"network": case.network, "rate": case.rate, "system": system}
    row |= {"predicted_s": found.step_s, "low_s": found.low_s, "high_s": found.high_s}
    row |= {"measured_s": step_s, "error": found.step_s / step_s - 1}
    print(
        f"{case.rate:>8} {case.network:<11} {system:<7} predicted {1e3 * found.step_s:6.0f} "
        f"[{1e3 * found.low_s:.0f} .. {1e3 * found.high_s:.0f}] ms, measured {1e3 * step_s:6.0f} "
        f"ms, error {100 * row['error']:+.1f} %"
    )
    return row


def sweep(case: Case, side: str, seconds: list[float], number: int) -> dict:
    """Is the value predicted best, among those measured, near the best one measured?"""
    values = SWEPT[side]
    times_s = dict(zip(values, seconds[number * len(values) :]))
    of = {"refgf": buckets.of_theta, "ddp": buckets.of_ddp}[side]
    planned_s = of(case.question)["sweep"]
    chosen = buckets.smallest_of_best({value: planned_s[value] for value in values})
    over = times_s[chosen] / min(times_s.values())
    print(f"{case.rate:>8} {case.network:<11} {side:<6} chosen {chosen:>8}: {over:.3f} of the best")
    row = {"network": case.network, "rate": case.rate, "side": side, "chosen": chosen}
    return row | {"over_best": over, "measured_s": times_s, "predicted_s": planned_s}


def judged(steps: list[dict], sweeps: list[dict]) -> list[dict]:
    tell_systems(steps)
    errors = [abs(row["error"]) for row in steps]
    inside = [row["low_s"] <= row["measured_s"] <= row["high_s"] for row in steps]
    rows = [
        bar(f"error of a predicted step, {len(steps)} set-ups not seen", errors, MEDIAN_ERROR),
        bar("measured steps inside the interval", sum(inside) / len(inside), COVERED, least=True),
    ]
    for side in SWEPT:
        near = [row["over_best"] <= NEAR for row in sweeps if row["side"] == side]
        if near:
            what = f"{side}: best predicted bucket within 5 % of the best, of ten"
            rows.append(bar(what, 10 * sum(near) / len(near), OF_TEN, least=True))
    return rows


def tell_systems(steps: list[dict]) -> None:
    """Print each system's own error: half and CSC do processor work that `plan` leaves out."""
    for system in dict.fromkeys(row["system"] for row in steps):
        rows = [row for row in steps if row["system"] == system]
        inside = sum(row["low_s"] <= row["measured_s"] <= row["high_s"] for row in rows)
        middle = 100 * statistics.median(row["error"] for row in rows)
        print(f"     {system:<7} error {middle:+.1f} % (median), {inside} of {len(rows)} inside")


if __name__ == "__main__":
    benchmark.begin()
    main()
