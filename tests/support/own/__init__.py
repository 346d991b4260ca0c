"""The project's own implementation, judged as any other: the names and arguments of SPEC.md.

Module level: what needs no ranks. `on_rank(comm, case)`: what one rank of an allreduce, of lazy
allreduce, of loss scaling or of CSC ends up with.
"""

import dataclasses
import functools
import math

import numpy as np

from lab.precision.blocks import rounded as in_blocks  # noqa: F401
from refgf import ops
from refgf.comm import direct, ring
from refgf.comm import slices as comm_slices
from refgf.comm.direct import direct_allreduce
from refgf.comm.ring import ring_allreduce
from refgf.comm.schedule import collective
from refgf.exchange import chunk_choice
from refgf.exchange.dense import DenseExchange, Transport
from refgf.exchange.lazy import LazyAllreduce, Theta
from refgf.exchange.pool import Pool
from refgf.exchange.precision import LossScale, WorkingCopy
from refgf.machine import threads
from refgf.machine.underflow import Underflow
from refgf.oracle.judge.trace import LOCAL, TraceEvent
from refgf.oracle.spec.calls import number
from refgf.oracle.spec.csc.step import csc_settings, mask
from refgf.papers.jia.accumulate import accumulated_step
from refgf.papers.jia.lars import LARS, ParallelNorms
from refgf.papers.mgwfbp.merged import Groups
from refgf.training.rates import polynomial_decay, warmup
from refgf.training.sgd import MomentumSGD
from tests.support.groups_of import groups_of
from tests.support.own import daso as own_daso
from tests.support.own import diloco as own_diloco
from tests.support.own import peers as own_peers
from tests.support.own import powersgd as own_powersgd
from tests.support.own import zero as own_zero
from tests.support.own.cache import cache_levels, node_batches, node_shards  # noqa: F401
from tests.support.own.daso import (  # noqa: F401
    daso_merge,
    daso_phases,
    daso_traffic,
    heat_merge,
    heat_phases,
)
from tests.support.own.diloco import diloco_outer, diloco_traffic  # noqa: F401
from tests.support.own.layers import *  # noqa: F403  conv, max_pool, ... alexnet_step
from tests.support.own.peers import (  # noqa: F401
    hitopk_pairs_traffic,
    keep_count,
    mstopk,
    schedule_traffic,
    top_k,
    topk_traffic,
)
from tests.support.own.powersgd import (  # noqa: F401
    factor_elements,
    orthogonal,
    powersgd_traffic,
)
from tests.support.own.prescribed import Prescribed, Spec
from tests.support.own.times import *  # noqa: F403  ring_s, step_times, greedy_counts ... hitopk_s
from tests.support.own.zero import zero3_calls, zero_slice, zero_traffic  # noqa: F401
from tests.support.stacks import new_flow

ALGORITHMS = {"ring": ring.allreduce, "direct": direct.allreduce}
ALLREDUCE = {"ring": ring_allreduce, "direct": direct_allreduce}
PER_STEP = ("out.scale", "out.finite")  # one value for all ranks


def specs_of(sizes, decayed=None):
    decayed = [True] * len(sizes) if decayed is None else decayed
    return [
        Spec(f"t{i}", (int(size),), bool(decay), int(size))
        for i, (size, decay) in enumerate(zip(sizes, decayed))
    ]


def supported(case):
    """The executor has no bfloat16 on the wire, and LossScale takes powers of two only.

    Lesson 05 sends no infinity in blocks of 8-bit numbers.
    """
    powers = "scale" not in case.arguments or math.frexp(case.arguments["scale"])[0] == 0.5
    finite = case.function != "in_blocks" or np.isfinite(case["in.x"]).all()
    return case.arguments.get("wire") != "bfloat16" and powers and finite


# ---- without ranks ----


def slice_bounds(n, p):
    return [(part.start, part.stop) for part in comm_slices.slices(n, p)]


def traffic(algorithm, n, p, rank):
    sends = [
        comm_slices.length(step.send) for step in algorithm(rank, p, n) if step.send_to is not None
    ]
    return len(sends), sum(sends)


ring_traffic = functools.partial(traffic, ring.allreduce)
direct_traffic = functools.partial(traffic, direct.allreduce)


def lazy_calls(sizes, itemsize, theta_bytes):
    pool = Pool(specs_of(sizes), np.float32)
    lazy = LazyAllreduce(pool, lambda x: None, Theta(theta_bytes), f"f{itemsize}")
    for _ in range(2):  # the second step starts afresh
        announce(lazy, sizes)
    return [(call.start, call.stop) for call in lazy.calls]


def announce(lazy, sizes):
    for i in range(len(sizes)):
        lazy.ready(i)
    lazy.finish()


def underflow_share(x, wire):
    counted = Underflow(lambda x: None, wire)
    counted(x.copy())
    return counted.share


def next_scale(scale, good_steps, finite, interval=2000):
    loss_scale = LossScale(scale, dynamic=True, interval=interval)
    loss_scale.good_steps = good_steps
    loss_scale.update(finite)
    return loss_scale.scale, loss_scale.good_steps


