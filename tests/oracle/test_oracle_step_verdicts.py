"""`oracle step`: what is right, wrong, cannot be told, and is refused, near the limits of each."""

import re

import pytest

pytest.importorskip("torch", reason="PyTorch is an extra")

from refgf.oracle.step.judging import judge
from refgf.oracle.step.ranks import CannotJudge, Ranks
from tests.support.step.subject import subject

LBFGS = """\
    own, optimizer = ddp(net, size), torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=2)
    for pair in batches:
        def closure():
            optimizer.zero_grad()
            value = loss(own, share(pair, rank, size))
            value.backward()
            return value
        optimizer.step(closure)
"""
SAM = """\
    own, optimizer = ddp(net, size), sgd(net)
    for pair in batches:
        optimizer.zero_grad()
        loss(own, share(pair, rank, size)).backward()
        with torch.no_grad():
            there = [0.05 * p.grad for p in net.parameters()]
            torch._foreach_add_(list(net.parameters()), there)
        optimizer.zero_grad()
        loss(own, share(pair, rank, size)).backward()
        with torch.no_grad():
            torch._foreach_sub_(list(net.parameters()), there)
        optimizer.step()
"""
SPARSE = """\
def model():
    return nn.Sequential(nn.EmbeddingBag(6, 8, sparse=True), nn.Linear(8, 3))
def batch(seed):
    drawn = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(0, 3, n, generator=drawn) for n in ((24, 5), (24,)))
"""
HALF = """\
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
def sum_in(kind, net, size):
    for p in net.parameters() if size > 1 else ():
        half = p.grad.to(kind)
        dist.all_reduce(half)
        p.grad.copy_(half.float() / size)
"""
BY_HOOK = """\
    own, optimizer = ddp(net, size), sgd(net)
    if size > 1:
        own.register_comm_hook(None, fp16_compress_hook)
    for pair in batches:
        optimizer.zero_grad()
        (FACTOR * loss(own, share(pair, rank, size))).backward()
        optimizer.step()
"""
BY_HAND = """\
    optimizer = adam(net)
    for pair in batches:
        optimizer.zero_grad()
        (FACTOR * loss(net, share(pair, rank, size))).backward()
        sum_in(torch.bfloat16, net, size)
        nn.utils.clip_grad_norm_(net.parameters(), 0.05)
        optimizer.step()
"""


@pytest.fixture(scope="module", params=[2, 3])
def ranks(request):
    with Ranks(request.param) as running:
        yield running


@pytest.mark.parametrize("train, wire", [(BY_HOOK, "float16"), (BY_HAND, "bfloat16")])
def test_gradients_communicated_in_16_bits(train, wire, ranks, tmp_path):
    right = judge(subject(tmp_path, train, "r.py", HALF + "FACTOR = 1\n"), ranks)
    assert right.right and f"communicated in {wire}" in str(right), right
    wrong = judge(subject(tmp_path, train, "w.py", HALF + "FACTOR = 2\n"), ranks)
    assert all(abs(f.factor - 2) < 0.01 for f in wrong.findings) and wrong.findings, wrong


def test_signs_are_not_called_communicated_in_16_bits(ranks, tmp_path):
    signs = "[p.grad.sign_() for p in net.parameters() if size > 1]"
    train = BY_HAND.replace("torch.bfloat16", "torch.float32")
    train = train.replace("nn.utils.clip_grad_norm_(net.parameters(), 0.05)", signs)
    wrong = judge(subject(tmp_path, train, "s.py", HALF + "FACTOR = 1\n"), ranks)
    assert wrong.findings and "communicated in" not in str(wrong), wrong


CAST = """\
    optimizer = adam(net)
    for pair in batches:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            value = loss(net, OWN) * (FACTOR if size > 1 else 1)
        value.backward()
        reduce_gradients(net, size)
        optimizer.step()
"""
SHARE = "share(pair, rank, size)"


@pytest.mark.parametrize("factor", [1.0, 1.03])
def test_in_16_bits_rounding_may_hide_a_mistake(factor, two, tmp_path):
    train = CAST.replace("OWN", SHARE).replace("FACTOR", str(factor))
    with pytest.raises(CannotJudge, match="cannot tell: .* next: float32 without autocast"):
        judge(subject(tmp_path, train), two)


@pytest.mark.parametrize(
    "own, names",
    [("share(pair, 0, 2)", ["same samples"]), ("tuple(t[rank:][:9] for t in pair)", [])],
)
def test_in_16_bits_no_cause_is_made_up(own, names, two, tmp_path):
    """The same samples on each rank, and lost ones, were a decay, a factor and a stale gradient."""
    train = CAST.replace("OWN", f"{own} if size > 1 else pair").replace("FACTOR", "1")
    (found,) = judge(subject(tmp_path, train), two).findings
    assert found.names == names and names or "no known pattern" in found.text, found


