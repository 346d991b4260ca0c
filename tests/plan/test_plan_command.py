"""The command as a user types it: text, JSON, and a figure."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from refgf.papers.mgwfbp.merge import greedy_merge
from refgf.papers.scaling import confronted
from refgf.papers.scaling.interval import LABELS
from refgf.papers.scaling.machine import Machine, save
from refgf.plan import __main__ as command
from refgf.plan import buckets, judged, replay, report
from refgf.predict.cost import Link

ROOT = Path(__file__).resolve().parents[2]
USUAL = ["plan", "--model", "alexnet", "--machine", "v100-56gbit", "--ranks", "16"]


def run(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["refgf predict", *arguments])
    code = command.main()
    return code, capsys.readouterr()


def test_the_head_says_which_link_is_used_inside(monkeypatch, capsys, tmp_path):
    """The machine's, that of --inside, or that between nodes; none with one rank a node."""
    _, said = run(monkeypatch, capsys, *USUAL)
    assert "inside a node" not in said.out
    levels = [*USUAL, "--ranks-per-node", "4"]
    _, said = run(monkeypatch, capsys, *levels, "--inside", "5us", "800gbit", "--json")
    found = json.loads(said.out)
    inside = found["network"]["inside"]
    assert (inside["alpha_s"], inside["beta_s_per_byte"]) == pytest.approx((5e-6, 1e-11))
    _, said = run(monkeypatch, capsys, *levels, "--json")
    slower = json.loads(said.out)["systems"]["hierarchy"]["step_s"]
    assert found["systems"]["hierarchy"]["step_s"] < slower
    path = tmp_path / "mine.json"
    save(Machine("lab", "a test", "measured", {"between": Link(5e-6, 1e-9)}), path)
    pace = ["--machine", str(path), "--batch", "64", "--rate", "900"]
    _, said = run(monkeypatch, capsys, *levels, *pace)
    assert "inside a node: not known, so the link between nodes stands for it" in said.out
    code, said = run(monkeypatch, capsys, *levels, "--inside", "800gbit", "5us")
    assert code == 2 and "as --inside 5us 800gbit" in said.err


def test_the_text_says_how_wrong_it_was_on_a_real_cluster(monkeypatch, capsys):
    """Counted, not written: of the steps, those slower than predicted and those inside."""
    counted = confronted.times_too_fast(greedy_merge)
    slower = sum(error > 0 for error in counted)
    _, said = run(monkeypatch, capsys, *USUAL)
    assert f"{slower} of {len(counted)} took longer than these formulas say, " in said.out
    found = judged.steps()
    assert 0 < found["inside_the_interval"] < slower
    assert f" {found['inside_the_interval']} were\n" in said.out


def sweep_of(steps_s, best, ties):
    found = {"theta_bytes": best, "step_s": steps_s[best], "ties": ties, "sweep": steps_s}
    return found | {"all_bytes": 9, "near": buckets.around(steps_s, best, buckets.FLAT)}


@pytest.mark.parametrize(
    "steps_s, best, ties, said",
    [
        ({0: 1.0, 1: 1.0}, 0, [0, 1], "any Theta, a tie: 1000.0 ms a step"),
        ({0: 2.0, 1: 1.0, 2: 1.0}, 1, [1, 2], "Theta(1) to Theta(2), a tie: 1000.0 ms a step ("),
        ({0: 2.0, 1: 1.0, 2: 3.0}, 1, [1], "Theta(1): 1000.0 ms a step (eager: 2000.0 ms)"),
    ],
)
def test_a_tie_is_called_one(steps_s, best, ties, said):
    assert said in report.theta_line(sweep_of(steps_s, best, ties))
    alone = report.flat_in_words(sweep_of({0: 2.0, 1: 1.0, 2: 3.0}, 1, [1]))
    assert alone.endswith("those tried next to it are more than 2 % slower")


def test_how_flat_the_best_theta_is():
    """Around the best, not past a theta that is worse: 4 is as good as 1, but 3 lies between."""
    said = report.flat_in_words(sweep_of({0: 1.5, 1: 1.01, 2: 1.0, 3: 1.1, 4: 1.0}, 2, [2]))
    assert said == "a call waits for theta bytes; 1 to 2 are at most 2 % slower"


