"""unseen.py measures what `plan` has predicted, and counts what its bars say."""

import json
from pathlib import Path

import pytest
from tests.speed import unseen

from refgf.papers.scaling.workloads import resnet50
from refgf.plan import buckets, thetas
from refgf.plan.fabric import Fabric
from refgf.plan.step_times import StepTimes
from refgf.plan.question import Question
from refgf.plan.systems import SYSTEMS
from refgf.predict.cost import Link
from refgf.predict.timeline import lazy, predict
from tests.support.groups_of import groups_of

RECORD = Path(__file__).resolve().parents[2] / "figures" / "plan_unseen.json"
READY = tuple(resnet50().gradients(0.1, 0.05, itemsize=1))
QUESTION = Question(
    StepTimes("net", "this test", READY, 0.01), Fabric("x", "y", Link(2e-4, 1e-9)), 4
)


@pytest.mark.parametrize("system", ["eager", "theta", "merged", "half"])
def test_the_groups_of_a_job_take_the_planned_step(system):
    job = unseen.job(unseen.Case("net", "1gbit", QUESTION), system)
    gradients = [(ready_s, (2 if system == "half" else 4) * n) for ready_s, n in READY]
    groups = groups_of(job["groups"]) if "groups" in job else lazy(gradients, job["theta"])
    step_s = predict(gradients, groups, QUESTION.flat).step_s + QUESTION.step.after_s
    assert step_s == pytest.approx(SYSTEMS[system].step_s(QUESTION), rel=thetas.EQUAL)


def record(factor):
    """A record whose measured steps are `factor` times the predicted ones."""
    link = {
        "alpha_s": 2e-4,
        "beta_s_per_byte": 1e-9,
        "alpha_error_s": 0,
        "beta_error_s_per_byte": 0,
    }
    machine = {"refgf_machine": 1, "name": "x", "source": "y", "label": "measured"}
    machine |= {"units": {"time": "s", "size": "bytes"}, "links": {"between": link}}
    ready = [{"elements": elements, "ready_s": ready_s} for ready_s, elements in READY]
    files = {"machine.json": machine, "net.json": {"gradients": ready, "after_s": 0.01}}
    (case,) = unseen.cases_of("1gbit", files)
    rows = []
    for side in unseen.SWEPT:
        _, planned_s = unseen.advised(case, side)
        for job in unseen.jobs_of(case, side):
            value = job["cap_mib"] if side == "ddp" else job.get("theta")
            step_s = planned_s.get(value, 1.0)
            if job.get("system", "sweep") != "sweep":
                step_s = factor * SYSTEMS[job["system"]].step_s(case.question)
            rows.append({"rate": "1gbit", "side": side} | job | {"step_s": step_s})
    return {"calibration": {"1gbit": files}, "measured": rows}


def test_a_record_is_predicted_again_without_a_measurement(tmp_path, monkeypatch):
    monkeypatch.setattr(unseen, "on_nodes", None)
    given, out = tmp_path / "record.json", tmp_path / "again.json"
    given.write_text(json.dumps(record(1.25)))
    unseen.main([str(out), "--again", str(given)])
    found = json.loads(out.read_text())
    assert [row["error"] for row in found["steps"]] == pytest.approx([-0.2] * len(unseen.SYSTEMS))
    assert [row["side"] for row in found["sweeps"]] == list(unseen.SWEPT)
    assert found["measured"] == json.loads(given.read_text())["measured"]


def test_other_calls_than_those_measured_are_told():
    found = record(1.0)
    theta = next(row for row in found["measured"] if row.get("system") == "theta")
    theta["theta"] += 1
    with pytest.raises(ValueError, match="got no measured step of .*'theta'.*next: measure again"):
        unseen.predicted(found)


@pytest.mark.parametrize("gain, advised", [(0.015, unseen.DEFAULT), (0.03, 4)])
def test_the_advised_bucket_is_plans(monkeypatch, gain, advised):
    """DDP's default unless a bucket is more than 2 % faster; its own time is among those swept."""
    sweep = {4: 1.0, 5: 1.1}
    found = {"bucket_cap_mb": 4, "default_step_s": 1 + gain, "sweep": sweep}
    found["keep_default"] = buckets.keeps_default(1 + gain, sweep)
    monkeypatch.setattr(buckets, "of_ddp", lambda question: found)
    case = unseen.Case("net", "1gbit", QUESTION)
    assert unseen.advised(case, "ddp") == (advised, sweep | {unseen.DEFAULT: 1 + gain})
    found["bucket_cap_mb"] = 5
    assert unseen.values(case, "ddp")[: len(unseen.SWEPT["ddp"])] == unseen.SWEPT["ddp"]
    assert (5 in unseen.values(case, "ddp")) is (advised is not unseen.DEFAULT)


def test_bars(capsys):
    """Two of three inside their interval; the largest error is not the median."""
    ends = {"low_s": 0.9, "high_s": 1.1, "predicted_s": 1.0}
    ends |= {"system": "eager"}
    steps = [ends | {"measured_s": s, "error": 1 / s - 1} for s in (1.0, 1.05, 1.5)]
    sweeps = [{"side": "refgf", "over_best": over} for over in (1.0, 1.04, 1.06)]
    errors, inside, near = unseen.judged(steps, sweeps)
    assert errors["ratio"] == pytest.approx(0.05 / 1.05) and inside["ratio"] == pytest.approx(2 / 3)
    assert near["ratio"] == pytest.approx(20 / 3)
    of_systems, *bars = capsys.readouterr().out.splitlines()
    assert of_systems == "     eager   error -4.8 % (median), 2 of 3 inside"
    assert [line[:4] for line in bars] == ["ok  ", "MISS", "MISS"]


def test_the_recorded_predictions_are_todays():
    found = json.loads(RECORD.read_text())
    why, again = f"next: unseen.py {RECORD} --again {RECORD}", unseen.predicted(found)
    for new, old in zip(again["steps"], found["steps"], strict=True):
        numbers = [[row[key] for key in ("predicted_s", "low_s", "high_s")] for row in (new, old)]
        assert numbers[0] == pytest.approx(numbers[1]), why
    for new, old in zip(again["sweeps"], found["sweeps"], strict=True):
        assert (new["chosen"], new["over_best"]) == (old["chosen"], old["over_best"]), why


def test_the_recorded_measurement_meets_its_bars(capsys):
    """Error, interval and bucket of at least 24 set-ups that the calibration had not seen."""
    found = json.loads(RECORD.read_text())
    set_ups = {(row["network"], row["rate"], row["system"]) for row in found["steps"]}
    assert len(set_ups) >= 24 and len(found["sweeps"]) == 10 * len(unseen.SWEPT)
    unseen.judged(found["steps"], found["sweeps"])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.strip()]
    bars = [line[:4] for line in lines if not line.startswith("     ")]
    assert bars == ["ok  "] * (2 + len(unseen.SWEPT))
