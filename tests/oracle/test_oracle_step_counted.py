"""`oracle step`: how many steps of the optimizer were judged, and gradients without a verdict."""

import pytest

pytest.importorskip("torch", reason="PyTorch is an extra")

from refgf.oracle.step.judging import judge
from refgf.oracle.step.ranks import CannotJudge
from tests.support.step.subject import filled, subject

LOOP = """\
    own, optimizer = ddp(net, size), sgd(net)
    for number, pair in enumerate(batches):
        if SKIPPED:
            continue
        optimizer.zero_grad()
        (FACTOR * loss(own, share(pair, rank, size))).backward()
        for _ in range(STEPS):
            optimizer.step()
"""
USUAL = {"SKIPPED": "False", "FACTOR": "1", "STEPS": "1"}
COUNTED = {
    "3 steps, 6 tensors": {},
    "2 of 2 optimizer steps judged in 3 batches": {"SKIPPED": "number == 1"},
    "6 of 6 optimizer steps judged in 3 batches": {"STEPS": "2"},
}
OTHER_STEPS = {
    "2 of 2 optimizer steps judged (3 on one rank) in 3 batches": (
        {"SKIPPED": "number == 1 and size > 1"},
        "update, step 1, all tensors: 0 optimizer steps on the 2 ranks, 1 on one",
    ),
    "6 of 6 optimizer steps judged (3 on one rank) in 3 batches": (
        {"STEPS": "size"},
        "update, step 0, 1, 2, all tensors: 2 optimizer steps on the 2 ranks, 1 on one",
    ),
}


def judged(folder, running, changes, head=""):
    return judge(subject(folder, filled(LOOP, USUAL, changes), head=head), running)


@pytest.mark.parametrize("said", COUNTED)
def test_right_says_how_many_optimizer_steps_were_judged(said, two, tmp_path):
    """It was "3 steps" for 2 and for 6."""
    verdict = judged(tmp_path, two, COUNTED[said])
    assert verdict.right and f"against one, {said}" in str(verdict), verdict


@pytest.mark.parametrize("said", OTHER_STEPS)
def test_other_steps_than_on_one_rank(said, two, tmp_path):
    changes, line = OTHER_STEPS[said]
    verdict = judged(tmp_path, two, changes)
    assert f"against one, {said}" in str(verdict) and [line] == [*map(str, verdict.findings)]


def test_steps_after_ranks_have_diverged_are_not_judged(two, tmp_path):
    train = filled(LOOP, USUAL, {"ddp(net, size)": "net"})
    assert "1 of 3 optimizer steps judged, 6" in str(judge(subject(tmp_path, train), two))


def test_a_step_that_calls_another_optimizers_is_one(two, tmp_path):
    head = "from torch.distributed.optim import ZeroRedundancyOptimizer\n"
    head += "def sgd(net):\n    if dist.get_world_size() == 1:\n"
    head += "        return torch.optim.SGD(net.parameters(), lr=0.1)\n"
    head += "    return ZeroRedundancyOptimizer(net.parameters(), torch.optim.SGD, lr=0.1)\n"
    verdict = judged(tmp_path, two, {}, head)
    assert verdict.right and "against one, 3 steps, 6 tensors" in str(verdict), verdict


LOSS = "def loss(net, pair): return FACTOR * nn.functional.cross_entropy(net(pair[0]), pair[1])\n"
NOTHING = {
    "float('nan')": "in step 0 the gradient of 0.weight, .* is NaN on p ranks and on one, so that",
    "float('inf')": "in step 0 the gradient of 0.weight, .* is (NaN|infinite) on p ranks and on",
    "0": "the gradient of every tensor is 0 in every step, .*; next: look at `loss`",
}


@pytest.mark.parametrize("factor", NOTHING)
def test_there_is_nothing_to_judge(factor, two, tmp_path):
    """It was "is nan, wanted nan", and "by inf of the largest element ...; next: float64"."""
    head = LOSS.replace("FACTOR", factor)
    with pytest.raises(CannotJudge, match=f"cannot tell: {NOTHING[factor]}"):
        judged(tmp_path, two, {}, head)


def test_a_tensor_without_a_gradient_is_not_updated_though_the_optimizer_makes_steps(two, tmp_path):
    changes = {"STEPS": "1 + 0 * (size > 1 and setattr(net[3].bias, 'grad', None) or 0)"}
    found = judged(tmp_path, two, changes).findings
    assert [f.text for f in found if f.stage == "update"] == ["not updated"], found


def test_a_gradient_that_train_drops_is_not_called_right(two, tmp_path):
    """On one rank, too. It was "right", with a tensor less."""
    drop = "1 + 0 * (setattr(net[0].weight, 'grad', None) or 0)"
    with pytest.raises(CannotJudge, match=r"changes gradients after backward, .* \(0.weight\)"):
        judged(tmp_path, two, {"STEPS": drop})
    declared = drop.replace("(setattr", "(communicated() or setattr")
    assert judged(tmp_path, two, {"STEPS": declared}).right, "train may decide not to use it"


def test_nan_on_p_ranks_alone_is_a_finding_of_the_gradient(two, tmp_path):
    (found,) = judged(tmp_path, two, {"FACTOR": "(float('nan') if size > 1 else 1)"}).findings
    assert found.stage == "gradient" and found.names == ["not finite"] and found.steps == [0]


OVER_BATCHES = """\
    own, optimizer = ddp(net, size), sgd(net)
    for number, pair in enumerate(batches):
        (loss(own, share(pair, rank, size)) / 2).backward()
        if number % 2:
            optimizer.step()
            optimizer.zero_grad()
"""


def test_accumulation_over_batches_is_refused(two, tmp_path):
    """It was "0.5 times what it should be = 1 / p"."""
    says = "no step of the optimizer in batch 0, 2, .* batch of one optimizer step; next: accumul"
    with pytest.raises(CannotJudge, match=says):
        judge(subject(tmp_path, OVER_BATCHES), two)
