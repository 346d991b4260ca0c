"""The one table of `make peers`: every ratio in the scripts' results is found, named, and judged the right way round."""

import json

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
