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
from refgf.oracle.spec.case import Case
from refgf.oracle.spec.costs import flat as costs
from refgf.oracle.spec.draw import (
    Draw,
    Drawn,
    shape,
)
from refgf.oracle.spec.merge.times import within
from refgf.oracle.spec.network.gradients import gamma
from refgf.oracle.spec.plain_sums import PLAIN_SUMS
from refgf.oracle.spec.statement import FUNCTIONS, JudgedFunction, fill

LARGE = 3 << 15  # elements: 384 KiB of float32, and more than 16 bits count


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
    **of("keep_count", "top_k", "topk_run", "hitopk_run", "topk_traffic", "hitopk_pairs_traffic"),
    **of("daso_merge", "daso_traffic", "daso_run", "heat_merge", "heat_traffic", "heat_run"),
    **of("node_shards", "node_batches", "cache_levels"),
    **of("conv", "max_pool", "relu", "fully_connected"),
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
        return {"bound.y": gamma(w[..., 0].size + 2) * y}
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
