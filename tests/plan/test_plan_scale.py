"""docs/scale.md says what today's predictor computes."""

import json
import re

import pytest

from docs.tools import scale, scale_judged
from refgf.papers.scaling import confronted
from refgf.plan import fabric, inputs, judged, report
from refgf.plan.question import Question


def test_the_page_is_not_stale():
    text = scale.PAGE.read_text()
    assert scale.page() == text, "next: python docs/tools/scale.py"
    header = re.findall(r"^\| (\w+)[^\n]*\n\| ---", text, flags=re.M)
    assert header == ["predicted"] * 8 + ["measured", "published"]


def test_plan_says_what_the_page_says(short_table):
    """The links are the machine's, so a reader who repeats a cell with `plan` finds its numbers."""
    network = fabric.load("mgwfbp-10gbe")
    step = inputs.read_model("resnet50", network, None, None)
    found = report.answer(Question(step, network, 256, 8))["systems"]["hierarchy16"]
    ms, percent = f"{1e3 * found['step_s']:,.0f} ms", f"{found['efficiency_percent']:.0f} %"
    text = scale.PAGE.read_text()
    assert (
        f"hierarchy16: {ms} ({percent})"
        in re.search(
            r"^\| ResNet-50, mgwfbp-10gbe \| [^|]*\| ([^|]*)\| [^|]*\|$",
            text.partition("## Fewer ranks")[2],
            flags=re.M,
        )[1]
    )
    assert f"instead of {ms} ({percent})" in text


def test_the_page_prints_the_rates_that_repeat_its_cells(short_table):
    text = scale.PAGE.read_text()
    batch, rate = re.search(r"BERT-Large, `--batch (\d+) --rate ([\d.]+)`", text).groups()
    network = fabric.load("mgwfbp-10gbe")
    step = inputs.read_model("bertlarge", network, int(batch), float(rate))
    half = report.answer(Question(step, network, 64, 8))["systems"]["half"]
    assert f"| BERT-Large, mgwfbp-10gbe | half: {1e3 * half['step_s']:,.0f} ms (" in text


def test_the_order_of_ranks_on_a_fat_tree_is_lesson_08s(monkeypatch, tmp_path):
    models = {"tree": {"in order": {"4": 1.0, "8": 2.0}, "dealt": {"4": 1.5, "8": 4.0}}}
    (tmp_path / "08_scaling.json").write_text(json.dumps({"models": models}))
    monkeypatch.setattr(scale_judged, "FIGURES", tmp_path)
    assert scale_judged.tree() == "1.5 to 2.0 times on 4, 8 ranks"


def test_what_lies_between_two_predictions():
    """Errors of the fastest and of the slowest inputs: inside if the one is too fast at most."""
    assert confronted.between([0.2, 0.2, -0.1], [-0.1, 0.1, -0.3]) == 1
    errors, inside = judged.tables()[confronted.STEPS_16]
    assert (len(errors), inside) == (48, judged.steps()["inside_the_interval"])


def test_a_measurement_outside_its_interval_is_not_counted():
    step = {"system": "eager", "error": -0.1, "low_s": 1.0, "high_s": 2.0}
    steps = [step | {"measured_s": seconds} for seconds in (0.9, 1.0, 2.0, 2.1)]
    assert scale_judged.row_of(steps, "eager") == ["eager", "10.0 %", "10.0 %", "2 of 4"]
    sweeps = [{"side": "ddp", "over_best": over} for over in (1.0, 1.06)]
    assert "2 sweeps, at worst 6.0 % slower" in scale_judged.near(sweeps, "ddp")


def test_errors_on_real_clusters_are_those_of_the_results():
    """Mean and largest of each table stand in the table of headlines, as whole percent."""
    rows = scale_judged.real(lambda header, rows: rows)
    said = (scale.PAGE.parent / "results.md").read_text()
    assert len(rows) == 6
    for _, _, mean, largest, _, _ in rows:
        found = [f"{float(text.split()[0]):.0f} %" for text in (mean, largest)]
        assert " on average and ".join(found) + " at most" in said
    assert f"{rows[0][-2]} too short" in said


def test_the_slowest_of_many_ranks(monkeypatch):
    """The mean maximum of 10,000 standard normal numbers is 3.852."""
    assert scale.slowest() == pytest.approx(1 + 3.852 * scale.SPREAD, rel=1e-3)
