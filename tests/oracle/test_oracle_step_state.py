"""`oracle step`: right loops with state, own optimizers and turns; and what is said around them."""

import pytest

pytest.importorskip("torch", reason="PyTorch is an extra")

import contextlib
import re

from refgf.oracle.step.judging import judge
from refgf.oracle.step.ranks import CannotJudge, Ranks
from tests.support.step import turns as step_turns
from tests.support.step.subject import subject

LONG = pytest.mark.long
FEW = (  # of each kind
    *("spectral_norm", "running_normaliser", "model_on_the_meta_device", "constants_in_float32"),
    *("reduced_in_step", "own_zero_one", "flat_shards", "adversaries_in_turn"),
    *("temperature_lowered_by_the_loop", "codebook", "steps_inside_backward"),
    *("batch_norm", "signs_of_a_sum_inside"),
)


@pytest.fixture(scope="module")
def three():
    with Ranks(3, 120.0) as running:
        yield running


def require_right(name, running):
    loop = step_turns.LOOPS[name]
    try:
        said = str(judge(f"{step_turns.__file__}:{name}", running, batch_norm=loop.batch_norm))
    except CannotJudge as error:
        said = str(error)
    assert re.search(f"(?m)^(step: )?{loop.says}", said), said


@pytest.mark.parametrize(
    "name", [n if n in FEW else pytest.param(n, marks=LONG) for n in step_turns.LOOPS]
)
def test_right_loops_with_state_and_own_optimizers(name, two):
    """WRONG or refused they were, but for weight norm and the rate in a tensor."""
    require_right(name, two)


@LONG
@pytest.mark.parametrize("name", step_turns.LOOPS)
def test_right_loops_on_three_ranks(name, three):
    require_right(name, three)


ACCELERATE = """\
    import accelerate
    acc = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    own, optimizer = acc.prepare(net, torch.optim.AdamW(net.parameters(), lr=0.01))
    for pair in batches:
        part = share(pair, rank, size)
        count = acc.gather((part[1] != IGNORED).sum()).sum().item()
        for call in calls_of(part, 2):
            with acc.accumulate(own):
                acc.backward(LOSS)
                if acc.sync_gradients:
                    acc.clip_grad_norm_(own.parameters(), 0.1)
                optimizer.step()
                optimizer.zero_grad()
"""


def test_a_loop_on_accelerate(two, tmp_path):
    pytest.importorskip("accelerate")
    head = "from tests.support.step.cases import batch\n"
    right = ACCELERATE.replace("LOSS", 'loss(own, call, "sum") / count * 2 * size')
    assert judge(subject(tmp_path, right, "right.py", head), two).right
    wrong = ACCELERATE.replace("LOSS", "loss(own, call)")
    (found,) = judge(subject(tmp_path, wrong, "naive.py", head), two).findings
    assert found.names == ["shares weighted wrongly"], found


LOOP = "    loop(net, batches, rank, size, LOSS)\n"
VARIABLES = """\
    own = {k: os.environ[k] for k in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")}
    assert list(own.values()) == [str(n) for n in (rank, rank, size, size)], own
    group = ("GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME")
    [os.environ[k] for k in (*group, "MASTER_ADDR", "TORCHELASTIC_RUN_ID")]
    assert 0 < int(os.environ["MASTER_PORT"]) < 65536
"""


def test_the_variables_of_torchrun_are_set(two, tmp_path):
    assert judge(subject(tmp_path, VARIABLES + LOOP.replace("LOSS", "loss")), two).right


def test_a_loss_that_wants_float32_is_told_of_float64_and_its_line(two, tmp_path):
    head = "def loss(net, pair):\n    if pair[0].dtype != torch.float32:\n"
    head += "        raise RuntimeError('expected Float but found Double')\n"
    head += "    return nn.functional.cross_entropy(net(pair[0]), pair[1])\n"
    with pytest.raises(CannotJudge, match=r"in line 6 of .* in float64; next: .* .to\(x.dtype\)"):
        judge(subject(tmp_path, LOOP.replace("LOSS", "loss"), head=head), two)


