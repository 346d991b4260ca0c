"""Z1 to Z3: ZeRO-1, where each rank holds the optimiser's state of one slice.

reduce-scatter of the gradients     rank r holds the sum of slice r+1 (mod p)
M1 on that slice                    with its velocity, which no other rank has
allgather of the parameters         all ranks hold all of them again
"""

from typing import Any

import numpy as np

from refgf.oracle.spec.calls import Outputs, same_bits, select, steps_of
from refgf.oracle.spec.case import Case, Given
from refgf.oracle.spec.draw import Draw, pick, random_source
from refgf.oracle.spec.momentum.sgd import momentum_step
from refgf.oracle.spec.ring import Arrays, ring_allreduce, rounded_fold, shape_says, slice_bounds
from refgf.oracle.spec.ring_steps import ring_traffic
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement, differs_with

# ---- Z1: who owns what ----


def zero_slice(n: int, p: int, rank: int) -> tuple[int, int]:
    """Z1: rank r owns slice r+1 (mod p) of the n elements (R1): after the reduce-scatter it holds
    their sum, it alone has the optimiser's state of them, and it updates them. With n < p some
    slices are empty, and their owners have no state.

    Source: Rajbhandari et al. 2020 (P_os) divide the states; which slice: follows from R5.

    -> (start, stop)
    """
    return slice_bounds(n, p)[(rank + 1) % p]


def run_owners(module: Any, case: Case) -> Outputs:
    n, p = case.arguments["n"], case.arguments["p"]
    return {"out.bounds": np.array([module.zero_slice(n, p, r) for r in range(p)], np.int64)}


Z1 = Statement("Z1", zero_slice)
OWNERS = JudgedFunction(zero_slice, "Z1", {"bounds": ("rank", "start, stop")}, run=run_owners)
OWNERS.fresh(lambda d: {"n": d.n, "p": d.p})
SIZES = ((5, 1), (0, 4), (3, 5), (13, 4), (12, 3), (1000, 9))


@OWNERS.golden
def owners() -> Cases:
    for n, p in SIZES:
        yield OWNERS.case(f"zero-slice-n{n}-p{p}", f"each rank's; {shape_says(p, n)}", n=n, p=p)


@Z1.mistake("rank r owns slice r")
def owner_early(n, p, rank):
    return slice_bounds(n, p)[rank]


@Z1.mistake("rank r owns slice r-1")
def owner_late(n, p, rank):
    return slice_bounds(n, p)[(rank - 1) % p]


@Z1.mistake("with n < p rank 0 owns all elements")
def rank_0_owns_few(n, p, rank):
    return zero_slice(n, p, rank) if n >= p else (0 if rank == 0 else n, n)


