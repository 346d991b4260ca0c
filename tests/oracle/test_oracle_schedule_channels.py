"""Several thread blocks at one end of a channel, and the limits of public executors."""

import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest

from refgf.oracle.foreign.untrusted import BadFile
from refgf.oracle.schedules import msccl
from refgf.oracle.schedules.executors import EXECUTORS
from refgf.oracle.schedules.form import Plan, PlanStep, Port
from tests.support.schedule_cases import program, report, verdict

SENDS = {(0, 0): (1, -1, [("s", "i0", "i0"), ("s", "i0", "i0")])}


def with_order(plan, *pairs):
    """pairs: ((rank, index of a step), index of the step on that rank that it waits for)."""
    ranks = [list(steps) for steps in plan.ranks]
    for (rank, index), other in pairs:
        after = (*ranks[rank][index].after, (rank, other))
        ranks[rank][index] = replace(ranks[rank][index], after=after)
    return replace(plan, ranks=tuple(map(tuple, ranks)))


def receiving(*waits):
    """Rank 1 receives two messages of one channel in two thread blocks."""
    taken = {(1, tb): (-1, 0, [("r", "i0", f"o{tb}")]) for tb in (0, 1)}
    return with_order(program(SENDS | taken, coll="custom"), *waits)


@pytest.mark.parametrize("first", (0, 1))
def test_messages_meet_by_what_the_steps_wait_for_and_not_by_the_file(first):
    """In one order and the other: no race, but no executor keeps two thread blocks apart."""
    plan = receiving(((1, 1 - first), first))
    judged = verdict(plan)
    assert judged.kind == "shared channel" and len(judged.found) == 1
    says = "rank 1, tb 0, 1: two thread blocks of rank 1 receive from rank 0 on channel 0; wanted"
    assert str(judged.found[0]).startswith(says)
    assert verdict(replace(plan, shared=())).kind == "no value"


def test_what_no_step_orders_is_a_race_and_names_the_shared_end():
    judged = verdict(receiving())
    assert judged.kind == "race" and "on the channel of rank 1, tb 0" in judged.found[0].text
    assert "two thread blocks of rank 1" in report(receiving(), judged)


def test_two_senders_and_an_end_that_no_step_uses():
    """A thread block keeps the position of the channel that it names, used or not."""
    sends = {(0, tb): (1, -1, [("s", "i0", "i0")]) for tb in (0, 1, 2)}
    taken = {(1, 0): (-1, 0, [("r", "i0", f"o{k % 2}") for k in range(3)])}
    plan = with_order(program(sends | taken, coll="custom"), ((0, 1), 0), ((0, 2), 1))
    assert "3 thread blocks of rank 0 send to rank 1" in str(verdict(plan).found[0])
    idle = {**SENDS, (0, 1): (1, -1, [("cpy", "i0", "s0")])}
    taken = {(1, 0): (-1, 0, [("r", "i0", "o0"), ("r", "i0", "o1")])}
    assert verdict(program(idle | taken, coll="custom")).kind == "shared channel"


def test_a_message_is_no_order_of_the_receives():
    """Block 1 gets the second message in this run, but it could have taken the first."""
    plan = receiving()
    answer = PlanStep(2, 0, "s", sends=(Port(0, 1),), chunks=1)
    waited = PlanStep(1, 0, "r", receives=(Port(1, 1),), chunks=1)
    one, two = plan.ranks
    one = (one[0], replace(one[1], after=(*one[1].after, (0, 2))), waited)
    two = (*two, replace(answer, after=((1, 0),)))
    assert verdict(replace(plan, ranks=(one, two), shared=())).kind == "race"


def test_a_length_is_wrong_only_where_the_order_is_forced():
    plan = receiving(((1, 1), 0))
    two = replace(plan.ranks[1][0], chunks=2)
    wrong = replace(plan, ranks=(plan.ranks[0], (two, plan.ranks[1][1])), shared=())
    assert verdict(wrong).kind == "unmatched"
    free = replace(wrong, ranks=(wrong.ranks[0], (two, receiving().ranks[1][1])))
    assert [f.kind for f in verdict(free).found] == ["race", "unmatched"]