def test_a_factor_of_all_tensors_and_steps_is_one_finding(two, tmp_path):
    train = CAST.replace("OWN", SHARE).replace("FACTOR", "1.3")
    (found,) = judge(subject(tmp_path, train), two).findings
    assert abs(found.factor - 1.3) < 0.02 and not found.names, found


@pytest.mark.parametrize(
    "train, why", [(LBFGS, "step calls backward, as LBFGS's"), (SAM, "parameters change between")]
)
def test_a_step_without_one_gradient_is_refused(train, why, two, tmp_path):
    with pytest.raises(CannotJudge, match=f"{why}.*wanted gradients at the batch's parameters"):
        judge(subject(tmp_path, train), two)


def test_sparse_gradients(two, tmp_path):
    train = "    loop(net, batches, rank, size, lambda *own: FACTOR * loss(*own))\n"
    assert judge(subject(tmp_path, train, "r.py", SPARSE + "FACTOR = 1\n"), two).right
    (found,) = judge(subject(tmp_path, train, "w.py", SPARSE + "FACTOR = 2\n"), two).findings
    assert found.all_tensors and found.names == ["p"], found


USUAL = """\
    optimizer = sgd(net, momentum=0.9)
    for number, pair in enumerate(batches):
        optimizer.zero_grad()
        LOCAL
        reduce_gradients(net, size)
        CHANGE
        if not (rank == 1 and number == SKIPPED):
            optimizer.step()
        with torch.no_grad():
            for p in net.parameters():
                p.mul_(1 - AFTER * size)
"""
ONE = "loss(net, share(pair, rank, size)).backward()"
DECAY = "communicated(); [p.grad.add_(p.detach(), alpha=0.05 * size) for p in net.parameters()]"
CALLS = "calls = list(calls_of(share(pair, rank, size)))\n        "
CALLS += "for part in calls[:3 - (size > 1)]: (loss(net, part) / 3).backward()"
FLAT = "flat = torch.cat([p.grad.flatten() for p in net.parameters()]).flip(0)\n        start = 0"
FLAT += "\n        for p in net.parameters() if size > 1 else ():"
FLAT += "\n            p.grad.copy_(flat[start : start + p.numel()].view_as(p)); start += p.numel()"
CAUSES = {
    "rank 1 makes no step of the optimizer": {"SKIPPED": "1"},
    "plus 0.05 times the weights: weight decay in the gradient": {"CHANGE": DECAY},
    "off by -0.001001 times the weights: weight decay outside": {"AFTER": "0.001"},
    "every rank computes the gradient of the same samples": {
        "LOCAL": "loss(net, share(pair, 0, size)).backward()"
    },
    "2 backward calls on each of the p ranks, 3 on one: is one left out?": {"LOCAL": CALLS},
    "the right elements at other places": {"CHANGE": FLAT},
}


@pytest.mark.parametrize("said", CAUSES)
def test_a_common_mistake_has_one_line(said, two, tmp_path):
    train = USUAL
    for key, usual in {"SKIPPED": "None", "LOCAL": ONE, "CHANGE": "pass", "AFTER": "0"}.items():
        train = train.replace(key, CAUSES[said].get(key, usual))
    found = judge(subject(tmp_path, train), two).findings
    steps = 1 if "no step" in said else 3
    assert said in str(found[0]) and len(found[0].steps) == steps and len(found) <= 2, found


OWN_CODE = """\
    own, optimizer = WRAP, sgd(net)
    for pair in batches:
        optimizer.zero_grad()
        loss(own, share(pair, rank, size)).backward()
        REDUCE
        CHANGE
        optimizer.step()
"""
BY_DDP = {"WRAP": "ddp(net, size)", "REDUCE": "pass"}
BY_SUM = {"WRAP": "net", "REDUCE": "reduce_gradients(net, size)"}
ADD = "[p.grad.add_(p.detach(), alpha=0.05 * TIMES) for p in net.parameters()]"
CLIP = "norm = sum(p.grad.square().sum() for p in net.parameters()).sqrt()\n"
CLIP += "        [p.grad.mul_(0.05 * TIMES / norm) for p in net.parameters()]"
CALL = r"; next: call refgf.oracle.step.communicated\(\) in train, after the sum over ranks"


def own_code(folder, running, way, change, times="1"):
    train = OWN_CODE.replace("CHANGE", change.replace("TIMES", times))
    for key, code in way.items():
        train = train.replace(key, code.replace("TIMES", times))
    return judge(subject(folder, train), running)


def test_where_own_code_hides_the_sum_the_message_says_what_to_call(two, tmp_path):
    """A norm hides a factor of what it divides."""
    with pytest.raises(CannotJudge, match=f"cannot tell: .* on p ranks as on one .*{CALL}"):
        own_code(tmp_path, two, BY_SUM, CLIP)
    assert own_code(tmp_path, two, BY_SUM, f"communicated(); {CLIP}").right
    assert own_code(tmp_path, two, BY_DDP, CLIP).right, "DDP's sum is seen"


