"""`oracle step`: what cannot be judged gets a sentence, and leaves no process behind."""

import os
import time
from pathlib import Path

import pytest

from tests.support.sizes import long_but

pytest.importorskip("torch", reason="PyTorch is an extra")

from refgf.oracle.__main__ import main
from refgf.oracle.step import ranks as ranks_module
from refgf.oracle.step.judging import judge
from refgf.oracle.step.ranks import CannotJudge, Ranks
from tests.support.step.subject import subject

LONG = pytest.mark.long
RIGHT = "    loop(net, batches, rank, size, loss)\n"


REFUSED = {
    "nn.Dropout(0.1)": r"loss\(model, batch\) draws random numbers",
    "nn.BatchNorm1d(3)": r"statistics of each rank's own samples \(BatchNorm1d\)",
    "Vanishing()": "cannot tell: nothing is off by more than rounding",
}


@pytest.mark.parametrize("layer", REFUSED)
def test_a_model_whose_ranks_cannot_be_compared_is_refused(layer, two, tmp_path):
    """Else a right verdict would be empty, or a wrong one false."""
    head = "class Vanishing(nn.Module):\n    def forward(self, x):\n"
    head += "        return (x + 1e9) - 1e9\n"
    head += f"def model():\n    return nn.Sequential(nn.Linear(6, 3), {layer})\n"
    path = subject(tmp_path, "    loop(net, batches, rank, size, loss)\n", head=head)
    with pytest.raises(CannotJudge, match=REFUSED[layer]):
        judge(path, two)


