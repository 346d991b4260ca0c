"""The table of `make peers`: every ratio in the scripts' results is found, named and judged."""

import json

import numpy as np
import pytest
import run
from tests.speed.judge import compared, median_interval, ratio, verdict, worst
from run import collect, report


def row(name, ratios, bar, **more):
    ratio, ratio_min, ratio_max = ratios
    named = {"name": name} if name else {}
    measured = {"ratio": ratio, "ratio_min": ratio_min, "ratio_max": ratio_max}
    return named | measured | ({"wanted": bar} if bar else {}) | more


SMALL = row(None, (0.5, 0.4, 0.9), ["at most", 1], bytes=1024)
FULL_LINK = row("a full link", (1.002, 0.9, 1.3), ["at most", 1], interval=[0.998, 1.004])
RESULTS = {
    "nodes": {"8": {"sizes": [SMALL]}},
    "cases": [
        row("loader", (0.9, 0.8, 2), ["at least", 1]),
        FULL_LINK,
        row(None, (3, 2, 4), None, batch=16, threads=1, seconds=[1.0]),
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
    printed = capsys.readouterr().out.splitlines()
    assert "ok   wanted at most 1" in printed[0] and "MISS wanted at least 1" in printed[1]
    assert "1.002 [0.998..1.004]" in printed[2] and "tie  wanted at most 1" in printed[2]
    assert "wanted" not in printed[3]
    verdicts = [row.get("verdict") for row in json.loads((tmp_path / "ratios.json").read_text())]
    assert verdicts == ["ok", "MISS", "tie", None]
    assert (tmp_path / "ratios.png").stat().st_size > 1000


def test_a_table_is_published_with_what_it_was_measured_with(tmp_path, monkeypatch):
    """A script's results get their date, machine and hash when they are measured."""
    monkeypatch.setattr(run.record, "code_hash", lambda file: f"of {file.name}")
    script = tmp_path / "some_speed.py"
    script.write_text(
        "import json, pathlib, sys\n"
        f"pathlib.Path(sys.argv[1]).write_text(json.dumps({RESULTS!r}))\n"
    )
    result = tmp_path / "some_speed.json"
    assert run.measure(script, "mpiexec", result) == 0
    rows = collect(result)
    found = run.published([result, tmp_path / "missing_speed.json"], rows)
    assert list(found["about"]) == ["some_speed"] and len(found["rows"]) == 4
    assert found["about"]["some_speed"]["measured_with"] == "of some_speed.py"


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
    """A miss: ours is certainly slower, or the run is too noisy to exclude 1 % and more."""
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


def test_a_ratio_without_a_bar_is_told_without_a_verdict(capsys):
    assert ratio("a", [3.0, 1.0, 2.0]) == row("a", (2.0, 1.0, 3.0), None)
    assert capsys.readouterr().out == "     a: 2.00\n"


@pytest.mark.parametrize("n", [6, 9, 21])
def test_the_interval_holds_the_median(n):
    """In 95 % of 4000 runs (four standard deviations are 0.014), and a shorter one would not."""
    runs = np.sort(np.random.default_rng(n).lognormal(size=(4000, n)), axis=1)  # whose median is 1
    low, high = np.array([median_interval(list(run[::-1])) for run in runs]).T
    assert ((low <= 1) & (high >= 1)).mean() >= 0.95 - 0.014
    place = int((runs[0] == low[0]).argmax()) + 1
    assert ((runs[:, place] <= 1) & (runs[:, n - 1 - place] >= 1)).mean() < 0.95 + 0.014
    assert "interval" not in compared("too few to tell", [1.0] * 5, [1.0] * 5)