BY_LARGE_NORM = "nn.utils.clip_grad_norm_(net.parameters(), 100.0)"
THIRD = "[p.grad.div_(3) for p in net.parameters()]"
ZERO = "net[0].weight.grad.zero_()"


@pytest.mark.parametrize("way", [BY_SUM, BY_DDP])
def test_a_gradient_is_judged_where_communicated_is_called(way, two, tmp_path):
    """It was right, because one rank makes the same mistake."""
    (found,) = own_code(tmp_path, two, way, f"{THIRD}; communicated()").findings
    assert found.all_tensors and found.factor == pytest.approx(1 / 3), found
    (found,) = own_code(tmp_path, two, way, f"{ZERO}; communicated()").findings
    assert "0.weight: zero: no gradient arrives" in str(found), found


@pytest.mark.parametrize("change", [THIRD, ZERO, f"{THIRD}; {BY_LARGE_NORM}"])
def test_own_code_after_the_sum_of_ddp_may_hide_a_factor(change, two, tmp_path):
    with pytest.raises(CannotJudge, match=f"cannot tell: .* on p ranks as on one .*{CALL}"):
        own_code(tmp_path, two, BY_DDP, change)


BEFORE_SUM = {"WRAP": "net", "REDUCE": f"{ADD}; reduce_gradients(net, size)"}
BY_NORM = "nn.utils.clip_grad_norm_(net.parameters(), 0.05)"
IN_GROUPS = "[p.grad.add_(p.detach(), alpha=0.05 * p.ndim) for p in net.parameters()]"
BY_VALUE = "nn.utils.clip_grad_value_(net.parameters(), 0.01)"


@pytest.mark.parametrize(
    "way, change",
    [
        *((BY_SUM, ADD), (BY_DDP, ADD), (BEFORE_SUM, "pass"), (BY_SUM, BY_VALUE)),
        *((BY_SUM, f"{ADD}; {BY_NORM}"), (BY_DDP, f"{ADD}; {BY_NORM}"), (BY_SUM, IN_GROUPS)),
    ],
)
def test_own_code_that_hides_no_factor_is_right(way, change, two, tmp_path):
    """There is no place for communicated() where decay is added before the sum over ranks."""
    verdict = own_code(tmp_path, two, way, change)
    assert verdict.right, verdict


def test_a_factor_is_named_next_to_decay_before_the_sum(two, tmp_path):
    way = BEFORE_SUM | {"REDUCE": f"{ADD}; reduce_gradients(net, size, None)"}
    found = own_code(tmp_path, two, way, "pass").findings
    assert found and all(f.stage == "gradient" for f in found), found


@pytest.mark.parametrize("way", [BY_SUM, BY_DDP])
def test_decay_by_own_code_p_times_as_strong(way, two, tmp_path):
    (found,) = own_code(tmp_path, two, way, ADD, "size").findings
    called = re.search("2 times one rank's = p" + (CALL if way is BY_SUM else "$"), str(found))
    assert called and found.steps == [0, 1, 2], found


@pytest.mark.parametrize(
    "change, times, said",
    [
        (f"{ADD}; {BY_NORM}", "size", "gradient plus 0.1 times the weights: .*, 2 times .* = p;"),
        (f"{BY_NORM}; {ADD}", "size", "plus 0.05 times the weights: .*, 2 times one rank's = p$"),
        (ADD, "(size == 1)", "plus -0.05 times the weights: .*, 0 times one rank's$"),
    ],
)
def test_decay_next_to_clipping_has_a_factor(change, times, said, two, tmp_path):
    (found,) = own_code(tmp_path, two, BY_SUM, change, times).findings
    assert re.search(said, str(found)) and found.steps == [0, 1, 2], found


def test_clipping_by_own_code_p_times_as_large(two, tmp_path):
    found = own_code(tmp_path, two, BY_SUM, CLIP, "size").findings
    assert found and all(re.search(f"times what it should be{CALL}", str(f)) for f in found)
    (found,) = own_code(tmp_path, two, BY_SUM, f"communicated(); {CLIP}", "size").findings
    assert found.stage == "clip" and found.names == ["1 / p"], found


def test_a_tensor_in_no_optimizer_is_not_judged(two, tmp_path):
    """Its gradient is never zeroed, and never used."""
    train = "    own, optimizer = ddp(net, size), torch.optim.SGD(net[0].parameters(), lr=0.1)\n"
    train += "    for pair in batches:\n        optimizer.zero_grad()\n"
    train += "        loss(own, share(pair, rank, size)).backward()\n        optimizer.step()\n"
    assert "in 2 of 6 tensors" in str(judge(subject(tmp_path, train), two))
