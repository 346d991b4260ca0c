"""The scorecard: what plan and other predictors say of published rows, and NCCL's model."""

import json
import shlex
import sys
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from refgf.plan import __main__ as command
from refgf.plan import calibration, fabric, published, score, scored, step_times
from refgf.plan.nccl import LL, LL128, RING, SIMPLE, TREE, Nccl
from refgf.plan.published import ETHERNET, RDMA, rows
from refgf.plan.question import Question
from refgf.plan.score import Scored
from refgf.predict.cost import Link

SOME = [row for row in rows() if row.network == "ResNet-50"][:6]


def test_the_calibration_is_that_of_the_rows_that_may():
    assert calibration.FILE.read_text() == calibration.written(calibration.from_rows(rows()))
    kept = [row for row in rows() if not row.held_out]
    assert calibration.from_rows(rows()) == calibration.from_rows(kept)


def test_the_held_out_half_keeps_its_bars():
    """As on the page: 8 of 10 inside, 8 % of error, as many too slow as too fast within 2."""
    found = score.summary([each for each in score.by_plan(rows()) if each.row.held_out])
    assert found["rows"] >= 30 and found["inside"] >= 0.8 * found["rows"]
    assert found["error"] <= 0.08 and 0.5 <= found["too_slow"] / found["too_fast"] <= 2


def test_the_page_says_what_the_score_is():
    """Sentences of docs/predict.md and README are generated (next: copy score.sentence, short)."""
    root, found = Path(__file__).parents[2], score.answer()
    assert score.sentence(found) in (root / "docs" / "predict.md").read_text()
    assert score.short(found) in (root / "README.md").read_text()


def test_counts_of_a_summary():
    one, other = SOME[0], SOME[1]
    found = score.summary(
        [
            Scored(one, 2 * one.step_s, one.step_s, 2.5 * one.step_s),
            Scored(other, 0.9 * other.step_s, 0.8 * other.step_s, 0.95 * other.step_s),
        ]
    )
    assert (found["rows"], found["inside"], found["too_slow"], found["too_fast"]) == (2, 1, 1, 1)
    assert found["error"] == pytest.approx(0.55) and found["largest_error"] == pytest.approx(1)
    assert found["narrow"] == 1


def predictor(tmp_path, body):
    file = tmp_path / "predictor.py"
    file.write_text(f"import json, sys\nrows = json.load(sys.stdin)['rows']\n{body}\n")
    return shlex.join([sys.executable, str(file)])


EACH = "print(json.dumps({'predictions': [%s for r in rows]}))"
STEP = "{'name': r['name'], 'step_s': r['accumulate'] * r['batch'] / r['single']%s}"


def test_another_predictor(tmp_path):
    """One that says that nothing is lost: all of its steps are the computing alone."""
    found = score.by_command(predictor(tmp_path, EACH % (STEP % "")), rows())
    assert [each.step_s for each in found] == pytest.approx([each.row.compute_s for each in found])
    assert not any(each.inside for each in found if each.row.efficiency < 0.99)


@pytest.mark.parametrize(
    "body, got",
    [
        ("sys.exit(3)", "exit code 3"),
        ("print('x')", "'x"),
        ("print('{}')", "KeyError"),
        ("print(json.dumps({'predictions': []}))", "0 predictions"),
        (EACH % "{'name': 'a', 'step_s': 1}", "1 names"),
        (EACH % "{'name': r['name']}", "[None, None, None]"),
        (EACH % "{'name': r['name'], 'step_s': -1}", "[-1, -1, -1]"),
        (EACH % "{'name': r['name'], 'step_s': float('nan')}", "nan"),
        (EACH % (STEP % ", 'low_s': 1e9"), "low_s <= step_s"),
    ],
)
def test_a_predictor_that_is_wrong_is_told(tmp_path, body, got):
    with pytest.raises(ValueError, match="next: refgf predict score --help") as told:
        score.by_command(predictor(tmp_path, body), rows())
    assert got in str(told.value)