def all_finite(arrays):
    return all(ops.unscale(x.copy(), 1) for x in arrays)


def working_copy(master, wire="float16"):
    copy = WorkingCopy(master, np.zeros_like(master), wire)
    copy.refresh()
    return copy.working


def momentum_step(w, v, g, rate, momentum, decay=0.0, decayed=None):
    decayed = np.ones(len(w), bool) if decayed is None else decayed
    optimizer = MomentumSGD(specs_of([1] * len(w), decayed), w.copy(), momentum, decay)
    optimizer.velocity[...] = v
    optimizer.step(g, rate)
    return optimizer.parameters, optimizer.velocity


def lars(w, v, sizes, momentum, trust, decay, decayed=None):
    optimizer = LARS(specs_of(sizes, decayed), w.copy(), trust, momentum, decay)
    optimizer.velocity[...] = v
    return optimizer


def lars_step(w, v, g, s):
    optimizer = lars(w, v, s.sizes, s.momentum, s.trust, s.decay, s.decayed)
    optimizer.step(g, s.rate)
    return optimizer.parameters, optimizer.velocity


def lars_ratio(w, g, trust, decay=0.0):
    return lars(w, w, [len(w)], 0.5, trust, decay).ratios(g, [[slice(0, len(w))]])[0]


def warmup_rate(step, warmup_steps, base_rate, batch_factor):
    return warmup(base_rate * batch_factor, step, warmup_steps, base_rate)


def polynomial_rate(step, steps, rate, power=2.0):
    return polynomial_decay(rate, step, steps, power)


def accumulated(parts):
    network = Prescribed(np.zeros_like(parts[0]), specs_of([len(parts[0])]))

    def body(comm):
        with new_flow(comm, network) as flow:
            accumulated_step(flow.model, flow, [(g[None], None) for g in parts], 1, 0.0)
            return flow.model.gradients.flat

    return threads.run(1, body)[0]


def lars_partial_squares(w, g, sizes, rank, p, by="slices", decayed=None):
    shares = ParallelNorms(lambda x: None, rank, p, by)
    optimizer = LARS(
        specs_of(sizes, decayed),
        w.copy(),
        norms=lambda *given: found.append(shares(*given)) or found[0],
    )
    found = []
    optimizer.step(g, 0.0)
    return found[0]


def chunk_bounds(n, chunk):
    return [(part.start, part.stop) for part in comm_slices.chunks(n, chunk)]


def importance(per_rank, chunk):
    n = len(per_rank[0])
    norms = np.zeros(len(comm_slices.chunks(n, chunk)))
    for a in per_rank:
        chunk_choice.add_norms(norms, abs(a), 0, chunk)
    return chunk_choice.importance(norms, n, chunk)


choose = chunk_choice.choose


def percent_of_step(step, steps_per_epoch, warmup_percents, percent):
    return chunk_choice.Density(percent, tuple(warmup_percents), steps_per_epoch).at(step)


# ---- with ranks ----


TRACE_NAMES = {"buffer": "keep", "reduce": "fold"}  # of a step's operations, in the file format


def traced(algorithm, p, n, dtype="float32"):
    """All ranks' schedules of an algorithm as a trace (SPEC, Files)."""
    events = []
    for rank in range(p):
        for position, step in enumerate(algorithm(rank, p, n)):
            if step.send_to is not None:
                events.append(event(rank, position, "send", step.send_to, step.send, dtype))
            operation = TRACE_NAMES.get(step.op, step.op)
            if step.receive_from is not None or operation in LOCAL:
                events.append(
                    event(rank, position, operation, step.receive_from, step.receive, dtype)
                )
    return events


def event(rank, position, operation, peer, part, dtype):
    return TraceEvent(rank, position, operation, peer, part.start, part.stop - part.start, dtype)


def on_rank(comm, case, **settings):
    """This rank's results of a case with as many ranks as comm has. -> {"out.x": array, ...}

    settings: of the stack in runs of whole steps (new_flow), beside those of the case.
    """
    rank, a = comm.Get_rank(), case.arguments
    if case.function in ("ring_allreduce", "direct_allreduce"):
        x = case["in.x"][rank].copy()
        collective(comm, ALGORITHMS[case.function.split("_")[0]], a["wire"])(x)
        return {"out.x": x}
    if case.function in own_peers.SUMS:
        return own_peers.sum_on_rank(comm, case)
    if case.function in own_peers.RUNS:
        return own_peers.run_on_rank(comm, case)
    if case.function in ("daso_run", "heat_run"):
        return own_daso.on_rank(comm, case)
    if case.function == "diloco_run":
        return own_diloco.on_rank(comm, case)
    if case.function == "zero_run":
        return own_zero.on_rank(comm, case)
    if case.function == "powersgd_run":
        return own_powersgd.on_rank(comm, case)
    if case.function in ("lazy_allreduce", "merged_allreduce"):
        return lazily(comm, case)
    if case.function == "scaled_allreduce":
        x, scale = case["in.x"][rank] * np.float32(a["scale"]), LossScale(a["scale"])
        pool = Pool(specs_of([x.size]), x.dtype)
        pool.flat[...] = x
        sums = collective(comm, direct.allreduce, a["wire"])
        announce(DenseExchange(pool, Transport(sums), scale), [x.size])
        return {"out.x": pool.flat}
    sparse = case.function in ("csc_run", "sparse_warmup_run")
    return (csc_run if sparse else scaled_run)(comm, case, **settings)


