"""`oracle step`: rebuilt mistakes are named, and right steps pass."""

import ast
import re
import subprocess
import sys
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is an extra")

import refgf.oracle.step
from refgf.oracle.foreign.messages import pack, unpack
from refgf.oracle.foreign.untrusted import BadFile
from refgf.oracle.step import ranks as ranks_module
from refgf.oracle.step.compared import Whole
from refgf.oracle.step.hypotheses import Observed, shard
from refgf.oracle.step.judging import judge
from refgf.oracle.step.ranks import CannotJudge, Ranks
from refgf.oracle.step.reference import in_float64
from tests.support.step import cases as step_cases
from tests.support.step import mistakes as step_mistakes
from tests.support.step import right as step_right
from tests.support.step.subject import subject

LONG = pytest.mark.long
FEW = (  # of each stage, and of each kind of gradient
    *("loss_times_world_size", "accumulation_not_divided", "only_the_last_call_is_reduced"),
    *("zero_grad_left_out", "different_seeds", "clip_counts_copies", "decay_applied_p_times"),
    *("clip_before_allreduce", "whole_batch_on_every_rank", "statistics_apart"),
)


@pytest.fixture(scope="module")
def four():
    with Ranks(4) as running:
        yield running


def require_named(name, running):
    wanted = step_mistakes.MISTAKES[name]
    norm = getattr(wanted, "batch_norm", "refuse")
    verdict = judge(f"{step_mistakes.__file__}:{name}", running, batch_norm=norm)
    found = [f for f in verdict.findings if f.stage == wanted.stage]
    assert any(wanted.names <= set(f.names) for f in found), verdict


@pytest.mark.parametrize("name", FEW)
def test_mistakes_are_named(name, two):
    """All of them on three ranks: tests/approval."""
    require_named(name, two)


@pytest.mark.parametrize(
    "name", ["decay_setting_times_world_size", "decay_by_hand_p_times", "rate_times_world_size"]
)
def test_settings_and_decay_are_named_in_every_step(name, two):
    found = judge(f"{step_mistakes.__file__}:{name}", two).findings  # a bias of 0 has no decay
    assert {step for f in found for step in f.steps} == {0, 1, 2}
    wanted = "2 times one rank's 0.1 = p" if name.endswith("size") else "-0.001 times the weights"
    assert all(f.stage == "update" and wanted in str(f) for f in found), found


def test_two_settings_each_have_their_own_factor(two):
    name = "rate_times_and_decay_over_world_size"
    (found,) = judge(f"{step_mistakes.__file__}:{name}", two).findings
    rate = "learning rate is 0.2, 2 times one rank's 0.1 = p; "
    decay = "weight decay is 0.05, 0.5 times one rank's 0.1 = 1 / p"
    assert str(found).endswith(f"the optimizer's {rate}the optimizer's {decay}"), found


@LONG
@pytest.mark.parametrize("name", FEW)
def test_mistakes_are_named_on_four_ranks(name, four):
    require_named(name, four)


def test_a_mistake_of_each_stage_is_always_tested():
    stages = {name: case.stage for name, case in step_mistakes.MISTAKES.items()}
    assert {stages[name] for name in FEW} == set(stages.values())


def test_enough_mistakes_have_a_thread():
    links = [case.thread for case in step_mistakes.MISTAKES.values() if case.thread]
    assert len(set(links)) == len(links) >= 25
    assert all(link.startswith("https://github.com/") for link in links)


def require_right(number, running):
    """No false alarm. In 16 bits rounding may hide too much for the word right."""
    drawn = step_right.set_up(number)
    about = drawn.about
    try:
        verdict = judge(f"{step_right.__file__}:set_up_{number}", running)
    except CannotJudge as error:
        assert "cannot tell" in str(error) and drawn.sixteen_bits, (about, error)
    else:
        assert verdict.right, (about, str(verdict))


@pytest.mark.parametrize(
    "number", [*range(4), *(pytest.param(number, marks=LONG) for number in range(4, 10))]
)
def test_right_steps_pass(number, two):
    require_right(number, two)


