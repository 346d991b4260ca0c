"""Does `plan` predict what it has not seen? Calibrated on 2 emulated nodes, judged on 4.

    python tests/speed/unseen.py [results.json] [--rates 100mbit 250mbit] [--quick] [--no-ddp]
    python tests/speed/unseen.py [results.json] --again FILE    predict a record's steps anew

calibrate   for each rate, on 2 nodes: `refgf.predict measure`, and when each gradient of a network
            is ready on a rank without exchange. Predictions read these files only
steps       networks x rates x systems on 4 nodes: predicted step and its interval, measured step
            (median of steps of the slowest rank). Bars: median error, share inside the interval
sweep       networks x rates: theta of refgf, bucket_cap_mb of PyTorch's DDP over gloo. Is the value
            that `plan` advises, DDP's default where it keeps that, within 5 % of the best measured?

The record has the calibration and all measured steps, so a change of the predictor needs no
measurement, unless it advises other calls.

Computing is slept, and the links are slow, so the cores are nearly free: what the processor does
for a message, a cast above all, is not predicted (unseen_side.py). About 10 minutes.
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

from tests.speed import benchmark
from tests.speed.gradientflow_speed import no_cluster
from tests.speed.judge import bar

from refgf.papers.mgwfbp.merge import exact_merge
from refgf.plan import buckets, fabric, inputs
from refgf.plan.question import Question, Unmodelled
from refgf.plan.systems import FLOAT32
from refgf.plan.systems import SYSTEMS as PLANNED
from refgf.plan.uncertainty import planned

SIDE = Path(__file__).resolve().with_name("unseen_side.py")
RANKS = 4
RATES = ("100mbit", "250mbit")
NETWORKS = ("ResNet-50", "AlexNet", "GoogLeNet", "VGG-16", "BERT-Large")
SYSTEMS = ("eager", "theta", "merged", "half", "CSC")
DEFAULT = None  # no bucket_cap_mb: 1 MiB, then 25 (refgf/plan/buckets.py)
SWEPT = {"refgf": [0, 1 << 16, 1 << 18, 1 << 20, 1 << 22], "ddp": [1, 2, 4, 8, DEFAULT]}
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
    parser.add_argument("--again", type=Path, metavar="FILE", help="of this record; no measurement")
    options = parser.parse_args(arguments)
    if options.again:
        found = json.loads(options.again.read_text())
    elif reason := no_cluster():
        print(f"left out: {reason}")
        return {}
    else:
        with_ddp = not options.no_ddp and importlib.util.find_spec("torch") is not None
        if not with_ddp:
            print("left out: DDP (--no-ddp, or no PyTorch)")
        sides = [side for side in SWEPT if with_ddp or side != "ddp"]
        found = measured(options.rates, NETWORKS[: 2 if options.quick else None], sides)
    found |= predicted(found)
    if options.results:
        options.results.write_text(json.dumps(found, indent=1) + "\n")
    return found


def on_nodes(nodes: int, rate: str, *arguments: str | Path) -> None:
    shape = ["--nodes", str(nodes), "--rate", rate]
    command = [sys.executable, "-m", "refgf.cluster", "run", *shape, "--", sys.executable]
    benchmark.run(
        [*command, str(SIDE), *map(str, arguments)], check=True, stdout=subprocess.DEVNULL
    )


def measured(rates: list[str], names: tuple[str, ...], sides: list[str]) -> dict:
    """What a record has before its predictions: "calibration" {rate: {file: content}}, and

    "measured": a row for each job. A job is what `plan` advises, so the calibration comes first.
    """
    found = {"ranks": RANKS, "calibration": {}, "measured": []}
    for rate in rates:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            on_nodes(2, rate, "calibrate", folder)
            files = {file: json.loads((folder / file).read_text()) for file in files_of(names)}
            found["calibration"][rate] = files
            found |= json.loads((folder / "record.json").read_text())
            for side in sides:
                jobs = [each for case in cases_of(rate, files) for each in jobs_of(case, side)]
                found["measured"] += run(folder, rate, side, jobs)
    return found


def predicted(found: dict) -> dict:
    """{"steps", "sweeps", "rows" of the bars}: today's predictions next to the measured steps."""
    steps, sweeps = [], []
    for rate, files in found["calibration"].items():
        cases = cases_of(rate, files)
        link = cases[0].question.fabric.between
        print(f"{rate}: {1e6 * link.alpha_s:.0f} us, {8e-6 / link.beta_s_per_byte:.1f} Mbit/s")
        rows = [row for row in found["measured"] if row["rate"] == rate]
        sides = dict.fromkeys(row["side"] for row in rows)
        steps += [row_of(case, system, rows) for case in cases for system in SYSTEMS]
        sweeps += [sweep(case, side, rows) for side in sides for case in cases]
    return {"steps": steps, "sweeps": sweeps, "rows": judged(steps, sweeps)}