ONCE = """\
    own, optimizer = ddp(net, size), sgd(net)
    for number, pair in enumerate(batches):
        optimizer.zero_grad()
        loss(own, share(pair, rank, size)).backward()
        optimizer.step()
        net.shift += 0.3 * (size > 1 and number == 0)
"""
SHIFTED = """\
class Shifted(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(6, 3)
        self.register_buffer("shift", torch.zeros(6))
    def forward(self, x):
        return self.net(torch.tanh(x + self.shift))
model = Shifted
"""


def test_a_buffer_that_is_wrong_once_is_found_once(two, tmp_path):
    """One rank's training goes on from p ranks' buffers."""
    (found,) = judge(subject(tmp_path, ONCE, head=SHIFTED), two).findings
    assert found.tensors == ["shift"] and found.steps == [1], found


LEAVES_OUT = """\
    own, optimizer = ddp(net, size), sgd(net)
    for number, pair in enumerate(batches):
        optimizer.zero_grad()
        if not (rank == 1 and number == 1):
            loss(own, share(pair, rank, size)).backward()
            optimizer.step()
"""
TURNS = """\
    own, optimizer = ddp(net, size), sgd(net)
    for pair in batches:
        part = share(pair, rank, size)
        for part in [part] * AGAIN if AGAIN else calls_of(part):
            optimizer.zero_grad()
            loss(own, part).backward()
            optimizer.step()
"""
HOOK = """\
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power
    own, optimizer = ddp(net, size), sgd(net)
    if size > 1:
        state = power.PowerSGDState(None, start_powerSGD_iter=2, min_compression_rate=0.5)
        own.register_comm_hook(state, power.powerSGD_hook)
    for pair in batches:
        optimizer.zero_grad()
        loss(own, share(pair, rank, size)).backward()
        optimizer.step()
"""
NO_VERDICT = {
    "rank 1 made no backward in step 1; wanted the same": LEAVES_OUT,
    "in batch 0 .* follow each other 2 times; wanted 1 times": TURNS.replace("AGAIN", "size"),
    "several optimizer steps in batch 0, .* batch of one optimizer step": TURNS.replace(
        "AGAIN", "0"
    ),
    r"cannot tell: .* hook torch.*powerSGD_hook compresses .*checked\(hook\)": HOOK,
}


@pytest.mark.parametrize("said", NO_VERDICT)
def test_no_verdict_has_its_reason(said, two, tmp_path):
    with pytest.raises(CannotJudge, match=said):
        judge(subject(tmp_path, NO_VERDICT[said]), two)


SCALED = """\
    own, optimizer = ddp(net, size), sgd(net)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for pair in batches:
        optimizer.zero_grad()
        scaler.scale(loss(own, share(pair, rank, size))).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        scaler.step(optimizer)
        scaler.update()
"""
PADS = """\
    from torch.utils.data import DistributedSampler
    own, optimizer = ddp(net, size), sgd(net)
    for pair in batches:
        optimizer.zero_grad()
        chosen = list(DistributedSampler(range(25), size, rank, drop_last=False))
        loss(own, tuple(t[chosen] for t in pair)).backward()
        optimizer.step()
"""
ODD = "full_batch = lambda seed: tuple(torch.cat([a, b[:1]]) for a, b in"
ODD += " zip(step_cases.full_batch(seed), step_cases.full_batch(seed + 100)))\nbatch = full_batch\n"
SAID = {
    "loss scale; clipped while scaled; next: scaler.unscale_(optimizer) first": (SCALED, ""),
    "this is DistributedSampler's padding (drop_last=False): 25 samples became 26": (
        PADS,
        "from tests.support.step import cases as step_cases\n" + ODD,
    ),
    "next: run with --ranks 3 to tell apart numbers that are equal here": (
        LOOP.replace("LOSS", "lambda *own: (2 if size > 1 else 1) * loss(*own)"),
        "",
    ),
}


@pytest.mark.parametrize("said", SAID)
def test_the_sentence_says_what_to_do(said, two, tmp_path):
    train, head = SAID[said]
    with Ranks(4, 120.0) if "ranks 3" in said else contextlib.nullcontext(two) as running:
        assert said in str(judge(subject(tmp_path, train, head=head), running))
