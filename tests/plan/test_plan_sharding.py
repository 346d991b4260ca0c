"""FSDP, ZeRO-1, DiLoCo, PowerSGD: by hand, by SimGrid, and by what PyTorch's FSDP2 sends."""

from dataclasses import replace
from itertools import pairwise
from math import prod

import pytest

from refgf.comm import ring
from refgf.plan import platforms, replay, report, sharding, step_times
from refgf.plan.fabric import Fabric, of_node
from refgf.plan.question import NCCL, Question
from refgf.plan.sharding import GATHER, REDUCE, STRATEGIES, Queue, Sharded, Unit, fsdp_s
from refgf.plan.step_times import StepTimes
from refgf.predict.cost import Link, ring_allreduce_s
from tests.plan.test_plan_replay import needs_simgrid

SIZES = (1000, 500_000, 2_000_000, 70_000)
SHAPES = (1000,), (1000, 500), (2000, 1000), (70, 10, 100)
READY = tuple(zip((0.010, 0.011, 0.020, 0.021), SIZES))
STEP = StepTimes("small", "this test", READY, 0.002, shapes=SHAPES)
LINK, INSIDE = Link(30e-6, 8e-10), Link(3e-6, 1e-10)
ASKED = Question(STEP, Fabric("net", "this test", LINK, INSIDE), 16, 4)
UNITS = [Unit(1.0, 2.0, 10), Unit(1.0, 2.0, 20)]
TENTH = {GATHER: lambda nbytes: nbytes / 10, REDUCE: lambda nbytes: nbytes / 5}


@pytest.mark.parametrize(
    "how, end_s, calls",
    [
        # forward waits until 1 for the first unit, and until 3 for the second, which ends at 4
        (
            {},
            14.0,
            [(GATHER, 1), (GATHER, 3), (GATHER, 6), (GATHER, 7), (REDUCE, 12), (REDUCE, 14)],
        ),
        ({"reshard": False}, 12.0, [(GATHER, 1), (GATHER, 3), (REDUCE, 10), (REDUCE, 12)]),
        (
            {"prefetch": False},
            18.0,
            [(GATHER, 1), (GATHER, 4), (GATHER, 7), (REDUCE, 13), (GATHER, 14), (REDUCE, 18)],
        ),
    ],
)
def test_a_step_of_two_units_by_hand(how, end_s, calls):
    queue = Queue(TENTH, 1)
    assert fsdp_s(UNITS, queue, **how) == pytest.approx(end_s)
    assert [(kind, end) for kind, _, _, end in queue.calls] == calls


def test_units_hold_all_gradients_and_all_of_the_time():
    for count in (1, 2, 3, 4, 24):
        units = sharding.units_of(ASKED, count)
        assert sum(unit.elements for unit in units) == STEP.elements
        seconds = sum(unit.forward_s + unit.backward_s for unit in units)
        assert seconds == pytest.approx(0.021) and len(units) <= count
        assert units[-1].elements >= SIZES[0]  # the last in forward has the first gradient


def test_the_units_of_a_transformer_are_its_blocks():
    """Llama-2-7B by hand: a table of words, 32 blocks, a norm with another table."""
    block = 4 * 4096**2 + 3 * 4096 * 11_008 + 2 * 4096
    words = 32_000 * 4096
    step = step_times.of_workload("llama27b", 1, 1.2, "this test")
    asked = replace(ASKED, step=step)
    sizes = [unit.elements for unit in sharding.units_of(asked)]
    assert sizes == [words, *[block] * 32, words + 4096]
    assert "Sharded: 34 units (--units), 1 micro-batch a step" in sharding.text(
        sharding.answer(asked, Sharded())
    )
    assert len(sharding.units_of(asked, 8)) <= 8
    assert step_times.of_workload("resnet50", 1, 1.0, "this test").units == ()


def test_a_free_network_leaves_the_step_of_one_rank():
    free = replace(ASKED, fabric=Fabric("net", "this test", Link(0, 0), Link(0, 0)))
    for name in STRATEGIES:
        for asked in (free, replace(ASKED, size=1, ranks_per_node=1)):
            found = sharding.seconds(name, asked, Sharded(accumulate=3), 4)
            assert found == pytest.approx(3 * 0.021 + 0.002), name