def outcomes(plan):
    """{(pairs of send and receive, what is left, does it end?)} of all orders of the steps."""
    nodes = [(r, i, s) for r, i, s in plan.steps()]
    before = [{(r, j) for r, j in s.after} for _, _, s in nodes]
    found, seen, todo = set(), set(), [(frozenset(), (), frozenset())]
    while todo:
        done, queues, met = todo.pop()
        if (done, queues, met) in seen:
            continue
        seen.add((done, queues, met))
        stuck = True
        for (r, i, s), needs in zip(nodes, before):
            if (r, i) in done or not needs <= done:
                continue
            waiting, pairs = {w: q for w, q in queues}, set(met)
            wire = next(((p.peer, r, p.channel) for p in s.receives), None)
            if wire and not waiting.get(wire):
                continue
            stuck = False
            if wire:
                pairs.add((waiting[wire][0], (r, i)))
                waiting[wire] = waiting[wire][1:]
            for p in s.sends:
                wire = r, p.peer, p.channel
                waiting[wire] = (*waiting.get(wire, ()), (r, i))
            todo.append((done | {(r, i)}, tuple(sorted(waiting.items())), frozenset(pairs)))
        if stuck:
            found.add((met, queues, len(done) == len(nodes)))
    return found


def random_plan(rng):
    """Three ranks with three lanes each; equal ends of channels; any order of the steps."""
    lanes = {(r, tb): [] for r in range(3) for tb in range(3)}
    for _ in range(rng.integers(2, 6)):
        source, dest = rng.permutation(3)[:2].tolist()
        port = int(rng.integers(2)) * bool(rng.random() < 0.3)
        lanes[source, int(rng.integers(2))].append({"op": "s", "sends": (Port(dest, port),)})
        lanes[dest, int(rng.integers(1, 3))].append({"op": "r", "receives": (Port(source, port),)})
    ranks = []
    for r in range(3):
        steps, length = [], sum(len(lanes[r, tb]) for tb in range(3))
        for tb in range(3):
            order = rng.permutation(len(lanes[r, tb]))
            for number, k in enumerate(order):
                after = [(r, len(steps) - 1)] if number else []
                if rng.random() < 0.4 and length > 1:
                    after.append((r, int(rng.integers(length))))
                after = tuple(a for a in dict.fromkeys(after) if a[1] != len(steps))
                steps.append(PlanStep(tb, number, **lanes[r, tb][k], after=after, chunks=1))
        ranks.append(tuple(steps))
    return Plan("chakra", "random", "", False, ((0, 0, 0),) * 3, tuple(ranks))


SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 8))]


@pytest.mark.parametrize("seed", SEEDS)
def test_every_order_of_random_plans_ends_as_the_verdict_says(seed):
    rng, kinds = np.random.default_rng(seed), []
    for _ in range(250):
        plan = random_plan(rng)
        kind, every = verdict(plan).kind, outcomes(plan)
        kinds.append(kind)
        wanted = {"no value": {(True, 1)}, "deadlock": {(False, 1)}}.get(kind)
        if wanted:
            assert {(ends, len(every)) for *_, ends in every} == wanted, plan
        else:
            assert kind == "race" and len(every) > 1, plan
    assert min(map(kinds.count, ("no value", "deadlock", "race"))) > 10


