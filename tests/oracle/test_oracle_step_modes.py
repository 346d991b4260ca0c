"""`oracle step`: `train` freezes parameters and puts layers in evaluation mode, in some steps."""

import pytest

pytest.importorskip("torch", reason="PyTorch is an extra")

from refgf.oracle.step.judging import judge
from refgf.oracle.step.ranks import CannotJudge
from tests.support.step.subject import filled, subject

LOOP = """\
    FIRST
    own = ddp(net, size)
    optimizer = torch.optim.SGD(CHOSEN, lr=0.1, momentum=0.9)
    for number, pair in enumerate(batches):
        EACH
        optimizer.zero_grad()
        (FACTOR * loss(own, share(pair, rank, size))).backward()
        SUM
        optimizer.step()
"""
USUAL = {
    "FIRST": "pass",
    "CHOSEN": "net.parameters()",
    "EACH": "pass",
    "FACTOR": "1",
    "SUM": "pass",
}
FREEZE = "net[0].requires_grad_(False)"
TRAINED = "[p for p in net.parameters() if p.requires_grad]"
UNFREEZE = """if number == 1:
            net[0].requires_grad_(True)
            own = ddp(net, size)
            optimizer.add_param_group({'params': list(net[0].parameters())})"""
TOGGLE = "[p.requires_grad_(p.ndim == 1 or number % 2 == 1) for p in net.parameters()]"
BY_SUM = "size > 1 and [dist.all_reduce(p.grad, dist.ReduceOp.SUM) or p.grad.div_(size)"
BY_SUM += " for p in net.parameters() if p.grad is not None]"
FROZEN = {
    "all in the optimizer": {"FIRST": FREEZE},
    "those that are trained": {"FIRST": FREEZE, "CHOSEN": TRAINED},
    "the last layer": {"FIRST": "net[-1].requires_grad_(False)", "CHOSEN": TRAINED},
    "loaded into a frozen layer": {"FIRST": f"{FREEZE}; net[0].weight.mul_(3)"},
    "unfrozen later": {"FIRST": FREEZE, "CHOSEN": TRAINED, "EACH": UNFREEZE},
    "other ones in each step": {"FIRST": "ddp = lambda net, size: net", "EACH": TOGGLE}
    | {"SUM": BY_SUM},
}
MODEL = "def model():\n    return nn.Sequential(nn.Linear(6, 16), LAYER, nn.Linear(16, 3))\n"
BATCH_NORM, DROPOUT = (
    MODEL.replace("LAYER", own) for own in ("nn.BatchNorm1d(16)", "nn.Dropout()")
)


def judged(folder, running, changes, head=""):
    return judge(subject(folder, filled(LOOP, USUAL, changes), head=head), running)


@pytest.mark.parametrize("which", FROZEN)
def test_tensors_that_train_freezes_are_not_judged(which, two, tmp_path):
    """It was "zero: no gradient arrives", or a KeyError."""
    verdict = judged(tmp_path, two, FROZEN[which])
    assert verdict.right, verdict
    found = judged(tmp_path, two, FROZEN[which] | {"FACTOR": "size"}).findings
    assert found and found[0].factor == pytest.approx(2) and "p" in found[0].names, found


def test_tensors_that_p_ranks_alone_freeze_are_judged(two, tmp_path):
    found = judged(tmp_path, two, {"FIRST": f"size > 1 and {FREEZE}"}).findings
    assert "0.weight, 0.bias: zero: no gradient arrives" in str(found[0]), found


def test_zero_gradients_are_not_called_those_of_the_whole_batch(two, tmp_path):
    """They are the same on every rank, and 0 times the right ones."""
    (found,) = judged(tmp_path, two, {"FACTOR": "0"}).findings
    assert "zero: no gradient arrives" in str(found)


@pytest.mark.parametrize("head", [BATCH_NORM, DROPOUT])
@pytest.mark.parametrize(
    "mode", ["net.eval()", "[own.eval() for own in net if not isinstance(own, nn.Linear)]"]
)
def test_layers_that_train_sets_to_eval_are_judged_so(head, mode, two, tmp_path):
    """Was WRONG with BatchNorm, and refused with dropout."""
    verdict = judged(tmp_path, two, {"EACH": mode}, head)
    assert verdict.right, verdict
    (found,) = judged(tmp_path, two, {"EACH": mode, "FACTOR": "size"}, head).findings
    assert found.names == ["p"] and found.all_tensors, found


def test_layers_in_training_mode_are_refused(two, tmp_path):
    with pytest.raises(
        CannotJudge, match=r"BatchNorm1d.*next: --batch-norm whole.*or .eval\(\) on them"
    ):
        judged(tmp_path, two, {"EACH": "net.train()"}, BATCH_NORM)
    with pytest.raises(CannotJudge, match=r"draws random numbers, .* or .eval\(\) on it in train"):
        judged(tmp_path, two, {"EACH": "net.train()"}, DROPOUT)


def test_another_mode_than_on_one_rank_is_named_where_it_changes_gradients(two, tmp_path):
    mode = "net.train(rank == 1)"
    found = judged(tmp_path, two, {"EACH": mode}, DROPOUT).findings
    said = "0, 1, 2 in another mode, train() or eval(), on rank 1 than on one rank"
    assert any(said in str(f) for f in found), found
    assert judged(tmp_path, two, {"EACH": mode}).right, "no layer here has modes that differ"