@LONG
@pytest.mark.parametrize("size", [2, 3, 4])
def test_50_right_steps_give_no_false_alarm(size, monkeypatch):
    monkeypatch.setattr(ranks_module, "POLL_S", 0.05)
    with Ranks(size) as running:
        for number in range(size - 2, 201, 12):
            require_right(number, running)


def test_right_steps_are_of_every_kind():
    ways = [step_right.set_up(number).about.split(",")[0] for number in range(201)]
    assert set(ways) == set(step_right.WAYS)


@pytest.mark.parametrize("factor", [2, 0.5])
def test_a_factor_is_named_in_bfloat16(factor, two, tmp_path):
    """Where single elements are off by as much as the rounding of 16 bits allows."""
    cast = "    def value(own, part):\n        with torch.autocast('cpu', torch.bfloat16):\n"
    cast += f"            return loss(own, part) * {factor} ** (size - 1)\n"
    path = subject(tmp_path, cast + "    loop(net, batches, rank, size, value)\n")
    verdict = judge(path, two)
    names = {name for f in verdict.findings if f.stage == "gradient" for name in f.names}
    assert ("p" if factor == 2 else "1 / p") in names


def test_a_factor_is_named_though_values_are_clipped(two, tmp_path):
    train = "    def clip():\n        nn.utils.clip_grad_value_(net.parameters(), 1e-3)\n"
    train += "    def value(own, part):\n        return loss(own, part) * size\n"
    train += "    loop(net, batches, rank, size, value, then=clip)\n"
    said = str(judge(subject(tmp_path, train), two))
    assert "all tensors: 2 times what it should be = p" in said and "no known" not in said


def test_one_element_for_each_rank_is_no_factor_of_a_shard():
    """It is a multiple of any other number."""
    exact, whole = np.array([1.0, 2.0, 3.0]), [(slice(0, 3),)] * 3
    step = SimpleNamespace(size=3, exact={"bias": exact}, bounds={"bias": 1e-9})
    step.calls, step.scale, step.answer = 1, None, {"counts": {}}
    assert shard(Observed(step, {"bias": Whole([exact * [1, 2, 2]] * 3, whole)})) is None
    parts = Whole([exact * [1, 2, 2]], [(slice(r, r + 1),) for r in range(3)])
    assert "shard of rank 1" in shard(Observed(step, {"bias": parts})).text