def test_inputs_hold_all_but_the_measured_time():
    row = next(row for row in rows() if row.fabric == ETHERNET)
    given = score.inputs(row)
    assert given["devices"] == row.ranks and given["between"] == row.between
    assert json.dumps(given) and not {"efficiency", "rate", "step_s"} & set(given)


def test_the_command_prints_the_held_out_half_first(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["refgf predict", "score", "--rows"])
    assert command.main() == 0
    told = capsys.readouterr().out
    assert told.index("Held out") < told.index("The half that calibrates")
    assert all(len(line) <= 100 for line in told.splitlines() if "Tensor" not in line)
    monkeypatch.setattr(sys, "argv", ["refgf predict", "score", "--json"])
    assert command.main() == 0
    assert len(json.loads(capsys.readouterr().out)["rows"]) == len(rows())


def test_accumulated_steps_are_computed_before_the_last():
    row = next(row for row in rows() if row.accumulate == 4)
    step = scored.step_of(row)
    assert step.compute_s == pytest.approx(row.compute_s)
    assert step.ready[0][0] > 0.75 * row.compute_s


def test_what_is_not_modelled_is_named_and_more_ranks_are_said():
    row = next(row for row in rows() if row.fabric == RDMA)
    asked = calibration.calibrated(scored.question_of(row), RDMA)
    assert asked.unmodelled.factor >= 1 and "Not modelled" in asked.unmodelled.notes[0]
    cases = (4096, 100, "any row"), (16, 1600, ""), (16, 3200, "of 3200 Gb"), (16, 5, "of 5 Gb")
    for size, gbit, said in cases:
        link = fabric.with_between(asked.fabric, "14us", f"{gbit}gbit", "test")
        found = calibration.calibrated(Question(asked.step, link, size, 8)).unmodelled.notes[1:]
        assert [said in note for note in found] == [True] * bool(said)


# ---- NCCL ----

NVLINK, NETWORK = Link(3.4e-6, 1 / 240e9), Link(14e-6, 1 / 50e9)


def test_a_ring_of_one_box_by_hand():
    """8.4 us, 14 steps of 3.4 us, and 2 * 7/8 n bytes."""
    found = Nccl(1, 8, NVLINK, NETWORK).time_s(1e9, RING, SIMPLE)
    assert found == pytest.approx(8.4e-6 + 14 * 3.4e-6 + 1.75 * 1e9 / 240e9)


def test_a_tree_over_nodes_by_hand():
    """8.5 us a step in LL128 between nodes, 1.25 us inside; 2 n bytes, 0.92 and 120/128 of them."""
    found = Nccl(8, 8, NVLINK, NETWORK).time_s(1 << 29, TREE, LL128)
    latency_s = 14e-6 + 2 * 7 * 1.25e-6 + 2 * 3 * 8.5e-6
    factor = 0.92 * 120 / 128 * 1.0  # 512 MiB: no correction of the rate
    assert found == pytest.approx(latency_s + 2 * (1 << 29) / 50e9 / factor)


def test_two_nodes_exchange_half_of_a_trees_bytes():
    two, four = (Nccl(nodes, 8, NVLINK, NETWORK) for nodes in (2, 4))
    assert four(1 << 30) / two(1 << 30) > 1.6
    assert two.chosen(1 << 30)[0] == TREE and four.chosen(1 << 30)[0] == RING
    assert Nccl(64, 8, NVLINK, NETWORK).chosen(1 << 20)[0] == TREE


def test_small_messages_have_flags_and_pcie_no_ll128():
    box = Nccl(1, 8, NVLINK, NETWORK)
    assert box.chosen(1024)[1] == LL and box.chosen(1 << 30) == (RING, SIMPLE)
    assert Nccl(1, 8, Link(5.7e-6, 1 / 10e9), NETWORK).time_s(1, RING, LL128) == inf


