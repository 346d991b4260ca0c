"""unseen.py measures what `plan` has predicted, and counts what its bars say."""

import json
from pathlib import Path

import pytest
import unseen

from refgf.papers.scaling.workloads import resnet50
from refgf.plan.fabric import Fabric
from refgf.plan.step_times import StepTimes
from refgf.plan.systems import SYSTEMS, Question
from refgf.predict.cost import Link
from refgf.predict.timeline import lazy, predict
from groups_of import groups_of

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
    assert step_s == pytest.approx(SYSTEMS[system](QUESTION))


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


def test_the_recorded_measurement_meets_its_bars(capsys):
    """Error, interval and bucket of at least 24 set-ups that the calibration had not seen."""
    found = json.loads(RECORD.read_text())
    set_ups = {(row["network"], row["rate"], row["system"]) for row in found["steps"]}
    assert len(set_ups) >= 24 and len(found["sweeps"]) == 10 * len(unseen.SWEPT)
    unseen.judged(found["steps"], found["sweeps"])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.strip()]
    bars = [line[:4] for line in lines if not line.startswith("     ")]
    assert bars == ["ok  "] * (2 + len(unseen.SWEPT))