def test_zero1_and_diloco_send_what_a_sum_sends():
    """One bucket: half of a ring after backward, half after the optimiser."""
    asked, n = replace(ASKED, size=7, ranks_per_node=1), STEP.elements
    sum_s = ring_allreduce_s(7, 7 * n, 4, LINK) / 7 + 2 * 6 * LINK.alpha_s * (1 - 1 / 7)
    zero1_s = sharding.seconds("ZeRO-1", asked, Sharded(), 4)
    assert zero1_s == pytest.approx(sharding.seconds("DDP", asked, Sharded(), 4), rel=1e-9)
    assert zero1_s == pytest.approx(0.021 + sum_s + 0.002)
    often, seldom = (sharding.seconds("DiLoCo", asked, Sharded(inner_steps=h), 4) for h in (1, 100))
    assert often == pytest.approx(zero1_s)
    assert seldom - 0.023 == pytest.approx((often - 0.023) / 100)


def test_powersgd_sends_factors_and_votes_are_two_bytes():
    """One bucket after backward: a vector as it is, and 4 (rows + columns) of each matrix."""
    asked = replace(ASKED, size=7, ranks_per_node=1)
    sent = 1000 + 4 * (1500 + 3000 + 800)
    for name, nbytes in (("PowerSGD", 4 * sent), ("votes", 2 * STEP.elements + 4)):
        sums_s = 2 * LINK.beta_s_per_byte * nbytes * 6 / 7 + 2 * 12 * LINK.alpha_s
        assert sharding.seconds(name, asked, Sharded(), 4) == pytest.approx(0.023 + sums_s)
    held = sharding.answer(asked, Sharded())["strategies"]
    for name, more in (("PowerSGD", 4), ("votes", 2)):
        assert held[name]["memory_bytes"]["buffers_bfloat16"] == (4 + more) * STEP.elements
    unknown = replace(asked, step=replace(STEP, shapes=()))
    shown = sharding.text(sharding.answer(unknown, Sharded()))
    assert "PowerSGD     needs a network's name as --model" in shown


def test_a_named_network_has_the_shapes_of_its_gradients():
    for name in ("resnet50", "alexnet", "llama27b"):
        step = step_times.of_workload(name, 1, 1.2 if name == "llama27b" else 100.0, "this test")
        assert [prod(shape) for shape in step.shapes] == [n for _, n in step.ready]


