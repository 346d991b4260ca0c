"""The scorecard: what plan and other predictors say of published rows, and NCCL's model."""

import json
import shlex
import sys
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from refgf.plan import __main__ as command
from refgf.plan import (
    calibration,
    decoders,
    fabric,
    published,
    score,
    scored,
    scored_fsdp,
    step_times,
)
from refgf.plan.nccl import LL, LL128, RING, SIMPLE, TREE, Nccl
from refgf.plan.published import ETHERNET, RDMA, rows
from refgf.plan.question import Question
from refgf.plan.score import Scored
from refgf.predict.cost import Link

SOME = [row for row in rows() if row.network == "ResNet-50"][:6]


def test_the_calibration_is_that_of_the_rows_that_may():
    kept = [row for row in rows() if not row.held_out]
    assert calibration.FILE.read_text() == calibration.written(calibration.from_rows(rows()))
    assert calibration.FILE.read_text() == calibration.written(calibration.from_rows(kept))


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
    assert score.sentence_of_fsdp(found) in (root / "docs" / "predict.md").read_text()


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
        score.by_command(predictor(tmp_path, body), SOME)
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
        notes = calibration.calibrated(Question(asked.step, link, size, 8)).unmodelled.notes
        found = [note for note in notes if note.startswith("WARNING")]
        assert [said in note for note in found] == [True] * bool(said)
    large = replace(asked.step, ready=((0.1, 7_000_000_000),))
    notes = calibration.calibrated(replace(asked, step=large)).unmodelled.notes
    found = [note for note in notes if note.startswith("WARNING")]
    assert len(found) == 1 and "7,000,000,000 gradients are more than any row's" in found[0]
    mine = [row for row in rows() if row.fabric == RDMA and not row.held_out]
    largest = max(row.step_s / scored.formula_s(row) for row in mine)
    assert f"the farthest of these rows took {largest:.3g} times what the formulas" in found[0]


OWN = """network = "ResNet-50"
batch = 64
single = 500
per_node = 8
node = "dgx-a100"
[[series]]
name = "near"
between = "200gbit"
fabric = "RDMA"
rates = { 16 = 7200 }
[[series]]
name = "far"
between = "25gbit"
fabric = "Ethernet"
efficiencies = { 8 = 0.97, 8192 = 0.4 }
"""


def test_rows_of_ones_own_say_what_lies_outside_the_calibration(capsys, monkeypatch, tmp_path):
    file = tmp_path / "own.toml"
    file.write_text(OWN)
    monkeypatch.setattr(sys, "argv", ["refgf predict", "score", "--rows", str(file)])
    assert command.main() == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "plan: 3 steps of 1 sources" in told and "held out" not in told
    assert told.count("WARNING") == 1 and "8192 ranks are more than any row (at most 128)" in told
    found = score.answer(own=published.rows_of(str(file)))["halves"]["own"]
    assert found["all"]["rows"] == 3 and set(found) >= {"one box", "RDMA", "Ethernet"}


@pytest.mark.parametrize(
    "old, new, got",
    [
        ('"ResNet-50"', '"ResNet-5"', "network 'ResNet-5'"),
        ('"dgx-a100"', '"dgx"', "node 'dgx'"),
        ('"RDMA"', '"rdma"', "fabric 'rdma'"),
        ("batch = 64", "", "batch"),
        ("batch = 64", "batch = 0", "(4, 1, 0)"),
        ("0.97", "0", "T(1) / T(p) = 0"),
        ("7200", "-1", "T(1) / T(p) = -0.0001"),
        ("16 = 7200", "12 = 7200", "12 devices, 8 a node"),
        ("25gbit", "25 apples", "25 apples"),
        ('"far"', '"near"\nwire = 3', "wire"),
        ("8 = 0.97", "0 = 0.97", "far, 0 devices"),
        (OWN[OWN.index("[[") :], "", "series"),
        (OWN, "x", "TOMLDecodeError"),
    ],
)
def test_a_row_that_is_wrong_is_refused(tmp_path, old, new, got):
    file = tmp_path / "own.toml"
    assert old in OWN
    file.write_text(OWN.replace(old, new))
    with pytest.raises(ValueError, match="next: python -m pydoc refgf.plan.published") as told:
        published.rows_of(str(file))
    assert got in str(told.value)


# ---- FSDP ----


@pytest.mark.parametrize(
    "name, layers, width, parameters",
    [
        ("MPT-125M", 12, 768, 125_311_488),  # as MosaicML's table says
        ("MPT-7B", 32, 4096, 6_658_859_008),
        ("MPT-70B", 80, 8192, 64_862_437_376),
    ],
)
def test_a_decoder_has_the_published_number_of_parameters(name, layers, width, parameters):
    """A block: 12 width^2 in matrices, 9 width in biases, 4 in two norms."""
    block, rest = 12 * width**2 + 13 * width, (50_368 + 2048 + 2) * width
    assert decoders.NETWORKS[name]().parameters == layers * block + rest == parameters
    assert decoders.NETWORKS["Llama-2-7B"]().parameters == 6_738_415_616
    assert decoders.NETWORKS["Llama-3-8B"]().parameters == 8_030_261_248


