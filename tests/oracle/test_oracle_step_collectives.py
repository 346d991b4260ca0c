"""`oracle step`: ranks that make other collective calls get a sentence at once, no raw abort."""

import json
import time

import pytest

from tests.support.sizes import long_but

pytest.importorskip("torch", reason="PyTorch is an extra")

from refgf.oracle.step.collectives import CollectiveCall, difference, read_calls
from refgf.oracle.step.judging import judge
from refgf.oracle.step.ranks import START_S, CannotJudge, Ranks
from tests.support.step.subject import subject

LONG = pytest.mark.long
BY_SUM = """\
    optimizer = sgd(net)
    for step, pair in enumerate(batches):
        optimizer.zero_grad()
        loss(net, share(pair, rank, size)).backward()
        for i, p in enumerate(PARAMETERS if size > 1 else ()):
            if WHERE:
                dist.all_reduce(p.grad)
            p.grad /= size
        ONE
        optimizer.step()
"""
USUAL = {"WHERE": "True", "PARAMETERS": "net.parameters()", "ONE": "pass"}
BY_DDP = """\
    own, optimizer = ddp(net, size), sgd(net)
    for step, pair in enumerate(batches):
        optimizer.zero_grad()
        if rank == 0 or step == 0:
            loss(own, share(pair, rank, size)).backward()
        optimizer.step()
"""


def by_sum(**other):
    train = BY_SUM
    for key, code in (USUAL | other).items():
        train = train.replace(key, code)
    return train


WRONG = {  # gloo ends the process, or waits for ever
    r"call 1 .rank 1: allreduce of 16 float32 in step 0, line 11; rank 0: allreduce of 96": by_sum(
        WHERE="rank == 0 or i > 0"
    ),
    r"call 18 .rank 1: none, it made 17; rank 0: allreduce of 3 float32 in step 2": by_sum(
        WHERE="rank == 0 or i < 5 or step < 2"
    ),
    r"call 1 .rank 1: allreduce of 3 float32 in step 0, line 11": by_sum(
        PARAMETERS="list(net.parameters())[::1 - 2 * rank]"
    ),
    r"call 7 .rank 1: allreduce of 96 float32 in step 1, line 11; rank 0: broadcast of 3": by_sum(
        ONE="dist.broadcast(p.data, 0) if rank < 1 < size else 0"
    ),
    r"call \d+ .rank 1: none, it made \d+; rank 0: .* in step 1, line 9": BY_DDP,
}
FEW = list(WRONG)[:2]


@pytest.mark.parametrize("says", [w if w in FEW else pytest.param(w, marks=LONG) for w in WRONG])
def test_ranks_that_make_other_calls(says, tmp_path):
    path = subject(tmp_path, WRONG[says])
    with Ranks(2, timeout_s=2 * START_S) as running:
        begin_s = time.monotonic()
        says = says.replace(" .rank", r" differs between ranks .rank")
        with pytest.raises(CannotJudge, match=f"step: collective {says}.*; next: look for a call"):
            judge(path, running)
        assert time.monotonic() - begin_s < START_S


@LONG
def test_the_odd_one_of_three_ranks_comes_first(tmp_path):
    path = subject(tmp_path, by_sum(WHERE="rank != 1 or i > 0"))
    says = "rank 1: .* 16 .*; rank [02]: .* 96 |rank 2: .* 96 .*; rank 1: .* 16 "  # 0 may be late
    with Ranks(3) as running, pytest.raises(CannotJudge, match=says):
        judge(path, running)


RIGHT = {
    "groups of their own": """\
    groups = [dist.new_group([r]) for r in range(size)]
    def then():
        for _ in range(2 + rank):
            dist.all_reduce(torch.ones(3 + rank), group=groups[rank])
        time.sleep(0.4 * rank)
    loop(net, batches, rank, size, loss, then=then)
""",
    "uneven lengths": """\
    def then():
        lengths, own = [1 + r for r in range(size)], [1 + rank] * size
        sent, received = torch.ones(sum(own)), torch.empty(sum(lengths))
        dist.all_to_all_single(received, sent, lengths, own)
        time.sleep(0.4 * rank)
    loop(net, batches, rank, size, loss, then=then)
""",
    "compiled": """\
    compiled = torch.compile(net, backend="aot_eager")
    loop(compiled, batches, rank, size, loss)
""",
}


@pytest.mark.parametrize("what", long_but(RIGHT, "groups of their own"))
def test_right_calls_are_no_difference(what, two, tmp_path):
    assert judge(subject(tmp_path, RIGHT[what]), two).right


# -- what is compared


def calls(*operations, step=0, group="world", ranks=(0, 1)):
    return [CollectiveCall(operation, "", group, list(ranks), step, 1) for operation in operations]


def test_the_first_difference():
    one, other = calls("broadcast", "allreduce"), calls("broadcast", "barrier")
    assert "call 2 differs between ranks (rank 1: barrier" in difference([one, other], set())
    assert difference([one, one], {0, 1}) == difference([one, one[:1]], set()) == ""
    assert "(rank 1: none, it made 1; rank 0: allreduce" in difference([one, one[:1]], {1})
    assert difference([one, one[:1]], {0}) == "", "rank 1 may still call"


def test_a_rank_that_has_not_called_yet_is_not_the_odd_one():
    odd, usual = calls("barrier", ranks=range(3)), calls("allreduce", ranks=range(3))
    assert "(rank 1: barrier in step 0, line 1; rank 0: " in difference([usual, odd, usual], set())
    for own in ([[], odd, usual], [[], usual, odd], [odd, usual, []]):
        assert "none" not in difference(own, set())


def test_a_call_in_another_step_is_where_it_began():
    one = [*calls("allreduce"), *calls("allreduce", step=1), *calls("allreduce", step=2)]
    other = [one[0], one[2]]
    assert difference([one, other], set()) == ""
    assert "call 2 " in difference([one, other], {1})


def test_ranks_outside_a_group_make_none_of_its_calls():
    pair = calls("allreduce", group="pair", ranks=(0, 2))
    assert difference([pair, [], pair], {0, 1, 2}) == ""
    assert "rank 2: none, it made 0" in difference([pair, [], []], {1, 2})


def test_damaged_calls_are_none(tmp_path):
    path = tmp_path / "calls"
    assert read_calls(str(path)) == []
    for text in (b"[]\n", b"{}\n", b"{\n", b"\xff\n"):
        path.write_bytes(text)
        assert read_calls(str(path)) == []
    path.write_bytes(b'{"operation": "barr')
    assert read_calls(str(path)) == []
    good = {"operation": "barrier", "of": "", "group": "0", "ranks": [0, 1], "step": 0, "line": 7}
    for other in ({}, {"ranks": ["a"]}, {"ranks": 3}, {"line": "x"}, {"of": None}, {"more": 1}):
        path.write_bytes(json.dumps(good | other).encode() + b"\n")
        assert read_calls(str(path)) == ([] if other else [CollectiveCall(**good)])
    assert difference([[CollectiveCall(**good | {"ranks": [7]})]], {0}) == "", "no such rank"