def two_gpus(gap=0, chan=0, count=2, copies=0):
    """An allreduce of two ranks: exchange in one thread block, addition in another one."""
    blocks = []
    for gpu in (0, 1):
        wait = 'depid="-1" deps="-1" hasdep="{}"/>'
        moved = [("s", "i", "i"), ("r", "i", "s")]
        steps = [line(s, *each, count) + wait.format(s) for s, each in enumerate(moved)]
        added = line(0, "re", "s", "i", count) + 'depid="0" deps="1" hasdep="0"/>'
        more = [line(1 + s, "cpy", "i", "i", count) + wait.format(0) for s in range(copies)]
        blocks.append(
            f'<gpu id="{gpu}" i_chunks="{count}" o_chunks="0" s_chunks="{count}">'
            f'<tb id="0" send="{1 - gpu}" recv="{1 - gpu}" chan="{chan}">{"".join(steps)}</tb>'
            f'<tb id="{1 + gap}" send="-1" recv="-1" chan="0">{added}{"".join(more)}</tb></gpu>'
        )
    return (
        f'<algo name="x" proto="Simple" nchannels="{chan + 1}" nchunksperloop="{count}" ngpus="2" '
        'coll="allreduce" inplace="1" outofplace="0" minBytes="0" maxBytes="0">'
        f"{''.join(blocks)}</algo>"
    )


def line(number, kind, src, dst, count):
    buffers = f'srcbuf="{src}" srcoff="0" dstbuf="{dst}" dstoff="0"'
    return f'<step s="{number}" type="{kind}" {buffers} cnt="{count}" '


WHOLE = "RCCL refuses more than {} (ROCm/rccl 0cbce2a"
TOO_MANY = [  # what the file has, the note, and the executors that refuse it
    ({"count": 71}, None, 0),
    ({"count": 72}, "72 chunks in a step (cnt) (gpu 0, tb 0, step 0): " + WHOLE.format(71), 3),
    ({"copies": 63}, None, 0),
    ({"copies": 64}, "65 steps in a thread block (gpu 0, tb 1): " + WHOLE.format(64), 2),
    ({"copies": 256}, "257 steps in a thread block", 3),
    ({"chan": 31}, None, 0),
    ({"chan": 32}, "33 channels (gpu 0, tb 0): MSCCL's executor for NCCL refuses more than 32", 2),
    ({"chan": 128}, "129 channels (gpu 0, tb 0): " + WHOLE.format(128), 3),
    ({"gap": 1}, "gpu 0 has thread blocks 0, 2: RCCL and MSCCL refuse this file, because tb 1", 0),
]


@pytest.mark.parametrize(("has", "note", "who"), TOO_MANY)
def test_what_executors_refuse_is_a_note_of_a_right_plan(has, note, who):
    plan = msccl.parse("x", two_gpus(**has).encode())
    assert verdict(plan).kind == "right"
    said = report(plan, verdict(plan))
    assert ("every executor known here refuses this file" in said) == (who == 3 or "gap" in has)
    assert len(plan.notes) == (note is not None) + (who == 3 or "gap" in has)
    if note:
        assert note in said
        assert sum(each.commit in plan.notes[0] for each in EXECUTORS) == who


def test_many_thread_blocks_on_a_channel_and_many_elements():
    root = ET.fromstring(two_gpus())
    for gpu in root:
        for tb in range(2, 70):
            gpu.append(ET.fromstring(ET.tostring(gpu[1])))
            gpu[tb].attrib.update(id=str(tb), send="-1", recv=str(1 - int(gpu.get("id"))))
            gpu[tb][:] = [ET.Element("step", gpu[1][0].attrib | {"type": "nop"})] * 60
            for number, each in enumerate(gpu[tb]):
                gpu[tb][number] = ET.Element("step", each.attrib | {"s": str(number)})
    notes = msccl.parse("x", ET.tostring(root)).notes
    assert [note.partition(" (gpu 0")[0] for note in notes] == [
        "70 thread blocks on a gpu",
        "69 thread blocks that send, or that receive, on one channel of a gpu",
        "4156 elements of XML that one gpu reads",
        "every executor known here refuses this file: the verdict is on its text",
    ]


def test_numbers_are_read_before_they_are_compared():
    for old, new in (('chan="0"', 'chan="x"'), ('cnt="2"', 'cnt="1e3"'), ('id="0"', 'id=""')):
        with pytest.raises(BadFile, match="wanted a whole number"):
            msccl.parse("x", two_gpus().replace(old, new).encode())
