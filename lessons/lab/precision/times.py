"""Lesson 05's times: a step and single calls, with float32 and with float16 on the wire.

    found = times.measure(run, data)

Like a cluster, the step is that of the full AlexNet around a virtual accelerator. On this machine
as it is, a small network computes for real. Both give the same rows, in this machine's seconds:

    off       Timing of the step without exchange
    computed  on a GPU: {type in which a step computes: its Timing}, nothing sent
    steps     {wire: {"step", "exchange", "bytes", "predicted_s", "own", "own_share"}}
    calls     {elements: {wire: Timing, "predicted_s": {wire: seconds}}}
    elements  gradients of the network

own is the exchange without a network: casts, additions, unscaling, one copy of each message.

Prediction of a call of n gradients on p ranks: 2 (p-1) (alpha + beta times the bytes of a slice),
plus own seconds per gradient. Prediction of a step: the step without exchange, plus one call.
"""

from functools import partial

import numpy as np

import kit
from kit import flow, images, step_times, virtual
from kit.experiment import processor
from refgf import ops
from refgf.comm import direct, ring
from refgf.comm.schedule import collective
from refgf.comm.slices import chunks
from refgf.exchange.precision import LossScale
from refgf.machine.accelerator import TYPICAL, InstantComm
from refgf.oracle.definitions import ring_traffic
from refgf.predict.cost import Link, ring_allreduce_s
from refgf.training.step import replica

NETWORK, SCALE = "alexnet", 2.0**10
WIRES = {"float32": None, "float16": np.float16}  # of the ring
DIRECT = "float16, direct"
SHORT, LONG = 256, 2**22  # elements of the shortest and the longest call
LENGTHS = (SHORT, 2**12, 2**16, 2**20, LONG)
IN_A_ROW = {SHORT: 20, 2**12: 20, 2**16: 10}  # calls of a repeat: one short call is too short
DRAWN = 2**16  # random gradients, repeated


def measure(run: kit.Run, data) -> dict:
    """All times; see the module's docstring."""
    run.section("Half the bytes")
    off, steps, n = (emulated_steps if run.regime.like else real_steps)(run, data)
    own, link, rows = in_memory(run, n), run.regime.goodput(), {}
    for name, (step, sent) in steps.items():
        itemsize = 2 if WIRES[name] else 4
        assert sent == itemsize * ring_traffic(n, run.size, run.rank)[1], (name, sent)
        call_s = link and predicted_call_s(run, n, itemsize, link, own[name].median_s / n)
        rows[name] = {
            "step": step,
            "exchange": step - off,
            "bytes": sent,
            "predicted_s": link and off.median_s + call_s,
            "own": own[name],
            "own_share": own[name].median_s / step.median_s,
        }
    calls = {length: time_calls(run, length) for length in run.quick(LENGTHS[:3], LENGTHS)}
    for length, row in calls.items():
        row["predicted_s"] = link and {
            name: predicted_call_s(run, length, 2 if wire else 4, link, own[name].median_s / n)
            for name, wire in WIRES.items()
        }
    found = {"off": off, "steps": rows, "calls": calls, "elements": n}
    show(run, found)
    if run.on_gpu:
        found["computed"] = computed(run, data)
    return found


def emulated_steps(run: kit.Run, data):
    """(step without exchange, {wire: (step, bytes)}, gradients) of the full network."""
    count, model, steps = run.quick(2, 2, 7), virtual.model(run, NETWORK), {}
    off = virtual.without_exchange_of(run, model, count)
    for name, wire in WIRES.items():
        how, warmup = {"wire": wire, "loss_scale": scale_of(wire)}, int(bool(wire))
        with virtual.flow(run, NETWORK, shared=model, **how) as stack:
            run.comm.reset()
            timing = virtual.time_steps(run, stack, count, warmup)
            steps[name] = timing, run.comm.bytes // (warmup + count)
    return off, steps, model.gradients.flat.size


def real_steps(run: kit.Run, data):
    """The same of a small network that computes for real on this machine's cores."""
    count, steps = run.quick(4, 12, 30), {}
    off, _ = flow.without_exchange(run, data, images.steps(run, data, count))
    for name, wire in WIRES.items():
        with flow.new(run, data, wire=wire, loss_scale=scale_of(wire)) as stack:
            run.comm.reset()
            timing = flow.time_steps(run, stack, images.steps(run, data, count))
            steps[name] = timing, run.comm.bytes // count
            n = stack.model.gradients.flat.size
    return off, steps, n


