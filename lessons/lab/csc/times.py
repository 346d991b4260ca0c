"""Lesson 06: the time of a step against density, around a virtual accelerator.

    times = sweep(run, norms)           norms (C,): how uneven a real network's chunks are
    exchanges = small(run, train)       by themselves, of a network of 90,000 gradients

Two stacks are timed, both without overlap: the dense one, and CSC at one density after another.
Each is first timed without a network and without sleeps. That is the processor's own work, and the
second half of the prediction. All ranks do it at once and compete for cores and memory:

    step = step without exchange + messages (bytes, link) + own work (norms, packing, casts, update)
"""

from functools import partial

import numpy as np

import kit
from kit import flow, images, virtual
from kit.experiment import in_turn, say_star, star
from lab.csc import exchange_times
from refgf.engine.residual import FusedResidual
from refgf.exchange.chunk_choice import as_density, choose
from refgf.exchange.lazy import Theta
from refgf.exchange.momentum_correction import CSCSettings
from refgf.exchange.precision import LossScale
from refgf.machine.accelerator import InstantComm
from refgf.oracle.definitions import csc_payload_bytes, direct_traffic, ring_traffic
from refgf.papers.scaling import systems
from refgf.predict.cost import ring_line
from refgf.training.step import Replica

NETWORK, THETA_BYTES, SCALE = "alexnet", 2**22, 1024.0
PERCENTS = ([25], [1], [100, 50, 25, 5, 1])  # quick, default, full; and --density


def sweep(run: kit.Run, norms) -> dict:
    """One row for the dense exchange (density None), and one for each density."""
    n = virtual.workload(run, NETWORK).parameters
    chunk = run.quick(flow.chunk_elements(n), systems.CHUNK)
    chunks, count = flow.number_of_chunks(n, chunk), run.quick(1, 3, 5)
    run.section(f"A step of AlexNet without overlap, {n:,} gradients")
    run.say(f"{chunks} chunks of {chunk:,} gradients, the last one shorter (chosen)")
    run.say("AlexNet's 62,378,344 gradients have 1904 chunks of 32,768, 1903 of them full: that is")
    run.say("GradientFlow's stated number. ResNet-50 has 779 and a rest, where 797 are stated.")
    percents = sorted({*run.quick(*PERCENTS), run.options.density}, reverse=True)
    stacks = {"dense": [None], "csc": percents}
    model = virtual.model(run, NETWORK, norms)  # one for all, because new pools take seconds
    at_once = virtual.pace(run, NETWORK).dilated(virtual.AT_ONCE)
    instant = virtual.sharing(model, when=at_once)
    idle = virtual.without_exchange_of(run, instant, count)  # nothing slept, or sent
    no_exchange = virtual.without_exchange_of(run, model, count)
    rows = []
    for densities in stacks.values():
        csc = densities[0] and CSCSettings(densities[0], chunk=chunk, residual=FusedResidual)
        comm = InstantComm(run.rank, run.size)
        with new(run, model, csc, comm=comm, when=at_once) as stack:
            exchange_times.keep_own_norms(stack)
            begin(stack)
            works = [run.time(at(stack, density), count, warmup=0) for density in densities]
        with new(run, model, csc) as stack:
            begin(stack)
            for density, work in zip(densities, works):
                step = in_turn(run, {"step": at(stack, density)}, count)["step"]["timing"]
                require_bytes(run, stack, chunks if density else None)
                rows.append(
                    {
                        "density": density,
                        "bytes": run.comm.bytes,
                        "payload": payload(stack, n, chunk) if density else 2 * n,
                        "calls": len(stack.calls),
                        "step": step,
                        "exchange": step - no_exchange,
                        "own": work - idle,
                    }
                )
    for row in rows:
        predict(run, row, no_exchange.median_s, chunk)
    show(run, rows, no_exchange)
    return {"rows": rows, "alone": no_exchange, "elements": n, "chunks": chunks, "chunk": chunk}


def new(run: kit.Run, model: Replica, csc, **more):
    """GradientFlow with a float16 ring and lazy allreduce."""
    how = {"wire": np.float16, "loss_scale": LossScale(SCALE), "grouping": Theta(THETA_BYTES)}
    return virtual.flow(run, NETWORK, shared=model, csc=csc, **how, **more)


