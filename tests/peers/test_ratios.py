"""The one table of `make peers`: every ratio in the scripts' results is found, named, and judged the right way round."""

import json

import numpy as np
import pytest
from judge import median_interval, verdict
from run import collect, report

RESULTS = {"nodes": {"8": {"sizes": [
               {"bytes": 1024, "ratio": 0.5, "ratio_min": 0.4, "ratio_max": 0.9, "wanted": ["at most", 1]}]}},
           "cases": [{"name": "loader", "ratio": 0.9, "ratio_min": 0.8, "ratio_max": 2, "wanted": ["at least", 1]},
                     {"batch": 16, "threads": 1, "ratio": 3, "ratio_min": 2, "ratio_max": 4, "seconds": [1.0]}],
           "no ratio": {"ratio": 1}}  # fmt: skip


def test_ratios_are_found_and_judged(tmp_path, capsys):
    (tmp_path / "some_speed.json").write_text(json.dumps(RESULTS))
    rows = collect(tmp_path / "some_speed.json")
    assert [row["name"] for row in rows] == ["some: nodes, 8, bytes 1024", "some: loader", "some: batch 16, threads 1"]
    report(rows, tmp_path)
    told = capsys.readouterr().out.splitlines()
    assert "ok   wanted at most 1" in told[0] and "MISS wanted at least 1" in told[1] and "wanted" not in told[2]
    assert [row.get("held") for row in json.loads((tmp_path / "ratios.json").read_text())] == [True, False, None]
    assert (tmp_path / "ratios.png").stat().st_size > 1000


def test_a_script_without_results_is_no_row(tmp_path):
    assert collect(tmp_path / "missing_speed.json") == []
    report([], tmp_path)
    assert not (tmp_path / "ratios.png").exists()


@pytest.mark.parametrize("ratio, interval, word", [
    (0.99, (0.9, 1.2), "ok"), (1.0, (0.9, 1.2), "ok"), (1.002, (0.997, 1.004), "tie"),
    (1.002, (1.001, 1.004), "MISS"), (1.002, (0.9, 1.004), "MISS"), (1.002, (0.997, 1.02), "MISS"), (1.002, None, "MISS"),
])  # fmt: skip
def test_a_tie_is_told_only_where_the_run_could_tell(ratio, interval, word):
    """Slower for sure is a miss; so is a noisy run, whose interval has 1 in it whatever happened."""
    row = {"ratio": ratio, "wanted": ["at most", 1]} | ({"interval": interval} if interval else {})
    assert verdict(row) == word
    assert verdict(row | {"wanted": ["at most", 0.98]}) == "MISS"


@pytest.mark.parametrize("n", [3, 6, 9, 21])
def test_the_interval_holds_the_median(n):
    """In 95 % of runs or more (of 4000; four standard deviations lie below by 0.014), and no value more could be dropped."""
    runs = np.sort(np.random.default_rng(n).lognormal(size=(4000, n)), axis=1)  # whose median is 1
    low, high = np.array([median_interval(list(run[::-1])) for run in runs]).T
    held = ((low <= 1) & (high >= 1)).mean()
    assert held >= 0.95 - 0.014 if n >= 6 else (low == runs[:, 0]).all() and (high == runs[:, -1]).all()
    place = int((runs[0] == low[0]).argmax()) + 1
    assert n < 6 or ((runs[:, place] <= 1) & (runs[:, n - 1 - place] >= 1)).mean() < 0.95 + 0.014