def lazily(comm, case):
    a, pool = case.arguments, Pool(specs_of(case["in.sizes"]), np.float32)
    pool.flat[...] = case["in.x"][comm.Get_rank()]
    send = collective(comm, ALGORITHMS[a["order"]], a["wire"])
    merged = "counts" in a and Groups(tuple(groups_of(a["counts"])))
    grouping = merged or Theta(number(a["theta_bytes"]))
    announce(LazyAllreduce(pool, send, grouping, a["wire"]), case["in.sizes"])
    return {"out.x": pool.flat}


@dataclasses.dataclass(frozen=True)
class Listed(chunk_choice.Density):
    """Densities as a case lists them, step by step."""

    listed: tuple = ()

    def at(self, step):
        percent, dense = self.listed[step]
        return percent, bool(dense)


def density_of(case):
    a = case.arguments
    if "percents" in a:
        return Listed(50.0, listed=tuple(map(tuple, a["percents"])))
    return chunk_choice.Density(a["percent"], tuple(a["warmup_percents"]), a["steps_per_epoch"])


def rate_of(case, step):
    a = case.arguments
    if "warmup_steps" not in a:
        return a["rate"]
    return warmup_rate(step, a["warmup_steps"], a["rate"], a["batch_factor"])


def csc_run(comm, case, **settings):
    """With warm-up for a case of sparse_warmup_run."""
    s, rank = csc_settings(case), comm.Get_rank()
    decayed = None if s.decayed is None else [bool(v) for v in s.decayed]
    network = Prescribed(case["in.w"], specs_of(s.sizes, decayed))
    flow = new_flow(
        comm,
        network,
        allreduce=ALLREDUCE[s.order],
        wire=s.wire,
        theta_bytes=s.theta_bytes,
        form=s.form,
        chunk=s.chunk,
        density=density_of(case),
        after=s.after,
        momentum=s.momentum,
        weight_decay=s.decay,
        trust=s.trust,
        loss_scale=LossScale(s.scale, dynamic=True, interval=s.scale_interval),
        **settings,
    )
    rows = []
    with flow, np.errstate(over="ignore", invalid="ignore"):
        for t, step in enumerate(case["in.g"]):
            chosen = mask(flow.csc.chosen, len(flow.csc.chunks))
            flow.step(step[rank][None], None, 1, rate_of(case, t))
            kept = {
                f"out.{name}": array.copy()
                for name, array in flow.csc.residual.current_state().items()
            }
            state = {"out.w": flow.model.parameters.flat.copy(), "out.chosen": chosen, **kept}
            rows.append(
                {
                    **state,
                    "out.scale": np.float64(flow.model.loss_scale.scale),
                    "out.finite": np.uint8(flow.result.accepted),
                }
            )
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def scaled_run(comm, case, **settings):
    """With LARS for a case of scaled_lars_run."""
    a, rank = case.arguments, comm.Get_rank()
    sizes = case.tensors.get("in.sizes", np.array([len(case["in.w"])])).tolist()
    network = Prescribed(case["in.w"], specs_of(sizes, case.tensors.get("in.decayed")))
    more = {"trust": a["trust"], "weight_decay": a["decay"]} if "trust" in a else {}
    flow = new_flow(
        comm,
        network,
        allreduce=direct_allreduce,
        wire=a["wire"],
        momentum=a["momentum"],
        loss_scale=LossScale(a["scale"], dynamic=True, interval=a["interval"]),
        half_weights=True,
        **more,
        **settings,
    )
    rows = []
    with flow, np.errstate(over="ignore", invalid="ignore"):
        for step in case["in.g"]:
            flow.step(step[rank][None], None, 1, a["rate"])
            rows.append(
                {
                    "out.w": flow.model.parameters.flat.copy(),
                    "out.scale": np.float64(flow.model.loss_scale.scale),
                    "out.finite": np.uint8(flow.result.accepted),
                }
            )
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def ranks_of(case):
    return case["in.g"].shape[1] if "in.g" in case.tensors else len(case["in.x"])


def joined(rows):
    """{"out.x": array} of all ranks -> arrays with an axis `rank`, after an axis `step`."""
    axis = 1 if {"out.finite", "out.kept", "out.v"} & rows[0].keys() else 0
    outputs = {
        name: rows[0][name] if name in PER_STEP else np.stack([row[name] for row in rows], axis)
        for name in rows[0]
    }
    # loss scaling without CSC: the case has one copy of w
    if "out.chosen" not in outputs and "out.finite" in outputs:
        assert all(np.array_equal(row["out.w"], rows[0]["out.w"]) for row in rows)
        outputs["out.w"] = rows[0]["out.w"]
    return outputs