def test_a_token_takes_two_flops_a_parameter_and_its_attention():
    """Forward of a block in Llama: 2 (4 width^2 + 3 width hidden), and 4 tokens width."""
    work, width, tokens = decoders.NETWORKS["Llama-2-7B"](), 4096, 4096
    block = 2 * (4 * width**2 + 3 * width * 11_008) + 4 * tokens * width
    wanted = 32 * block + 2 * 32_000 * width
    assert work.forward_flops / tokens == pytest.approx(wanted, rel=1e-3)
    assert work.backward_flops == pytest.approx(2 * work.forward_flops, rel=1e-3)


def test_plan_is_right_on_the_gpus_from_which_it_predicts():
    for row in scored_fsdp.rows()[::9]:
        alike = replace(row, ranks=row.base, step_s=row.base_s)
        assert scored_fsdp.predicted(alike)[0] == pytest.approx(row.base_s, rel=1e-5)


def test_steps_of_fsdp_are_as_the_tables_say():
    """MPT-7B on H100: 6 sequences of 2048 tokens, 9,670 tokens/s a GPU on 512."""
    named = {row.name: row for row in scored_fsdp.rows()}
    row = named["MPT-7B, H100, 512 GPUs from 8"]
    assert row.step_s == pytest.approx(12_288 / 9670) and row.base_s < row.step_s
    assert all(row.ranks > row.base and row.ranks % row.per_node == 0 for row in named.values())
    assert len(named) >= 30 and {row.gpu for row in named.values()} == {"A100", "H100"}
    found = score.of_fsdp()
    assert found["all"]["inside"] >= 0.9 * len(named) and found["all"]["error"] < 0.08


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
    factor = score.by_one_factor(given, given)[0].step_s / given[0].compute_s
    slow = [replace(row, efficiency=row.efficiency / 2) for row in held]
    slowed = (*slow, *others)
    found = score.by_one_factor(slowed, slowed)[-1].step_s
    assert found == factor * others[-1].compute_s
    slow = [replace(row, efficiency=row.efficiency / 2) for row in others]
    found = score.by_one_factor(held, (*held, *slow))[0].step_s
    assert found > 1.9 * factor * held[0].compute_s


PACED = ["--model", "alexnet", "--batch", "64", "--rate", "390"]
PACED += ["--ranks", "16", "--ranks-per-node", "8"]


def test_a_link_without_a_file_and_nodes_by_name(capsys, monkeypatch, short_table):
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


def test_the_table_of_ranks_is_what_each_number_of_ranks_is_planned_with(capsys, monkeypatch):
    """What is missed in one box is not what is missed between boxes, nor is TCP in a box."""
    for machine in ("dgx1-v100", "aws-p3"):
        given = [*PACED[:6], "--machine", machine, "--ranks-per-node", "8", "--json", "--ranks"]
        table = json.loads(said(capsys, monkeypatch, *given, "16")[1])["efficiency_percent"]
        for ranks in ("8", "32"):
            alone = json.loads(said(capsys, monkeypatch, *given, ranks)[1])
            assert table["eager"][ranks] == alone["efficiency_percent"]["eager"][ranks]
            assert table["eager"][ranks] == alone["systems"]["eager"]["efficiency_percent"]


def test_what_a_latency_says_of_the_link_is_said(capsys, monkeypatch, short_table):
    for latency, kind in (("19us", "RDMA"), ("20us", "TCP")):
        told = said(capsys, monkeypatch, *PACED, "--between", latency, "25gbit")[1]
        assert f"The link between nodes is taken for {kind}" in told
    told = said(capsys, monkeypatch, *PACED[:6], "--ranks", "8", "--ranks-per-node", "8")
    assert "taken for" not in told[1]


def test_overlap_is_a_range_or_a_number(capsys, monkeypatch, short_table):
    for given, expected in (([], [1.0, 0.7]), (["--overlap", "0.8", "0.9"], [1.0, 0.8 / 0.9])):
        told = said(capsys, monkeypatch, *PACED, "--machine", "dgx-a100", *given, "--json")[1]
        assert json.loads(told)["ranges"]["overlap"] == pytest.approx(expected)
    told = said(capsys, monkeypatch, *PACED, "--machine", "dgx-a100", "--overlap", "0.9", "--json")
    assert "overlap" not in json.loads(told[1])["ranges"]


@pytest.mark.parametrize(
    "given, got",
    [
        (PACED, "no --machine"),
        (["--model", "gpt2", *PACED[2:], "--machine", "dgx-a100"], "got 'gpt2'; wanted one of"),
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
