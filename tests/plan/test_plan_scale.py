"""docs/scale.md says what today's predictor computes."""

import re

import pytest
import scale
import scale_judged


def test_the_page_is_not_stale():
    text = scale.PAGE.read_text()
    assert scale.page() == text, "next: python tests/scale.py"
    header = re.findall(r"^\| (\w+)[^\n]*\n\| ---", text, flags=re.M)
    assert header == ["predicted"] * 8 + ["measured", "published"]


def test_a_measurement_outside_its_interval_is_not_counted():
    step = {"system": "eager", "error": -0.1, "low_s": 1.0, "high_s": 2.0}
    steps = [step | {"measured_s": seconds} for seconds in (0.9, 1.0, 2.0, 2.1)]
    assert scale_judged.row_of(steps, "eager") == ["eager", "10.0 %", "10.0 %", "2 of 4"]
    sweeps = [{"side": "ddp", "over_best": over} for over in (1.0, 1.06)]
    assert "2 sweeps, at worst 6.0 % slower" in scale_judged.near(sweeps, "ddp")


def test_errors_on_real_clusters_are_those_of_readme():
    """Mean and largest of each table stand in README's table of headlines, as whole percent."""
    rows = scale_judged.real(lambda header, rows: rows)
    said = (scale.PAGE.parents[1] / "README.md").read_text()
    assert len(rows) == 6
    for _, _, mean, largest, _ in rows:
        found = [f"{float(text.split()[0]):.0f} %" for text in (mean, largest)]
        assert " on average and ".join(found) + " at most" in said
    assert f"{rows[0][-1]} too short" in said


def test_the_slowest_of_many_ranks(monkeypatch):
    """The mean maximum of 10,000 standard normal numbers is 3.852."""
    assert scale.slowest() == pytest.approx(1 + 3.852 * scale.SPREAD, rel=1e-3)