def test_help_lists_networks_machines_and_formats(monkeypatch, capsys):
    with pytest.raises(SystemExit):
        run(monkeypatch, capsys, "plan", "--help")
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 100
    assert "DASO compute a sum of all" not in said  # CSC and top-k do not, either
    for words in (
        "CSC and top-k sum only the gradients that they choose",
        "2 to 4096 ranks with one on a node, to 256 with more. The plan keeps the closed forms",
        "bertlarge",
        "mgwfbp-10gbe has alexnet, resnet50",
        "machines (--machine): mgwfbp-10gbe, v100-56gbit",
        "name,elements,ready_ms",
        '"refgf_machine": 1',
        "out-of-place time",
        "Two numbers: a range (default: 0.7 to 1)",
        f"label, of all numbers: {', '.join(LABELS[:-1])} or {LABELS[-1]}",
    ):
        assert words in " ".join(said.split())
    with pytest.raises(SystemExit):
        run(monkeypatch, capsys, "measure", "--help")
    assert "mpiexec -n 2 --host one,two" in capsys.readouterr().out


def test_a_step_may_have_its_name_in_the_trace(monkeypatch, capsys, tmp_path):
    """As the plan prints it: ProfilerStep#4."""
    path, events = tmp_path / "trace.json", []
    for number, dur in ((3, 1000), (4, 1000), (5, 1000)):
        start = 1000 * number
        made = {"ph": "X", "ts": start, "dur": dur, "name": f"ProfilerStep#{number}"}
        grad = {"ph": "X", "ts": start + 400, "dur": 100, "args": {"Input Dims": [[number]]}}
        events.append(made | {"cat": "user_annotation"})
        events.append(grad | {"name": "torch::autograd::AccumulateGrad"})
    path.write_text(json.dumps({"traceEvents": events}))
    given = ["plan", "--model", str(path), "--machine", "mgwfbp-10gbe", "--ranks", "4", "--step"]
    said = [run(monkeypatch, capsys, *given, step) for step in ("4", "ProfilerStep#4")]
    assert said[0] == said[1] and said[0][0] == 0
    assert said[0][1].out.startswith("trace.json, ProfilerStep#4: 4 gradients")
    with pytest.raises(SystemExit):
        run(monkeypatch, capsys, *given, "last")
    assert "invalid step_number value: 'last'" in capsys.readouterr().err


def test_options_without_an_effect_are_said(monkeypatch, capsys):
    _, said = run(monkeypatch, capsys, *USUAL, "--ranks-per-node", "128")
    assert "--ranks-per-node 128 is more than --ranks 16" in " ".join(said.out.split())
    _, said = run(monkeypatch, capsys, *USUAL, "--inside", "5us", "800gbit")
    assert "--inside has no effect with 1 rank a node: add --ranks-per-node." in said.out
    _, said = run(monkeypatch, capsys, *USUAL, "--ranks-per-node", "4", "--inside", "5us", "8gbit")
    assert "no effect" not in said.out


def test_json_has_the_thetas_that_the_text_names(monkeypatch, capsys):
    _, said = run(monkeypatch, capsys, *USUAL, "--json")
    found = json.loads(said.out)["refgf"]
    assert set(found["ties"]) <= set(found["near"]) and found["theta_bytes"] in found["near"]
    _, said = run(monkeypatch, capsys, *USUAL)
    assert f"{found['near'][0]:,} to {found['near'][-1]:,} are at most 2 % slower" in said.out


def test_a_list_in_a_deep_folder_fits_100_columns(monkeypatch, capsys, tmp_path):
    path = tmp_path / ("deep" * 20) / "sizes.csv"
    path.parent.mkdir()
    path.write_text("elements,ready_ms\n1000000,10\n2000000,20\n")
    where = ["--machine", "mgwfbp-10gbe", "--ranks", "4"]
    code, said = run(monkeypatch, capsys, "plan", "--model", str(path), *where)
    assert code == 0 and max(map(len, said.out.splitlines())) <= 100
    assert said.out.splitlines()[-1] == "pace, s of computing: 0.97 to 1.03 times the value"
    assert said.out.startswith("sizes.csv: 3,000,000 gradients in 2 tensors, 20.0 ms a step")
    path.write_text("elements,ready_ms\n1000000,10\n")
    _, said = run(monkeypatch, capsys, "plan", "--model", str(path), *where)
    assert said.out.startswith("sizes.csv: 1,000,000 gradients in 1 tensor, 10.0 ms a step")


def test_a_long_head_is_wrapped(monkeypatch, capsys, tmp_path):
    path = tmp_path / "mine.json"
    save(Machine("node " * 9, "a test " * 9, "measured", {"between": Link(5e-6, 1e-9)}), path)
    given = [
        "plan",
        "--model",
        "inceptionv4",
        "--machine",
        str(path),
        "--batch",
        "64",
        "--rate",
        "9",
    ]
    code, said = run(monkeypatch, capsys, *given, "--ranks", "8", "--ranks-per-node", "2")
    assert code == 0 and max(map(len, said.out.splitlines())) <= 100


