"""The one table of `make peers`: every ratio in the scripts' results is found, named, and judged
the right way round.
"""

import json

import numpy as np
import pytest
import run
from judge import compared, median_interval, verdict, worst
from run import collect, report

RESULTS = {
    "nodes": {
        "8": {
            "sizes": [
                {
                    "bytes": 1024,
                    "ratio": 0.5,
                    "ratio_min": 0.4,
                    "ratio_max": 0.9,
                    "wanted": ["at most", 1],
                }
            ]
        }
    },
    "cases": [
        {
            "name": "loader",
            "ratio": 0.9,
            "ratio_min": 0.8,
            "ratio_max": 2,
            "wanted": ["at least", 1],
        },
        {
            "name": "a full link",
            "ratio": 1.002,
            "ratio_min": 0.9,
            "ratio_max": 1.3,
            "interval": [0.998, 1.004],
            "wanted": ["at most", 1],
        },
        {"batch": 16, "threads": 1, "ratio": 3, "ratio_min": 2, "ratio_max": 4, "seconds": [1.0]},
    ],
    "no ratio": {"ratio": 1},
}


def test_ratios_are_found_and_judged(tmp_path, capsys):
    (tmp_path / "some_speed.json").write_text(json.dumps(RESULTS))
    rows = collect(tmp_path / "some_speed.json")
    assert [row["name"] for row in rows] == [
        "some: nodes, 8, bytes 1024",
        "some: loader",
        "some: a full link",
        "some: batch 16, threads 1",
    ]
    report(rows, tmp_path)
    told = capsys.readouterr().out.splitlines()
    assert "ok   wanted at most 1" in told[0] and "MISS wanted at least 1" in told[1]
    assert (
        "1.002 [0.998..1.004]" in told[2]
        and "tie  wanted at most 1" in told[2]
        and "wanted" not in told[3]
    )
    verdicts = [row.get("verdict") for row in json.loads((tmp_path / "ratios.json").read_text())]
    assert verdicts == ["ok", "MISS", "tie", None]
    assert (tmp_path / "ratios.png").stat().st_size > 1000


def test_a_script_without_results_is_no_row(tmp_path):
    assert collect(tmp_path / "missing_speed.json") == []
    report([], tmp_path)
    assert not (tmp_path / "ratios.png").exists()


@pytest.mark.parametrize(
    "ratio, interval, word",
    [
        (0.99, (0.9, 1.2), "ok"),
        (1.0, (0.9, 1.2), "ok"),
        (1.002, (0.997, 1.004), "tie"),
        (1.002, (1.001, 1.004), "MISS"),
        (1.002, (0.9, 1.004), "tie"),
        (1.002, (0.997, 1.02), "MISS"),
        (1.002, None, "MISS"),
    ],
)
def test_a_tie_is_told_only_where_the_run_could_tell(ratio, interval, word):
    """Slower for sure is a miss; so is a run too noisy to exclude that ours is slower by more than
    1 %.
    """
    row = {"ratio": ratio, "wanted": ["at most", 1]} | ({"interval": interval} if interval else {})
    assert verdict(row) == word
    assert verdict(row | {"wanted": ["at most", 0.98]}) == "MISS"


def test_the_worst_row_is_told(capsys):
    """A sure miss before a tie that is larger; of the others the largest."""
    many, ties = [1] * 9, [0.995, 1.009] * 4 + [1.006]
    rows = [compared("a", [1.004] * 9, many), compared("b", ties, many), compared("c", [0.5], [1])]
    worst("all", rows)
    worst("some", rows[2:])
    worst("none", [])
    assert capsys.readouterr().out == (
        "MISS all, worst: a: 1.004 [1.004..1.004] (wanted at most 1)\n"
        "ok   some, worst: c: 0.50 (wanted at most 1)\n"
    )


@pytest.mark.parametrize("n", [6, 9, 21])
def test_the_interval_holds_the_median(n):
    """In 95 % of runs or more (of 4000; four standard deviations lie below by 0.014), and no value
    more could be dropped.
    """
    runs = np.sort(np.random.default_rng(n).lognormal(size=(4000, n)), axis=1)  # whose median is 1
    low, high = np.array([median_interval(list(run[::-1])) for run in runs]).T
    assert ((low <= 1) & (high >= 1)).mean() >= 0.95 - 0.014
    place = int((runs[0] == low[0]).argmax()) + 1
    assert ((runs[:, place] <= 1) & (runs[:, n - 1 - place] >= 1)).mean() < 0.95 + 0.014
    assert "interval" not in compared("too few to tell", [1.0] * 5, [1.0] * 5)


def test_a_gpu_takes_part_where_there_is_one(monkeypatch, capsys):
    for missing in (None, "no driver"):
        monkeypatch.setattr(run, "why_no_gpu", lambda missing=missing: missing)
        names = [script.stem for script in run.comparisons()]
        assert (
            ("speed_alexnet" in names) == (missing is None)
            and "speed_allreduce" not in names
            and "nn_speed" in names
        )
        assert capsys.readouterr().out == (
            "left out: speed_alexnet, as there is no GPU (no driver)\n" if missing else ""
        )