def ended(process_id):
    """Every process of this group is gone."""
    for _ in range(50):
        try:
            os.killpg(process_id, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


KILLED = {
    "rank == 1 and size == 2": ("on rank 1: ", "signal.raise_signal(11)", "signal SIGSEGV"),
    "rank == 0 and size == 2": ("on rank 0: ", "os._exit(3)", "exit code 3"),
    "size == 1": ("on one rank: ", "os.abort()", "signal SIGABRT"),
}


@pytest.mark.parametrize("who", long_but(KILLED, next(iter(KILLED))))
def test_a_process_that_ends_has_a_signal_or_an_exit_code(who, tmp_path):
    place, call, said = KILLED[who]
    train = f"    if {who}:\n        {call}\n" + RIGHT
    path = subject(tmp_path, train, head="import signal\n")
    with pytest.raises(CannotJudge, match=f"^step, {place}its process ended with {said}$"):
        judge(path)


HANGS = "    for pair in batches:\n        dist.barrier() if rank == 0 else time.sleep(99)\n"


def test_a_step_that_hangs_ends_and_leaves_no_process(tmp_path):
    path = subject(tmp_path, HANGS)
    with Ranks(2) as running:
        assert judge(subject(tmp_path, RIGHT, "right.py"), running).right
        group, running.timeout_s = running.group.process.pid, 2.0
        folder = Path(running.group.store).parent
        with pytest.raises(CannotJudge, match="on rank 0, 1 of 2: train did not end within 2 s"):
            judge(path, running)
        assert ended(group) and not folder.exists()


def test_the_time_limit_does_not_count_the_start(tmp_path):
    path = subject(tmp_path, HANGS)
    with Ranks(2, timeout_s=1.0) as running:
        start_s = time.monotonic()
        with pytest.raises(CannotJudge, match="train did not end within 1 s"):
            judge(path, running)
        assert time.monotonic() - start_s < ranks_module.START_S / 2


def test_a_slow_start_is_called_that(tmp_path, monkeypatch):
    """On a busy machine PyTorch alone took 80 s: --timeout did not help, nor did the sentence."""
    monkeypatch.setattr(ranks_module, "START_S", 0.01)
    late = "on rank 0, 1 of 2: did not start within 0.05 s; wanted all to import PyTorch"
    with Ranks(2, timeout_s=0.05) as running, pytest.raises(CannotJudge, match=late):
        judge(subject(tmp_path, RIGHT), running)


@LONG
def test_a_rank_that_dies_and_a_rank_that_fails_alone(tmp_path):
    dies = subject(tmp_path, "    os._exit(3) if rank == 1 else dist.barrier()\n", "dies.py")
    fails = subject(tmp_path, "    1 / 0 if rank == 1 else dist.barrier()\n", "fails.py")
    with Ranks(2) as running:
        with pytest.raises(CannotJudge, match="on rank"):
            judge(dies, running)
        with pytest.raises(CannotJudge, match="on rank 1: ZeroDivisionError in line 5 of"):
            judge(fails, running)
        assert judge(subject(tmp_path, RIGHT, "right.py"), running).right


WRONG = {
    "    pass\n": "train took 0 of 3 batches; wanted a loop over all",
    "    list(batches)\n": "train made no step of an optimizer",
    "    return missing\n": "NameError in line 5 of",
    "    for pair in batches:\n        raise SystemExit(3)\n": "SystemExit in line 6",
}


SKIPS = """    own, optimizer = ddp(net, size), sgd(net)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**SCALE)
    for pair in batches:
        optimizer.zero_grad()
        scaler.scale(1e6 * loss(own, share(pair, rank, size))).backward()
"""


@pytest.mark.parametrize(
    ("exponent", "says"),
    [("127", "a GradScaler skipped every step"), ("1", "train made no step of an optimizer")],
)
def test_a_scaler_that_skips_every_step_is_told_from_none(exponent, says, two, tmp_path):
    steps = "        scaler.step(optimizer)\n        scaler.update(2.0**127)\n"
    train = SKIPS.replace("SCALE", exponent) + steps * (exponent == "127")
    with pytest.raises(CannotJudge, match=says):
        judge(subject(tmp_path, train), two)


FEW_SKIPS = """    own, optimizer = ddp(net, size), sgd(net)
    scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
    for number, pair in enumerate(batches):
        optimizer.zero_grad()
        factor = float("inf") if number == 1 and WHERE else FACTOR
        scaler.scale(factor * loss(own, share(pair, rank, size))).backward()
        scaler.step(optimizer)
        scaler.update(1.0)
"""


def few_skips(folder, where, factor="1"):
    train = FEW_SKIPS.replace("WHERE", where).replace("FACTOR", factor)
    return subject(folder, train, f"skips{abs(hash((where, factor)))}.py")


@pytest.mark.parametrize(
    ("where", "who"), [("size > 1", "on 2 ranks only"), ("size == 1", "on one rank only")]
)
def test_a_scaler_that_skips_another_step_on_one_rank_is_no_mistake(where, who, two, tmp_path):
    says = f"cannot tell: in step 1 .* {who}, .* next: a smaller init_scale"
    with pytest.raises(CannotJudge, match=says):
        judge(few_skips(tmp_path, where), two)
    wrong = judge(few_skips(tmp_path, where, "(3 if size > 1 else 1)"), two)
    assert not wrong.right and {f.stage for f in wrong.findings} == {"gradient"}
    assert all(f.steps == [0] for f in wrong.findings), "what came before is judged"


def test_a_step_that_a_scaler_skips_on_both_sides_is_left_out(two, tmp_path):
    assert judge(few_skips(tmp_path, "True"), two).right
    wrong = judge(few_skips(tmp_path, "True", "(3 if size > 1 else 1)"), two)
    assert {s for f in wrong.findings for s in f.steps} == {0, 2}


@pytest.mark.parametrize("train", WRONG)
def test_a_wrong_train_gets_a_sentence(train, two, tmp_path):
    with pytest.raises(CannotJudge, match=WRONG[train]):
        judge(subject(tmp_path, train), two)
    assert two.group is not None, "all ranks failed alike: they go on"


def test_a_wrong_file_gets_a_sentence(two, tmp_path):
    path = tmp_path / "half.py"
    path.write_text("def model(): pass\n")
    with pytest.raises(CannotJudge, match="half.py has no function batch; wanted model()"):
        judge(path, two)
    path = subject(tmp_path, "    pass\n", "other.py", "def model(): return 1\n")
    with pytest.raises(CannotJudge, match=r"model\(\) returned int; wanted a torch.nn.Module"):
        judge(path, two)


def test_wrong_arguments_get_a_sentence(capsys, tmp_path, monkeypatch):
    assert main(["step", str(tmp_path / "none.py")]) == 2
    assert "none.py, which is no file; wanted a Python file" in capsys.readouterr().err
    path = str(subject(tmp_path, "    pass\n"))
    assert main(["step", path, "--ranks", "1"]) == 2
    assert "got 1 ranks; wanted 2 to 16" in capsys.readouterr().err
    assert main(["step", path, "--timeout", "nan"]) == 2
    assert main(["step", path, "--steps", "0"]) == 2
    monkeypatch.setattr(ranks_module.importlib.util, "find_spec", lambda name: None)
    assert main(["step", path]) == 2
    assert "PyTorch is not installed; next: pip install torch" in capsys.readouterr().err