def begin(stack) -> None:
    """The first step allocates. With CSC it is dense, and the second one allocates."""
    network = stack.model.network
    pace, network.pace = network.pace, network.pace.dilated(virtual.AT_ONCE)  # nothing is slept
    for _ in range(1 + bool(stack.csc)):
        stack.step(*virtual.NOTHING, rate=0.0)
        exchange_times.require_accepted(stack)
    network.pace = pace


def at(stack, density: float | None):
    """One step of this stack as a function; CSC chooses for this density from now on."""
    if density is not None:
        stack.csc.density = as_density(density)
        stack.csc.chosen = choose(stack.csc.importance, density)
    return partial(stack.step, *virtual.NOTHING, rate=0.0)


def require_bytes(run: kit.Run, stack, chunks: int | None) -> None:
    """The ring sends the packed chunks, the direct allreduce norms and flag: nothing else."""
    lengths = [call.stop - call.start for call in stack.calls]
    wanted = sum(2 * ring_traffic(k, run.size, run.rank)[1] for k in lengths)
    if chunks is not None:
        wanted += 8 * direct_traffic(chunks + 1, run.size, run.rank)[1]
    if run.comm.bytes != wanted:
        got = f"CSC on rank {run.rank}: got {run.comm.bytes} bytes sent"
        raise AssertionError(f"{got}; wanted {wanted}")


def payload(stack, n: int, chunk: int) -> int:
    """Bytes of one message with the chosen chunks, the norms and the flag."""
    return csc_payload_bytes(stack.csc.chosen, n, chunk, "float32", "float16")


def small(run: kit.Run, train) -> dict:
    """Exchanges of the network that is trained: as many chunks as the full AlexNet, and fewer."""
    tensors = images.network(run, train).tensors
    n = images.parameter_count(run, train)
    run.section(f"The exchange of a small network, {n:,} gradients")
    chunk = flow.chunk_of(run, n)
    kinds = exchange_times.kinds_of(n, run.options.density, [chunk, 16 * chunk])
    line = ring_line(run.size, run.regime.goodput())
    rows = exchange_times.compare(run, tensors, kinds, line, run.quick(2, 7))
    exchange_times.show(run, rows)
    return {"rows": rows, "elements": n}


# ---- the prediction ----


def predict(run: kit.Run, row: dict, no_exchange_s: float, chunk: int) -> None:
    """Add predicted_s, its error, and the share of the step that is the processor's own work."""
    ready, _ = virtual.ready(run, NETWORK)
    system = systems.System("CSC", 2, THETA_BYTES, None, row["density"], chunk, overlap=False)
    messages = systems.step(ready, system, ring_line(run.size, run.regime.goodput()), no_exchange_s)
    row["messages_s"] = messages.step_s - no_exchange_s
    row["predicted_s"] = messages.step_s + row["own"].median_s
    row["error"] = abs(row["predicted_s"] / row["step"].median_s - 1)
    row["own_share"] = row["own"].median_s / row["step"].median_s


def show(run: kit.Run, rows: list[dict], no_exchange: kit.Timing) -> None:
    factor, table = run.regime.dilation, []
    for row in rows:
        table.append(
            [
                in_words(row["density"]) + star(row["own_share"]),
                kit.number_of_bytes(row["bytes"]),
                row["step"].divided(factor),
                kit.seconds(row["predicted_s"] / factor),
                kit.seconds(max(0.0, row["exchange"].median_s) / factor),
                kit.seconds(max(0.0, row["own"].median_s) / factor),
                kit.seconds(row["step"].median_s),
            ]
        )
    run.say(f"a step without exchange: {no_exchange.divided(factor)} in the cluster's time")
    head = ["density", "sent", "step", "predicted", "exchange", "own work", "step, this machine"]
    run.table(head, table)
    run.say("sent: by rank 0 in a step; exchange: step minus step without exchange")
    run.say("own work: what the processor adds without a network, from norms to update, while all")
    run.say("ranks work at once.")
    say_star(run, rows, "this step is the processor's own work")
    run.say(kit.errors_in_words((row["predicted_s"], row["step"].median_s) for row in rows))


def in_words(density: float | None) -> str:
    return "dense" if density is None else f"{density:g} %"
