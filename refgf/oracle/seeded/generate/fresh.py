"""Cases that nobody can know before: other numbers, p and n for each seed.

The golden cases are public, so an implementation may be right for them only. Case i of a function
is one of three kinds: more ranks and elements than in any golden case (0), one, three, five or
seven ranks with fewer elements than ranks or none (1), and few ranks that do not divide n (2).
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from refgf.oracle import definitions
from refgf.oracle.definitions import conv, fully_connected
from refgf.oracle.seeded.generate.families import inputs, random_source
from refgf.oracle.seeded.generate.network import gamma
from refgf.oracle.spec.case import Case
from refgf.oracle.spec.costs import flat as costs
from refgf.oracle.spec.draw import (
    Draw,
    Drawn,
    daso,
    dense_layer,
    layer,
    pick,
    shape,
    some_nodes,
)
from refgf.oracle.spec.merge.times import within
from refgf.oracle.spec.plain_sums import PLAIN_SUMS
from refgf.oracle.spec.statement import FUNCTIONS, JudgedFunction, fill

LARGE = 3 << 15  # elements: 384 KiB of float32, and more than 16 bits count


def ties(d: Draw, *shape: int) -> np.ndarray:
    """Magnitudes that are often equal, of both signs."""
    x = d.normal(*shape)
    return np.where(d.rng.random(shape) < 0.3, np.float32(0.5) * np.sign(x), x)


def topk_run(d: Draw, nodes: bool = False) -> Drawn:
    arguments = {"nodes": some_nodes(d.rng, d.p, True)} if nodes else {}
    g = ties(d, 3, d.p, min(d.n, 200))
    return {**arguments, "percent": pick(d.rng, 1, 1.1, 10, 25, 50, 100)}, {"g": g}


def topk_traffic(d: Draw) -> Drawn:
    nodes, percent = some_nodes(d.rng, d.p, True), pick(d.rng, 1, 1.1, 10, 100)
    arguments = {"n": d.n, "nodes": nodes, "percent": percent}
    return {**arguments, "hierarchical": pick(d.rng, False, True)}, {}


def pairs_traffic(d: Draw) -> Drawn:
    """Every node divides n."""
    nodes, percent = some_nodes(d.rng, d.p, True), pick(d.rng, 1, 1.1, 10, 100)
    return {"n": d.n - d.n % len(nodes[0]), "nodes": nodes, "percent": percent}, {}


def late_sum(d: Draw) -> Drawn:
    arguments = {"nodes": d.p, "waited": d.integer(0, 9)}
    return arguments, {"w": d.normal(d.n), "total": d.normal(d.n)}


def daso_traffic(d: Draw, beyond: int = 0) -> Drawn:
    """A few chunks: an implementation may count by sending."""
    arguments, _ = daso(d, beyond)
    of_epoch = {"batches": arguments["batches"], "phase": arguments["phases"][d.integer(0, 1)]}
    p, chunk = min(d.p, 12), 1 + d.n // d.integer(1, 5)
    nodes = len(some_nodes(d.rng, p, True))
    return {"n": d.n, "p": p, "nodes": nodes, "chunk": chunk, **of_epoch}, {}


def of(*names: str) -> dict[str, tuple[str, Callable[[Draw], Drawn]]]:
    """Functions that are records in spec/."""
    return {name: (FUNCTIONS[name].statements, partial(divided, FUNCTIONS[name])) for name in names}


def divided(function: JudgedFunction, d: Draw) -> Drawn:
    arguments, tensors = function.divided(function.draw(d))
    return arguments, {name.removeprefix("in."): array for name, array in tensors.items()}


# function: (its statements, how its arguments and inputs are drawn)
DRAWN: dict[str, tuple[str, Callable[[Draw], Drawn]]] = {
    **of("slice_bounds", "ring_allreduce", "ring_traffic"),
    **of("direct_allreduce", "direct_traffic", "exact_sum"),
    **of("lazy_calls", "lazy_allreduce", "merged_allreduce"),
    **of("on_wire", "bfloat16_bits", "underflow_share", "scaled_allreduce", "next_scale"),
    **of("working_copy", "scaled_run"),
    **of("decayed_gradient", "momentum_step", "warmup_rate", "lars_ratio", "lars_step"),
    **of("polynomial_rate", "accumulated", "lars_partial_squares", "scaled_lars_run"),
    **of("chunk_bounds", "importance", "choose", "percent_of_step", "csc_payload_bytes", "csc_run"),
    **of("tree_allreduce", "doubling_allreduce", "three_phase_allreduce", "two_level_allreduce"),
    **of("log_phases_allreduce", "hybrid_allreduce", "schedule_traffic"),
    "keep_count": ("T1", lambda d: ({"n": d.n}, {"percent": d.rng.integers(1, 1001, 9) / 10})),
    "top_k": ("T2", lambda d: ({"k": d.integer(0, d.n)}, {"x": ties(d, d.n)})),
    "topk_run": ("T4 T5", topk_run),
    "hitopk_run": ("T4 T6", partial(topk_run, nodes=True)),
    "topk_traffic": ("T7", topk_traffic),
    "hitopk_pairs_traffic": ("T8", pairs_traffic),
    "daso_merge": ("A6", late_sum),
    "daso_traffic": ("A12", daso_traffic),
    "daso_run": ("A2 A3 A4 A5 A6 A7 A8 A11", daso),
    "heat_merge": ("A15", late_sum),
    "heat_traffic": ("A20", partial(daso_traffic, beyond=2)),
    "heat_run": ("A13 A14 A15 A16 A17 A18", partial(daso, beyond=2)),
    **of("node_shards", "node_batches", "cache_levels"),
    "conv": ("N1", layer),
    "max_pool": ("N2", partial(layer, window=True)),
    "relu": ("N3", lambda d: ({}, {"x": d.floats(40).astype(np.float64)})),
    "fully_connected": ("N6", dense_layer),
    **of("reduce_scatter_s", "allgather_s", "ring_s", "direct_s", "tree_s"),
    **of("recursive_doubling_s", "halving_doubling_s", "allreduce_line"),
    **of("three_phase_s", "two_level_s", "log_phases_s", "topk_s", "hitopk_s", "hitopk_pairs_s"),
    **of("step_times", "lazy_step", "greedy_counts", "best_counts"),
}


def bounds(case: Case) -> dict[str, np.ndarray]:
    """How far results may be off whose order of summation is open: as in the golden cases."""
    t, a = case.tensors, case.arguments
    if "out.step_s" in t:
        return within(case).with_prefix("bound")
    if "out.seconds" in t or "out.line" in t:
        return costs.within(case).with_prefix("bound")
    if bound := getattr(FUNCTIONS[case.function], "bound", None):
        return {f"bound.{name}": array for name, array in bound(case).items()}
    if case.function in ("conv", "fully_connected"):
        x, w, b = (np.abs(t[f"in.{name}"]) for name in "xwb")
        y = conv(x, w, b, a["stride"], a["pad"]) if "pad" in a else fully_connected(x, w, b)
        return {"bound.y": gamma(w[..., 0].size + 1) * y}
    return {}


def large_cases(seed: int, wanted: Callable[[Case], bool]) -> Iterator[Case]:
    """One long vector for each plain sum: beyond 2^16, where libraries change their algorithm."""
    for function in PLAIN_SUMS:
        statements, _ = DRAWN[function]
        name, why = f"large-{function}-{seed}", "a long vector may get another algorithm"
        case = Case(name, function, statements.split(), why, "sensitive", {})
        if wanted(case):
            rng = random_source(name, seed)
            n = LARGE + 1 + 3 * int(rng.integers(1000))  # 3 does not divide it
            x = inputs("sensitive", 3, n, "float32", rng)
            yield drawn(case, ({"wire": None}, {"x": x}))


def fresh_cases(count: int, seed: int, wanted: Callable[[Case], bool]) -> Iterator[Case]:
    """`count` cases of each function, made by the definitions, if `wanted` accepts their names."""
    for function, (statements, draw) in DRAWN.items():
        for i in range(count):
            name, why = f"random-{function}-{seed}-{i}", f"drawn by --random {count} --seed {seed}"
            case = Case(name, function, statements.split(), why, "values", {})
            if wanted(case):
                rng = random_source(f"{function}-{i}", seed)
                yield drawn(case, draw(Draw(rng, *shape(rng, i % 3))))


def drawn(case: Case, found: Drawn) -> Case:
    """The case with these arguments and inputs, and the definitions' results."""
    arguments, arrays = found
    tensors = {f"in.{name}": np.asarray(array) for name, array in arrays.items()}
    with np.errstate(all="ignore"):
        case = fill(replace(case, arguments=arguments, tensors=tensors), definitions)
        case.tensors |= bounds(case)
    if arguments.get("wire", "") is None:  # the statements on rounding say nothing here
        case.statements = [s for s in case.statements if s not in ("R3", "D2", "H3")]
    return case