@Z1.mistake("slices are padded to one length: they end beyond n")
def padded_slices(n, p, rank):
    each = -(-n // p)
    return (rank + 1) % p * each, ((rank + 1) % p + 1) * each


# ---- Z2: a step ----


def zero_step(
    ws: Arrays,
    vs: Arrays,
    gs: Arrays,
    rate: float,
    momentum: float,
    decay: float = 0.0,
    decayed: np.ndarray | None = None,
) -> tuple[Arrays, Arrays]:
    """Z2: a step: each rank's slice of the gradients is summed as in R2, M1 updates this slice with
    its velocity, and all ranks take all slices of the parameters. So these have the bits of R2 and
    M1 on all n elements, for every p and n.

    Source: Rajbhandari et al. 2020 (P_os); the ring's order of sums: chosen. It holds for
    optimisers that treat each element by itself; the norms of LARS need M8.

    ws, vs, gs: p arrays (n,); vs is 0 outside a rank's own slice -> (ws, vs)
    """
    p, w, after = len(ws), ws[0].copy(), [np.zeros_like(v) for v in vs]
    for rank in range(p):
        i, j = zero_slice(len(w), p, rank)
        own = slice(i, j)
        total = rounded_fold([gs[(rank + 1 + k) % p][own] for k in range(p)])
        flags = None if decayed is None else decayed[own]
        w[own], after[rank][own] = momentum_step(
            ws[rank][own], vs[rank][own], total, rate, momentum, decay, flags
        )
    return [w.copy() for _ in ws], after


def zero_run(
    w: np.ndarray,
    gs: list[Arrays],
    rate: float,
    momentum: float,
    decay: float = 0.0,
    decayed: np.ndarray | None = None,
) -> list[dict[str, Any]]:
    """Z2 for T steps from v = 0. gs[t][rank] -> {"w": p arrays, "v": p arrays} after each step"""
    p, states = len(gs[0]), []
    ws, vs = [w.copy() for _ in range(p)], [np.zeros_like(w) for _ in range(p)]
    for step in gs:
        ws, vs = zero_step(ws, vs, step, rate, momentum, decay, decayed)
        states.append({"w": ws, "v": vs})
    return states


def run_steps(module: Any, case: Case) -> Outputs:
    settings, decayed = select(case, "rate", "momentum", "decay"), case["in.decayed"].astype(bool)
    states = module.zero_run(
        case["in.w"].copy(), steps_of(case["in.g"]), **settings, decayed=decayed
    )
    return {f"out.{key}": np.array([state[key] for state in states]) for key in "wv"}


Z2 = Statement("Z2", zero_step)
AXES = {key: ("step", "rank", "element") for key in "wv"}
RUN = JudgedFunction(zero_run, "Z1 Z2", AXES, "w g decayed", run_steps)


@RUN.fresh
def any_steps(d: Draw) -> Given:
    p, n, decay = min(d.p, 12), d.n, pick(d.rng, 0.0, 0.01)
    arrays = {"w": d.normal(n), "g": d.normal(3, p, n)}
    decayed = d.rng.integers(0, 2, n).astype(np.uint8)
    return {"rate": 0.1, "momentum": 0.9, "decay": decay, **arrays, "decayed": decayed}


@RUN.golden
def run_cases() -> Cases:
    for n, p in ((5, 1), (0, 3), (3, 5), (13, 2), (29, 7), (24, 8)):
        rng = random_source(f"zero-n{n}-p{p}")
        w, g = (rng.standard_normal(shape).astype(np.float32) for shape in (n, (4, p, n)))
        decayed, why = (np.arange(n) % 3 != 0).astype(np.uint8), f"four steps; {shape_says(p, n)}"
        settings: Given = {"rate": 0.1, "momentum": 0.9, "decay": 0.01}
        case = RUN.case(f"zero-run-n{n}-p{p}", why, **settings, w=w, g=g, decayed=decayed)
        unsharded, v = w, np.zeros_like(w)
        for step in g:
            total = ring_allreduce(list(step))[0]
            unsharded, v = momentum_step(unsharded, v, total, **settings, decayed=decayed != 0)
        alike = all(same_bits(mine, unsharded) for mine in case["out.w"][-1])
        case.shows(alike, "every rank has the bits of R2 and M1 on all elements")
        shows = n < 20 or differs_with(case, zero_step=in_rank_order)
        yield case.shows(shows, "another order of summation shows")


@Z2.mistake("gradients are summed in rank order")
def in_rank_order(ws, vs, gs, rate, momentum, decay=0.0, decayed=None):
    total = rounded_fold(gs)
    alone = [total, *[np.zeros_like(total)] * (len(gs) - 1)]
    return zero_step(ws, vs, alone, rate, momentum, decay, decayed)


@Z2.mistake("the reduce-scatter is missing: a rank updates with its own gradients")
def own_gradients(ws, vs, gs, rate, momentum, decay=0.0, decayed=None):
    p, n, summed = len(gs), len(gs[0]), [np.zeros_like(g) for g in gs]
    for rank in range(p):
        own = slice(*zero_slice(n, p, rank))
        summed[rank][own] = gs[rank][own]
    return zero_step(ws, vs, summed, rate, momentum, decay, decayed)


@Z2.mistake("the allgather is missing: a rank has its own slice alone updated")
def not_gathered(ws, vs, gs, rate, momentum, decay=0.0, decayed=None):
    updated, after = zero_step(ws, vs, gs, rate, momentum, decay, decayed)
    for rank, w in enumerate(ws):
        own = slice(*zero_slice(len(w), len(ws), rank))
        updated[rank] = np.concatenate([w[: own.start], updated[rank][own], w[own.stop :]])
    return updated, after


@Z2.mistake("the flags of decay are not cut: each rank takes them from element 0 on")
def flags_from_0(ws, vs, gs, rate, momentum, decay=0.0, decayed=None):
    if decayed is not None:
        bounds = sorted(zero_slice(len(ws[0]), len(ws), rank) for rank in range(len(ws)))
        decayed = np.concatenate([decayed[: j - i] for i, j in bounds])
    return zero_step(ws, vs, gs, rate, momentum, decay, decayed)


@Z2.mistake("every rank keeps the velocity of all elements: nothing is saved")
def all_velocities(ws, vs, gs, rate, momentum, decay=0.0, decayed=None):
    p, n, own = len(vs), len(vs[0]), [np.zeros_like(v) for v in vs]
    for rank in range(p):
        i, j = zero_slice(n, p, rank)
        own[rank][i:j] = vs[rank][i:j]
    updated, after = zero_step(ws, own, gs, rate, momentum, decay, decayed)
    return updated, [np.sum(after, axis=0, dtype=after[0].dtype) for _ in vs]


# ---- Z3: what is sent ----


def zero_traffic(n: int, p: int, rank: int, itemsize: int = 4) -> tuple[int, int]:
    """Z3: a step sends what ring allreduce sends (R6): 2(p-1) messages, empty ones too, and 2n -
    len(slice r+1) - len(slice r+2) elements, of which the gradients are the first half of the
    messages and the parameters the second; over the ranks 2n (p-1)/p in the mean. The optimiser's
    state is not sent.

    Source: Rajbhandari et al. 2020: no more is sent than in data parallelism; the slices: follows
    from R6.

    -> (messages, bytes)
    """
    messages, elements = ring_traffic(n, p, rank)
    return messages, itemsize * elements


def run_traffic(module: Any, case: Case) -> Outputs:
    n, p, itemsize = select(case, "n", "p", "itemsize").values()
    sent = [module.zero_traffic(n, p, rank, itemsize) for rank in range(p)]
    return {"out.traffic": np.array(sent, np.int64)}


Z3 = Statement("Z3", zero_traffic)
SENT = {"traffic": ("rank", "messages, bytes")}
TRAFFIC = JudgedFunction(zero_traffic, "Z3", SENT, run=run_traffic)


@TRAFFIC.fresh
def any_traffic(d: Draw) -> Given:
    """Few ranks: an implementation may count by sending."""
    return {"n": d.n, "p": min(d.p, 12), "itemsize": pick(d.rng, 4, 8)}


@TRAFFIC.golden
def traffic_cases() -> Cases:
    for n, p in SIZES:
        for itemsize in (4, 8) if n == 13 else (4,):
            name = f"zero-traffic-n{n}-p{p}-{8 * itemsize}"
            why = f"gradients once, parameters once; {shape_says(p, n)}"
            yield TRAFFIC.case(name, why, n=n, p=p, itemsize=itemsize)


@Z3.mistake("an allreduce of the gradients, then an allgather of the parameters: 3n (p-1)/p")
def allreduced_first(n, p, rank, itemsize=4):
    messages, nbytes = zero_traffic(n, p, rank, itemsize)
    i, j = slice_bounds(n, p)[(rank + 2) % p]
    return messages + messages // 2, nbytes + (n - (j - i)) * itemsize * (p > 1)


@Z3.mistake("the allgather of the parameters is not counted")
def reduce_scatter_alone(n, p, rank, itemsize=4):
    i, j = zero_slice(n, p, rank)
    return p - 1, (n - (j - i)) * itemsize


@Z3.mistake("the mean over the ranks, 2n (p-1)/p, where slices differ")
def mean_traffic(n, p, rank, itemsize=4):
    return 2 * (p - 1), 2 * n * (p - 1) // p * itemsize


@Z3.mistake("empty messages are left out")
def without_empty_slices(n, p, rank, itemsize=4):
    lengths = [j - i for i, j in slice_bounds(n, p)]
    sent = [lengths[(rank - t) % p] for t in range(p - 1)]
    sent += [lengths[(rank + 1 - t) % p] for t in range(p - 1)]
    return sum(length > 0 for length in sent), itemsize * sum(sent)
