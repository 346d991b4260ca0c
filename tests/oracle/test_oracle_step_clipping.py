"""`oracle step`: p ranks and one that clip otherwise, and clipping that changes nothing."""

import pytest

pytest.importorskip("torch", reason="PyTorch is an extra")

from refgf.oracle.step.judging import judge
from tests.support.step import mistakes as step_mistakes
from tests.support.step.subject import subject

LOOP = """\
    own, optimizer = ddp(net, size), sgd(net, momentum=0.9)
    every, alone = list(net.parameters()), size == 1
    clip, by_value = nn.utils.clip_grad_norm_, nn.utils.clip_grad_value_
    for number, pair in enumerate(batches):
        optimizer.zero_grad()
        loss(own, share(pair, rank, size)).backward()
        BEFORE
        optimizer.step()
        AFTER
"""
BY_HAND = "torch._foreach_mul_(grads, 0.05 / float(torch.cat([g.flatten() for g in grads]).norm()))"
TO = "clipped to a norm of 0.05"
WRONG = {  # what is called before the optimizer's step: what is said of which steps
    "if alone: clip(every, 0.05)": ("not clipped; on one rank: " + TO, "012"),
    "if alone or number: clip(every, 0.05)": ("not clipped; on one rank: " + TO, "0"),
    "if alone: by_value(every, 0.01)": (
        "not clipped; on one rank: clipped by value at 0.01",
        "012",
    ),
    "if not alone: clip(every, 0.05)": (TO + "; on one rank: not clipped", "012"),
    f"communicated(); grads = [p.grad for p in every]\n        if not alone: {BY_HAND}": (
        TO + "; on one rank: not clipped",
        "012",
    ),
    "clip(every, 0.05 * size)": ("max_norm is 0.1, 2 times one rank's 0.05 = p", "012"),
    "by_value(every, 0.01 * size)": (
        "clipped by value at 0.02, 2 times one rank's 0.01 = p",
        "012",
    ),
    "if rank == 0: clip(every, 0.05)": (
        f"clipped on rank 0, not on rank 1; on one rank: {TO}",
        "0",
    ),
    "[clip(own, 0.05) for own in ([every] if alone else every)]": (
        "each tensor by its own norm; on one rank: " + TO,
        "012",
    ),
    "clip(every if alone else every[-2:], 0.05)": (
        "clipped by another factor in each tensor, not in 0.weight, 0.bias, 1.weight, 1.bias; "
        "on one rank: " + TO,
        "012",
    ),
    "communicated(); [p.grad.mul_(size) for p in every]": (
        "2 times one rank's before the optimizer = p",
        "012",
    ),
}
SHARDED = "norm of each rank's shard alone"
RIGHT = [
    ("pass", "clip(every, 0.05)"),  # after the optimizer's step
    ("if not alone: clip(every, 100.0)", "pass"),
    ("clip(every, 100.0 * size)", "pass"),
    ("[clip(own, 0.05) for own in every]", "pass"),
]


def clipped(folder, running, before, after="pass"):
    return judge(subject(folder, LOOP.replace("BEFORE", before).replace("AFTER", after)), running)


@pytest.mark.parametrize("before", WRONG)
def test_how_p_ranks_clip_and_how_one_does(before, two, tmp_path):
    """Where p ranks did not clip, it was "right"; a wrong cause was "by a norm of 1, it is 1"."""
    said, steps = WRONG[before]
    (found,) = clipped(tmp_path, two, before).findings
    line = f"clip, step {', '.join(steps)}, all tensors: {said}"
    assert str(found) == line, found


@pytest.mark.parametrize("before, after", RIGHT)
def test_clipping_that_changes_nothing_is_right(before, after, two, tmp_path):
    verdict = clipped(tmp_path, two, before, after)
    assert verdict.right, verdict


def test_the_norm_of_a_shard_has_one_name(two):
    """Own gradients, which FSDP's hooks do not show, had the norm 0, which explained any factor."""
    verdict = judge(f"{step_mistakes.__file__}:clip_by_own_shard", two)
    (found,) = verdict.findings
    assert found.names == [SHARDED], found
    assert "the whole gradient is" in str(found) and str(found).endswith(f"(by rank) = {SHARDED}")


def test_another_norm_than_one_rank_has_a_name(two, tmp_path):
    before = "clip(every, 0.01, norm_type=2.0 if alone else float('inf'))"
    (found,) = clipped(tmp_path, two, before).findings
    assert found.names == ["norm_type inf"], found


SCALED = """\
    own, optimizer = ddp(net, size), sgd(net)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for pair in batches:
        optimizer.zero_grad()
        scaler.scale(loss(own, share(pair, rank, size))).backward()
        scaler.unscale_(optimizer)
        every = list(net.parameters())
        [p.grad.add_(p.detach(), alpha=0.05) for p in every]
        norm = torch.cat([p.grad.flatten() for p in every]).norm()
        nn.utils.clip_grad_norm_(every, 0.05)
        torch._foreach_mul_([p.grad for p in every], 0.2 / float(norm))
        [p.grad.sub_(p.detach(), alpha=0.05) for p in every]
        scaler.step(optimizer)
        scaler.update()
"""


def test_rounding_of_a_norm_where_decay_cancels_elements(two, tmp_path):
    """A norm computed before clipping is one rank's own, and differs by rounding."""
    verdict = judge(subject(tmp_path, SCALED), two)
    assert verdict.right, verdict
