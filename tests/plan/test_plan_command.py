"""The command as a user types it: text, JSON, a figure, and README's example."""

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from refgf.plan import __main__ as command
from refgf.plan import figure, replay, report

ROOT = Path(__file__).resolve().parents[2]
USUAL = ["plan", "--model", "alexnet", "--machine", "v100-56gbit", "--ranks", "16"]


def run(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["refgf predict", *arguments])
    code = command.main()
    return code, capsys.readouterr()


def test_text_fits_100_columns(monkeypatch, capsys):
    code, said = run(monkeypatch, capsys, *USUAL, "--ranks-per-node", "4")
    assert code == 0 and max(map(len, said.out.splitlines())) <= 100
    for words in (
        "eager",
        "bucket_cap_mb=",
        "HOROVOD_FUSION_THRESHOLD=",
        "\n  4096 ",
        "narrow it with",
    ):
        assert words in said.out
    assert "No link inside a node is known" in said.out


def test_the_text_says_what_was_assumed(monkeypatch, capsys):
    """Ranks of a node, batch, overlap, wire, densities, B and W, and the meaning of each input."""
    _, said = run(monkeypatch, capsys, *USUAL, "--ranks-per-node", "4", "--overlap", "0.5")
    lines = [line for line in said.out.splitlines() if line]
    assert "4 on a node (--ranks-per-node), a batch of 128 on each, flat ring" in lines[2]
    assert "backward, which keeps 50 % of its speed" in lines[3]
    for words in (
        "half, CSC and hierarchy16 send float16",
        "CSC: 10 % of the chunks",
        "top-k: 1 %",
        "every 4 batches (B), used 1 later (W)",
        "efficiencies are upper bounds: casts",
        "pace, s of computing: 0.90 to 1.10",
        "beta, s a byte",
    ):
        assert words in said.out


def test_how_flat_the_best_theta_is():
    """Around the best, not past a theta that is worse: 4 is as good as 1, but 3 lies between."""
    sweep = {0: 1.5, 1: 1.01, 2: 1.0, 3: 1.1, 4: 1.0}
    said = report.flat_in_words({"theta_bytes": 2, "step_s": 1.0, "sweep": sweep})
    assert said == "1 to 2 are at most 2 % slower"


def test_help_lists_networks_machines_and_formats(monkeypatch, capsys):
    with pytest.raises(SystemExit):
        run(monkeypatch, capsys, "plan", "--help")
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 100
    for words in (
        "bertlarge",
        "v100-10gbe has alexnet, resnet50",
        "machines (--machine): v100-10gbe, v100-56gbit",
        "name,elements,ready_ms",
        '"refgf_machine": 1',
        "out-of-place time",
        "1: not slowed (default: 1.0)",
    ):
        assert words in " ".join(said.split())
    with pytest.raises(SystemExit):
        run(monkeypatch, capsys, "measure", "--help")
    assert "mpiexec -n 2 --host one,two" in capsys.readouterr().out


def test_a_list_in_a_deep_folder_fits_100_columns(monkeypatch, capsys, tmp_path):
    path = tmp_path / ("deep" * 20) / "sizes.csv"
    path.parent.mkdir()
    path.write_text("elements,ready_ms\n1000000,10\n2000000,20\n")
    where = ["--machine", "v100-10gbe", "--ranks", "4"]
    code, said = run(monkeypatch, capsys, "plan", "--model", str(path), *where)
    assert code == 0 and max(map(len, said.out.splitlines())) <= 100
    assert said.out.startswith("sizes.csv: 3,000,000 gradients in 2 tensors, 20.0 ms a step")


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
    assert code == 2 and "wanted a file to write" in said.err


def test_a_line_has_a_gap_where_its_system_does_not_apply(monkeypatch, tmp_path):
    axes = pytest.importorskip("matplotlib.axes").Axes
    lines, plot = {}, axes.plot

    def noted(self, x, y, label, **style):
        lines[label] = x, y
        return plot(self, x, y, label=label, **style)

    monkeypatch.setattr(axes, "plot", noted)
    curves = {"hierarchy": {1: 100.0, 2: None, 4: 50.0}}
    names = {"model": {"name": "m"}, "network": {"name": "n"}, "ranks": 4}
    figure.draw(names | {"efficiency_percent": curves}, str(tmp_path / "plan.png"))
    assert lines["hierarchy"][0] == [1, 2, 4] and math.isnan(lines["hierarchy"][1][1])


def test_a_reader_that_wants_no_more():
    """`refgf predict plan ... | head -1`: no complaint."""
    reads, writes = os.pipe()
    os.close(reads)
    command = [sys.executable, "-m", "refgf.predict", *USUAL]
    ended = subprocess.run(command, stdout=writes, stderr=subprocess.PIPE, timeout=100)
    os.close(writes)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ValueError, match="got no matplotlib"):
        figure.draw({}, "plan.png")


FEW = ["plan", "--model", "alexnet", "--machine", "v100-56gbit", "--ranks", "4", "--simulate"]


@pytest.mark.skipif(not replay.installed(), reason="SimGrid is missing: libsimgrid-dev")
def test_simulate(monkeypatch, capsys):
    """The closed form of the ring and SimGrid without contention: the same, as text and as JSON."""
    code, said = run(monkeypatch, capsys, *FEW, "--platform", "fat-tree:2")
    assert code == 0 and "platform fat-tree:2 (ms)" in said.out
    row = next(line for line in said.out.splitlines() if line.startswith("ring "))
    closed_ms, off_ms, contention_ms, tcp_ms = map(float, row.split()[1:])
    assert closed_ms == pytest.approx(off_ms, rel=1e-3) and off_ms <= contention_ms < tcp_ms
    code, said = run(monkeypatch, capsys, *FEW, "--json")
    found = json.loads(said.out)["simgrid"]["allreduce"]["ring"]
    assert 1e3 * found["off_s"] == pytest.approx(off_ms, rel=1e-2)


def test_simulate_without_simgrid(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    code, said = run(monkeypatch, capsys, *FEW)
    assert code == 2 and said.out == "" and said.err.count("\n") == 1
    assert "got no smpirun; wanted SimGrid; next: apt-get install libsimgrid-dev" in said.err


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--model", "alexnet", "--machine", "dgx"], "plan --machine: got 'dgx'"),
        (["--model", "vgg16", "--machine", "v100-56gbit"], "got no batch and rate of one rank"),
        (["--model", "toaster", "--machine", "v100-56gbit"], "plan --model: got 'toaster'"),
    ],
)
def test_errors_are_one_sentence_and_code_2(monkeypatch, capsys, arguments, said):
    code, found = run(monkeypatch, capsys, "plan", *arguments, "--ranks", "4")
    assert code == 2 and said in found.err and found.err.count("\n") == 1


def test_readme_shows_what_it_prints(monkeypatch, capsys):
    section = re.search(r"\n## How long would it take on my cluster\?\n(.*?)\n## ", readme(), re.S)[
        1
    ]
    assert section.count("\n") + 1 <= 25
    typed = re.search(r"^    python -m refgf\.predict (plan .*)$", section, re.M)[1].split()
    shown = [
        line[4:] for line in section.splitlines() if re.match(r"    (\S.* (ms|\d)|\w+ +\d)", line)
    ]
    code, said = run(monkeypatch, capsys, *typed)
    printed = said.out.splitlines()
    shown = [line for line in shown if not line.startswith(("python", "mpiexec"))]
    assert code == 0 and len(shown) >= 10
    assert [line for line in shown if line not in printed] == []


def readme():
    return (ROOT / "README.md").read_text()