def test_json_says_the_same(monkeypatch, capsys):
    code, said = run(monkeypatch, capsys, *USUAL, "--json")
    found = json.loads(said.out)
    assert code == 0 and found["refgf_plan"] == 1 and found["label"] == "predicted"
    assert found["systems"]["hierarchy"] is None
    row = found["systems"]["half"]
    assert row["low_s"] < row["step_s"] < row["high_s"]
    assert found["efficiency_percent"]["half"]["16"] == pytest.approx(row["efficiency_percent"])


def test_a_figure(monkeypatch, capsys, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "plan.png"
    code, _ = run(monkeypatch, capsys, *USUAL, "--figure", str(path))
    assert code == 0 and path.read_bytes()[:4] == b"\x89PNG"
    code, said = run(monkeypatch, capsys, *USUAL, "--figure", str(tmp_path / "plan.banana"))
    assert code == 2 and "wanted a file to write; next: --figure plan.png or" in said.err


def test_a_reader_that_wants_no_more():
    """`refgf predict plan ... | head -1`: no complaint."""
    reads, writes = os.pipe()
    os.close(reads)
    command = [sys.executable, "-m", "refgf.predict", *USUAL]
    ended = subprocess.run(command, stdout=writes, stderr=subprocess.PIPE, timeout=100)
    os.close(writes)
    assert (ended.returncode, ended.stderr) == (2, b"")


FEW = ["plan", "--model", "alexnet", "--machine", "v100-56gbit", "--ranks", "4", "--simulate"]


@pytest.mark.skipif(not replay.installed(), reason="SimGrid is missing: libsimgrid-dev")
def test_simulate(monkeypatch, capsys):
    """The closed form of the ring and SimGrid without contention: the same, as text and as JSON."""
    code, said = run(monkeypatch, capsys, *FEW, "--platform", "fat-tree:2")
    assert code == 0 and "platform fat-tree:2 (ms)" in said.out
    row = next(line for line in said.out.splitlines() if line.startswith("ring "))
    closed_ms, off_ms, contention_ms, tcp_ms = map(float, row.split()[1:])
    assert closed_ms == pytest.approx(off_ms, rel=1e-3) and off_ms <= contention_ms < tcp_ms
    for column in ("closed form", "no contention", "contention", "SMPI's TCP factors"):
        assert f"\n{column}: " in said.out
    assert (
        said.err == "SimGrid simulates 6 algorithms in 3 models on 4 ranks (many ranks: minutes)\n"
    )
    assert said.out.index("pace, s of computing") < said.out.index("SimGrid, one allreduce")
    code, said = run(monkeypatch, capsys, *FEW, "--json")
    found = json.loads(said.out)["simgrid"]["allreduce"]["ring"]
    assert 1e3 * found["off_s"] == pytest.approx(off_ms, rel=1e-2)


def test_the_plan_is_printed_before_a_simulation(monkeypatch, capsys):
    monkeypatch.setattr(replay, "require", lambda question, name: None)

    def simulated(*_):
        raise ValueError(f"plan printed: {'scaling efficiency' in capsys.readouterr().out.lower()}")

    monkeypatch.setattr(replay, "compare", simulated)
    code, said = run(monkeypatch, capsys, *FEW)
    assert code == 2 and said.err.endswith("plan printed: True\n")


@pytest.mark.parametrize(
    "changes, said",
    [
        (["--platform", "fat-tree:x"], "got 'fat-tree:x'"),
        (
            ["--ranks", "1"],
            "got --ranks 1, 1 on a node; wanted 2 to 4096 with one on a node, 2 to ",
        ),
    ],
)
def test_a_simulation_that_cannot_be_is_refused_before_the_plan(monkeypatch, capsys, changes, said):
    monkeypatch.setattr(replay, "installed", lambda: True)
    code, found = run(monkeypatch, capsys, *FEW, *changes)
    assert (code, found.out) == (2, "") and said in found.err
    assert changes[0] != "--ranks" or found.err.endswith("next: --ranks 2\n")


def test_simulate_without_simgrid(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    code, said = run(monkeypatch, capsys, *FEW)
    assert code == 2 and said.out == "" and said.err.count("\n") == 1
    assert "got no smpirun; wanted SimGrid; next: apt-get install libsimgrid-dev" in said.err
    assert "brew install simgrid" in said.err