def computed(run: kit.Run, data) -> dict:
    """{type: Timing} of a step that computes in it, without exchange: what tensor cores gain."""
    found, count = {}, run.quick(2, 12, 30)
    for dtype in (np.float32, np.float16):
        model = replica(images.network(run, data, dtype=dtype), seed=images.SEED)
        steps = images.steps(run, data, count)
        found[np.dtype(dtype).name], _ = step_times.without_exchange(run, model, steps)
    run.say(f"a step computed in {'; in '.join(f'{name}: {t}' for name, t in found.items())}")
    return found


def scale_of(wire) -> LossScale:
    """float16 needs a loss scale, whose removal is part of the exchange."""
    return LossScale(SCALE if wire else 1.0)


def in_memory(run: kit.Run, n: int) -> dict:
    """{wire: Timing} of a ring's work on n gradients without a network; all ranks at once."""
    comm, x = InstantComm(run.rank, run.size), run.xp.empty(n, np.float32)
    drawn = np.random.default_rng(run.rank).normal(0, TYPICAL, DRAWN).astype(np.float32)
    drawn = run.array(drawn)
    sums = {name: collective(comm, ring.allreduce, wire) for name, wire in WIRES.items()}
    mine = {name: [] for name in sums}

    def work(name: str) -> None:
        sums[name](x)
        ops.unscale(x, 1 / scale_of(WIRES[name]).scale)

    for _ in range(1 + run.quick(2, 2, 5)):
        for name in sums:
            for block in chunks(n, DRAWN):
                x[block] = drawn[: block.stop - block.start]
            mine[name].append(run.timed(work, name))
    return {name: run.slowest(times_s[1:]) for name, times_s in mine.items()}  # the first allocates


def time_calls(run: kit.Run, n: int) -> dict:
    """{wire: Timing} of one allreduce of n zeros, float16 by both schedules.

    Like a cluster, ranks sleep while they wait: a rank that polls would delay others on its core.
    """
    comm = ops.background(run.comm) if run.regime.like else run.comm
    x, count = run.xp.zeros(n, np.float32), IN_A_ROW.get(n, 1)
    sums = {name: collective(comm, ring.allreduce, wire) for name, wire in WIRES.items()}
    sums[DIRECT] = collective(comm, direct.allreduce, np.float16)

    def in_a_row(allreduce):
        for _ in range(count):
            allreduce(x)

    functions = {name: partial(in_a_row, allreduce) for name, allreduce in sums.items()}
    timings = run.alternate(functions, run.quick(2, 5, 9))
    return {name: timing.divided(count) for name, timing in timings.items()}


def predicted_call_s(run: kit.Run, n: int, itemsize: int, link: Link, own_s: float) -> float:
    """Seconds of a ring allreduce. own_s: the processor's, per gradient."""
    return ring_allreduce_s(run.size, n, itemsize, link) + own_s * n


def show(run: kit.Run, found: dict) -> None:
    """The two tables, in the emulated cluster's time."""
    factor, rows = run.regime.dilation, found["steps"]
    run.say(
        f"{found['elements']:,} gradients; a step without exchange: {found['off'].divided(factor)}"
    )
    run.table(
        ["on the wire", "bytes of rank 0", "step", "predicted", "exchange", "own", "here"],
        [
            [
                name,
                f"{row['bytes']:,}",
                row["step"].divided(factor),
                "" if row["predicted_s"] is None else kit.seconds(row["predicted_s"] / factor),
                kit.seconds(row["exchange"].median_s / factor),
                f"{row['own_share']:.0%} {processor(row['own_share'])}".rstrip(),
                kit.seconds(row["step"].median_s),
            ]
            for name, row in rows.items()
        ],
    )
    run.say("own: the exchange without a network, the processor's part, as a share of the step")
    memory = ", ".join(f"{name} {row['own'].divided(factor)}" for name, row in rows.items())
    run.say(f"without a network: {memory}")
    if factor != 1:
        run.say("here: the step in this machine's time")
    run.say("\nsingle calls:")
    run.table(
        ["gradients", "float32", "predicted", "float16", "predicted", "ratio"],
        [[f"{n:,}", *row_of_calls(row, factor)] for n, row in found["calls"].items()],
    )


def row_of_calls(row: dict, factor: float) -> list[str]:
    """Both wires' times, each with its prediction, and the ratio of the medians."""
    cells = []
    for name in WIRES:
        predicted_s = row["predicted_s"] and row["predicted_s"][name]
        predicted = kit.seconds(predicted_s / factor) if predicted_s else ""
        cells += [str(row[name].divided(factor)), predicted]
    return [*cells, f"{row['float16'].median_s / row['float32'].median_s:.2f}"]
