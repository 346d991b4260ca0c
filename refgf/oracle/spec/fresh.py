"""Cases that nobody can know before: other numbers, p and n for each seed.

The golden cases are public, so an implementation may be right for them only. Case i of a function
is one of three kinds: more ranks and elements than in any golden case (0), one, three, five or
seven ranks with fewer elements than ranks or none (1), and few ranks that do not divide n (2).
"""

from collections.abc import Callable, Iterator

import numpy as np

from refgf.oracle.spec.case import Case, Given
from refgf.oracle.spec.draw import Draw, random_source, shape
from refgf.oracle.spec.families import inputs
from refgf.oracle.spec.plain_sums import PLAIN_SUMS
from refgf.oracle.spec.statement import FUNCTIONS, definitions, fill

LARGE = 3 << 15  # elements: 384 KiB of float32, and more than 16 bits count
LONG = {  # ranks of a long vector; of 5 a tree and doubling pair others
    **dict.fromkeys(PLAIN_SUMS, 3),
    **dict.fromkeys(("tree_allreduce", "doubling_allreduce"), 5),
}
FIRST = """
slice_bounds ring_allreduce ring_traffic direct_allreduce direct_traffic exact_sum
lazy_calls lazy_allreduce merged_allreduce
on_wire bfloat16_bits underflow_share scaled_allreduce next_scale working_copy scaled_run
decayed_gradient momentum_step warmup_rate lars_ratio lars_step polynomial_rate
accumulated lars_partial_squares scaled_lars_run
chunk_bounds importance choose percent_of_step csc_payload_bytes csc_run
tree_allreduce doubling_allreduce three_phase_allreduce two_level_allreduce
log_phases_allreduce hybrid_allreduce schedule_traffic
keep_count top_k topk_run hitopk_run topk_traffic hitopk_pairs_traffic
daso_merge daso_traffic daso_run heat_merge heat_traffic heat_run
node_shards node_batches cache_levels conv max_pool relu fully_connected
"""  # in this order; then as they are registered
NAMES = dict.fromkeys([*FIRST.split(), *FUNCTIONS])
DRAWN = {name: draw for name in NAMES if (draw := FUNCTIONS[name].draw)}


def large_cases(seed: int, wanted: Callable[[Case], bool]) -> Iterator[Case]:
    """One long vector for each of LONG: beyond 2^16, where libraries change their algorithm."""
    for function, p in LONG.items():
        why = "a long vector may get another algorithm"
        case = empty(function, f"large-{function}-{seed}", why, "sensitive")
        if wanted(case):
            rng = random_source(case.name, seed)
            n = LARGE + 2 + 15 * int(rng.integers(1000))  # neither 3 nor 5 divides it
            yield filled(case, {"wire": None, "x": inputs("sensitive", p, n, "float32", rng)})


def fresh_cases(count: int, seed: int, wanted: Callable[[Case], bool]) -> Iterator[Case]:
    """`count` cases of each function, made by the definitions, if `wanted` accepts their names."""
    for function, draw in DRAWN.items():
        for i in range(count):
            why = f"drawn by --random {count} --seed {seed}"
            case = empty(function, f"random-{function}-{seed}-{i}", why)
            if wanted(case):
                rng = random_source(f"{function}-{i}", seed)
                yield filled(case, draw(Draw(rng, *shape(rng, i % 3))))


def empty(function: str, name: str, why: str, family: str = "values") -> Case:
    """A case that has no arguments and inputs yet."""
    return Case(name, function, FUNCTIONS[function].statements.split(), why, family, {})


def filled(case: Case, given: Given) -> Case:
    """The case with these arguments and inputs, the definitions' results and their bounds."""
    function = FUNCTIONS[case.function]
    case.arguments, case.tensors = function.divided(given)
    with np.errstate(all="ignore"):
        case = function.within(fill(case, definitions()))
    if case.arguments.get("wire", "") is None:  # the statements on rounding say nothing here
        case.statements = [s for s in case.statements if s not in ("R3", "D2", "H3")]
    return case