RIGHT = {  # near a mistake of FEW, but not one
    "equal samples": ("batch = lambda seed: (torch.ones(24, 6), torch.zeros(24).long())\n", ""),
    "own norms are only looked at": (
        "",
        "        nn.utils.clip_grad_norm_(net.parameters(), float('inf'))\n",
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_near_a_mistake_is_right(name, two, tmp_path):
    head, clip = RIGHT[name]
    train = "    optimizer = sgd(net)\n    for pair in batches:\n        optimizer.zero_grad()\n"
    train += "        loss(net, share(pair, rank, size)).backward()\n" + clip
    train += "        reduce_gradients(net, size)\n        optimizer.step()\n"
    verdict = judge(subject(tmp_path, train, head=head), two)
    assert verdict.right, verdict


def test_a_rank_that_counts_its_tokens_twice_has_a_weight(two):
    verdict = judge(f"{step_mistakes.__file__}:mean_of_means_over_ranks", two)
    assert "rank 0 1.5, rank 1 0.75" in str(verdict)  # 6 of 18 labels on rank 0


def test_the_example_of_the_docstring(two, tmp_path):
    text = refgf.oracle.step.__doc__
    lines = text[text.index("    import torch\n") : text.index("This prints")].splitlines()
    example = "\n".join(line.removeprefix("    ") for line in lines)
    path = tmp_path / "example.py"
    path.write_text(example)
    said = text.split('This prints "')[1].split('"')[0]
    assert said in str(judge(path, two))
    page = (Path(__file__).parents[2] / "docs" / "judge.md").read_text()
    (shown,) = re.findall(r"^```python\n(# loop.py\n.*?)^```", page, re.S | re.M)
    assert ast.dump(ast.parse(shown)) == ast.dump(ast.parse(example)), (
        "one example, as it is tested"
    )
    assert said.replace("2 times", "3 times") in page


def test_a_gloo_that_sums_where_fsdp_asks_for_a_mean_is_not_the_steps_mistake(tmp_path):
    """As in PyTorch 2.7 (issue 162338): there every sharded gradient is p times too large."""
    head = "right = dist.reduce_scatter_tensor\n"
    head += "def summed(out, x, op=None, **more):\n    return right(out, x, **more)\n"
    head += "dist.reduce_scatter_tensor = summed\n"
    train = "    sharded(net, size)\n    optimizer = sgd(net)\n    for pair in batches:\n"
    train += "        optimizer.zero_grad()\n"
    train += "        loss(net, share(pair, rank, size)).backward()\n        optimizer.step()\n"
    with Ranks(2) as running:
        assert judge(subject(tmp_path, train, "mean.py"), running).right
        with pytest.raises(CannotJudge, match="gloo sums where FSDP asks it for a mean"):
            judge(subject(tmp_path, train, "sum.py", head), running)


def test_a_script_as_it_is_run_elsewhere(two, tmp_path):
    """It reads options, starts a process group and takes a GPU where there is one."""
    head = "import argparse\nparser = argparse.ArgumentParser()\n"
    head += "parser.add_argument('--rate', default=0.1)\nrate = parser.parse_args().rate\n"
    head += "def model():\n    device = 'cuda' if torch.cuda.is_available() else 'cpu'\n"
    head += "    return nn.Linear(6, 3).to(device)\n"
    train = "    dist.init_process_group('gloo')\n    loop(net, batches, rank, size, loss)\n"
    train += "    dist.destroy_process_group()\n"
    path = subject(tmp_path, train, head=head)
    for _ in range(2):
        assert "a tenth of it would show in 2 of 2 tensors" in str(judge(path, two))


def test_a_file_that_has_changed_is_read_again(two, tmp_path):
    right = "    loop(net, batches, rank, size, loss)\n"
    assert judge(subject(tmp_path, right), two).right
    wrong = right.replace(", loss)", ", lambda *own: size * loss(*own))")
    assert not judge(subject(tmp_path, wrong), two).right


def test_a_file_with_the_name_of_a_module_that_pytorch_imports(tmp_path, monkeypatch):
    (tmp_path / "cuda.py").write_text("1 / 0\n")
    (tmp_path / "typing_extensions.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    with Ranks(2) as running:
        require_named("unwrapped", running)


@LONG
def test_the_command_says_what_it_found(tmp_path):
    command = [sys.executable, "-m", "refgf.oracle", "step"]
    path = f"{step_mistakes.__file__}:loss_times_world_size"
    done = subprocess.run([*command, path, "--ranks", "3"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "WRONG  gradient, step 0, 1, 2, all tensors: 3 times" in done.stdout
    right = f"{step_right.__file__}:set_up_1"
    done = subprocess.run([*command, right], capture_output=True, text=True)
    assert done.returncode == 0 and "right: equal within rounding" in done.stdout


def test_batches_of_any_nest_become_float64():
    torch = step_cases.torch
    pair = namedtuple("pair", "x y")(torch.ones(2), torch.arange(2))
    found = in_float64({"a": [pair], "b": (torch.ones(1), "text")})
    assert found["a"][0].x.dtype == found["b"][0].dtype == torch.float64
    assert found["a"][0].y.dtype == torch.int64 and found["b"][1] == "text"


def test_messages():
    nest = {"a": np.arange(6.0).reshape(2, 3), "b": [1, None, {"c": np.float32([])}], "d": "x"}
    back = unpack(pack(nest))
    assert np.array_equal(back["a"], nest["a"]) and back["b"][:2] == [1, None]
    assert back["b"][2]["c"].shape == (0,) and back["d"] == "x"
    good = pack(nest)
    for damaged in (b"", b"{}", good[:-3], b'{"a": {"#": "7"}}\n' + good.partition(b"\n")[2]):
        with pytest.raises(BadFile):
            unpack(damaged)