def files_of(names: tuple[str, ...]) -> list[str]:
    return ["machine.json", *(f"{name}.json" for name in names)]


def cases_of(rate: str, files: dict[str, dict]) -> list[Case]:
    """A case for each network, read by `plan` from its files."""
    with tempfile.TemporaryDirectory() as name:
        paths = {file: Path(name, file) for file in files}
        for file, path in paths.items():
            path.write_text(json.dumps(files[file]))
        network = fabric.load(str(paths.pop("machine.json")))
        steps = [inputs.read_model(str(path), network, None, None) for path in paths.values()]
    names = [path.stem for path in paths.values()]
    slept = Unmodelled(least_overlap=1.0)  # computing that is slept keeps all of its speed
    asked = [Question(step, network, RANKS, unmodelled=slept) for step in steps]
    return [Case(name, rate, question) for name, question in zip(names, asked)]


def jobs_of(case: Case, side: str) -> list[dict]:
    steps = [job(case, system) for system in SYSTEMS] if side == "refgf" else []
    return steps + [swept(case, side, value) for value in values(case, side)]


def values(case: Case, side: str) -> list[int | None]:
    """Those of SWEPT, and the advised one."""
    return [*dict.fromkeys([*SWEPT[side], advised(case, side)[0]])]


def swept(case: Case, side: str, value: int | None) -> dict:
    if side == "ddp":
        return {"network": case.network, "cap_mib": value}
    return {"network": case.network, "system": "sweep", "theta": value}


def advised(case: Case, side: str) -> tuple[int | None, dict]:
    """(the value that `plan` advises, {value: predicted step_s})."""
    if side == "refgf":
        found = buckets.of_theta(case.question)
        return found["theta_bytes"], found["sweep"]
    found = buckets.of_ddp(case.question)
    best = DEFAULT if found["keep_default"] else found["bucket_cap_mb"]
    return best, found["sweep"] | {DEFAULT: found["default_step_s"]}


def run(folder: Path, rate: str, side: str, jobs: list[dict]) -> list[dict]:
    """A row for each job: `step_s` is the median of its steps."""
    given, out = folder / "jobs.json", folder / "out.json"
    given.write_text(json.dumps(jobs))
    on_nodes(RANKS, rate, side, given, out)
    return [
        {"rate": rate, "side": side} | one | {"step_s": statistics.median(seconds)}
        for one, seconds in zip(jobs, json.loads(out.read_text()))
    ]


def step_of(rows: list[dict], one: dict) -> float:
    """The measured step of a job."""
    for row in rows:
        if one.items() <= row.items():
            return row["step_s"]
    raise ValueError(
        f"unseen.py --again: got no measured step of {one}; wanted the calls that `plan` advises "
        "today; next: measure again, without --again"
    )


def job(case: Case, system: str) -> dict:
    """What this system has to run to be the one that `plan` predicts: its theta or its groups."""
    question = case.question
    found = {"network": case.network, "system": system}
    if system == "merged":
        gradients = [(ready_s, FLOAT32 * n) for ready_s, n in question.step.ready]
        return found | {"groups": [len(group) for group in exact_merge(gradients, question.flat)]}
    if system == "eager":
        return found | {"theta": 0}
    return found | {"theta": PLANNED[system].best_theta(question)}


def row_of(case: Case, system: str, rows: list[dict]) -> dict:
    found, step_s = planned(system, case.question), step_of(rows, job(case, system))
    row = {"network": case.network, "rate": case.rate, "system": system}
    row |= {"predicted_s": found.step_s, "low_s": found.low_s, "high_s": found.high_s}
    row |= {"measured_s": step_s, "error": found.step_s / step_s - 1}
    print(
        f"{case.rate:>8} {case.network:<11} {system:<7} predicted {1e3 * found.step_s:6.0f} "
        f"[{1e3 * found.low_s:.0f} .. {1e3 * found.high_s:.0f}] ms, measured {1e3 * step_s:6.0f} "
        f"ms, error {100 * row['error']:+.1f} %"
    )
    return row


def sweep(case: Case, side: str, rows: list[dict]) -> dict:
    """Is the advised value near the best one measured?"""
    chosen, planned_s = advised(case, side)
    times_s = {value: step_of(rows, swept(case, side, value)) for value in values(case, side)}
    over = times_s[chosen] / min(times_s.values())
    said = "default" if chosen is DEFAULT else chosen
    print(f"{case.rate:>8} {case.network:<11} {side:<6} advised {said:>8}: {over:.3f} of the best")
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
            what = f"{side}: advised bucket within 5 % of the best, of ten"
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