def test_memory_of_a_rank():
    n, found = STEP.elements, sharding.answer(ASKED, Sharded())["strategies"]
    held = {name: row["memory_bytes"] for name, row in found.items()}
    for name, (whole, adam) in {
        "DDP": (1, 1),
        "ZeRO-1": (1, 16),
        "FSDP": (16, 16),
        "HSDP": (4, 4),
    }.items():
        assert held[name]["weights"] == held[name]["gradients"] == 4 * -(-n // whole)
        assert held[name]["optimizer"] == 8 * -(-n // adam)
    assert held["no prefetch"]["buffers_float32"] < held["FSDP"]["buffers_float32"]
    assert held["no reshard"]["buffers_bfloat16"] == 2 * (n + 2 * max(SIZES))
    assert held["DiLoCo"]["optimizer"] == 16 * n


def test_intervals_hold_their_step_and_nccl_s_halves_are_a_ring_s():
    for asked in (ASKED, replace(ASKED, allreduce=NCCL, overlap=0.8)):
        for row in sharding.answer(asked, Sharded(units=3))["strategies"].values():
            for wire in sharding.WIRES:
                assert row[wire]["low_s"] <= row[wire]["step_s"] <= row[wire]["high_s"]
    shown = sharding.text(sharding.answer(ASKED, Sharded())).splitlines()
    assert max(map(len, shown)) <= 100 and len(shown) == 3 + len(STRATEGIES) + 3
    with pytest.raises(ValueError, match="--allreduce tree; wanted ring or nccl"):
        sharding.answer(replace(ASKED, ranks_per_node=1, allreduce="tree"), Sharded())
    with pytest.raises(ValueError, match="at least 1 of each; next: --units 24"):
        Sharded(units=0)


def test_the_memory_of_a_large_network_has_room():
    """Adam's states and DiLoCo's parameters of Llama-2-7B take 107.8 GB: no two numbers touch."""
    step = StepTimes("llama", "this test", ((0.5, 1), (1.0, 6_738_415_615)))
    found = sharding.answer(replace(ASKED, step=step), Sharded())
    row = next(each for each in sharding.text(found).splitlines() if each.startswith("DiLoCo"))
    assert row.split()[-5:] == ["27.0", "27.0", "107.8", "27.0", "27.0"]


@needs_simgrid
@pytest.mark.parametrize("size", [3, 4])
def test_simgrid_takes_as_long_for_the_calls_of_a_step(size):
    asked = replace(ASKED, size=size, ranks_per_node=1)
    units = [Unit(0.0, 0.0, elements) for elements in (300_001, 100_003)]
    half = sharding.half_s(asked)
    queue = Queue({GATHER: half, REDUCE: half}, 4)
    end_s = fsdp_s(units, queue)
    schedules = {GATHER: ring.allgather, REDUCE: ring.reduce_scatter}

    def all_calls(rank, size, n):
        return [
            step
            for kind, elements, _, _ in queue.calls
            for step in schedules[kind](rank, size, elements)
        ]

    platform = platforms.build("one-link", size, 1, LINK, LINK, contention=False)
    assert replay.simulate(all_calls, 1, platform, 0.0, "off") == pytest.approx(end_s, rel=1e-3)


def fsdp2(rank):
    """{how: [(kind, elements)] of the second step}; HSDP on 2 nodes of 2."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    from tests.support.gloo import Calls

    results = {}
    for how in ("FSDP", "no reshard", "HSDP"):
        grid = (2, 2) if how == "HSDP" else (4,)
        mesh = init_device_mesh("cpu", grid, mesh_dim_names=("apart", "inside")[-len(grid) :])
        sizes = [(8, 64), (64, 12), (12, 16), (16, 4)]
        model = torch.nn.Sequential(*(torch.nn.Linear(*each, bias=False) for each in sizes))
        for layer in (*model, model):
            fully_shard(layer, mesh=mesh, reshard_after_forward=how != "no reshard")
        for _ in range(2):
            with Calls() as calls:
                model(torch.ones(2, 8)).sum().backward()
        results[how] = calls.found
    return results


@pytest.mark.long
def test_pytorch_s_fsdp2_makes_the_same_calls_in_the_same_order():
    """Counted over gloo on 4 ranks."""
    pytest.importorskip("torch")
    from tests.support.gloo import on_gloo

    for how, calls in on_gloo(4, fsdp2)[0].items():
        queue = Queue(TENTH, 4)
        units = [Unit(1.0, 2.0, elements) for elements in (512, 768, 192, 64)]
        fsdp_s(units, queue, reshard=how != "no reshard")
        expected = []
        for kind, elements, _, _ in queue.calls:
            expected.append((kind, elements))
            if how == "HSDP" and kind == REDUCE:
                expected.append(("allreduce", elements // 2))
        assert calls == expected, how


@pytest.mark.parametrize(
    "memory, nbytes, said",
    [
        ((), 1e15, ""),
        ((16,), 16 * 2**30, ""),
        ((16,), 16 * 2**30 + 1, "does not fit: 17 GB of a GPU's 16 GiB"),
        ((40, 80), 50e9, "fits only a GPU of 80 GiB, of 40 or 80"),
        ((40, 80), 135e9, "does not fit: 135 GB of a GPU's 40 or 80 GiB"),
    ],
)
def test_a_rank_that_a_gpu_has_no_memory_for_is_told(memory, nbytes, said):
    assert replace(ASKED.fabric, memory=memory).room(nbytes) == said


def test_what_does_not_fit_is_told_beneath_its_row(monkeypatch):
    """Llama-2-7B on A100: DDP holds 20 bytes a parameter, 135 GB; FSDP of 16 ranks fits."""
    monkeypatch.setattr(report, "curve", lambda *arguments: {})  # slow, and not in the table
    monkeypatch.setattr(report.judged, "steps", dict)
    step = step_times.of_workload("llama27b", 1, 1.2, "this test")
    asked = replace(ASKED, step=step, fabric=of_node("dgx-a100"))
    shown = sharding.text(sharding.answer(asked, Sharded())).splitlines()
    after = {row.split()[0]: following for row, following in pairwise(shown)}
    assert after["DDP"].strip() == "does not fit: 135 GB of a GPU's 40 or 80 GiB"
    assert after["FSDP"].startswith("no prefetch")
    at_once = replace(step, ready=((step.ready[-1][0], step.elements),))  # nothing to choose
    table = report.step_table(report.answer(replace(asked, step=at_once)))
    assert any("fits only a GPU of 80 GiB" in row for row in table) and max(map(len, table)) <= 100