@pytest.mark.parametrize("nodes, per_node", [(1, 2), (1, 3), (2, 1), (3, 1), (5, 7), (512, 8)])
def test_no_slower_link_is_faster(nodes, per_node):
    sizes = [0.0, 1.0, 1e3, 1e5, 1e7, 1e9]
    fast = Nccl(nodes, per_node, NVLINK, NETWORK)
    slow = Nccl(nodes, per_node, Link(4e-6, 1 / 200e9), Link(20e-6, 1 / 40e9))
    assert all(slow(n) >= fast(n) > 0 for n in sizes) and fast.a_s == fast(0)


# ---- the command ----


def said(capsys, monkeypatch, *given):
    monkeypatch.setattr(sys, "argv", ["refgf predict", "plan", *given])
    code = command.main()
    told = capsys.readouterr()
    return code, told.out, told.err


def test_one_factor_knows_no_row_that_is_held_out():
    """The rows that it is judged on cannot change it, those that calibrate can."""
    given = published.rows()
    held = [row for row in given if row.held_out]
    others = tuple(row for row in given if not row.held_out)
    factor = score.by_one_factor(given)[0].step_s / given[0].compute_s
    slow = [replace(row, efficiency=row.efficiency / 2) for row in held]
    assert score.by_one_factor((*slow, *others))[-1].step_s == factor * others[-1].compute_s
    slow = [replace(row, efficiency=row.efficiency / 2) for row in others]
    assert score.by_one_factor((*held, *slow))[0].step_s > 1.9 * factor * held[0].compute_s


PACED = ["--model", "alexnet", "--batch", "64", "--rate", "390"]
PACED += ["--ranks", "16", "--ranks-per-node", "8"]


def test_a_link_without_a_file_and_nodes_by_name(capsys, monkeypatch):
    code, told, _ = said(capsys, monkeypatch, *PACED, "--between", "5us", "200gbit", "--json")
    found = json.loads(told)
    assert code == 0 and found["allreduce"] == "nccl"
    assert found["network"]["alpha_s"] == pytest.approx(5e-6)
    assert set(found["ranges"]) >= {"missed", "overlap"} and "tcp" not in found["ranges"]
    code, told, _ = said(capsys, monkeypatch, *PACED, "--machine", "aws-p3", "--json")
    found = json.loads(told)
    assert "tcp" in found["ranges"] and any(
        "TCP is planned" in n for n in found["network"]["notes"]
    )
    row = found["systems"]["theta"]
    assert row["low_s"] < row["step_s"] < row["high_s"]


def test_overlap_is_a_range_or_a_number(capsys, monkeypatch):
    for given, expected in (([], [1.0, 0.7]), (["--overlap", "0.8", "0.9"], [1.0, 0.8 / 0.9])):
        told = said(capsys, monkeypatch, *PACED, "--machine", "dgx-a100", *given, "--json")[1]
        assert json.loads(told)["ranges"]["overlap"] == pytest.approx(expected)
    told = said(capsys, monkeypatch, *PACED, "--machine", "dgx-a100", "--overlap", "0.9", "--json")
    assert "overlap" not in json.loads(told[1])["ranges"]


@pytest.mark.parametrize(
    "given, got",
    [
        (PACED, "no --machine"),
        ([*PACED, "--between", "5us", "fast"], "fast"),
        ([*PACED, "--machine", "dgx-a100", "--overlap", "0.1", "0.2", "0.3"], "--overlap 0.1 0.2"),
        ([*PACED, "--machine", "dgx-a100", "--simulate"], "--simulate with --allreduce nccl"),
    ],
)
def test_refused(capsys, monkeypatch, given, got):
    code, told, error = said(capsys, monkeypatch, *given)
    assert code == 2 and not told and got in error and "; " in error


def test_networks_of_the_rows_can_be_planned():
    assert step_times.workload_name("resnet101") == "ResNet-101"
    assert step_times.workload_name("bertbase") == "BERT-Base"
    assert step_times.workload_name("bert") == "BERT-Large"  # as before
    assert published.NETWORKS["ResNet-101"]().parameters == 44_549_160  # torchvision
