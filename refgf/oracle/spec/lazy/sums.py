"""L4, L5: what the calls sum; groups that are fixed before the step.

Lesson 03 asks for the sums of given calls, and for the time of a step.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from refgf.oracle.spec.calls import RANK_ELEMENT, Outputs, number, same_bits, vectors
from refgf.oracle.spec.case import Case, Given
from refgf.oracle.spec.direct import direct_allreduce
from refgf.oracle.spec.draw import Draw, groups, pick, random_source, some_sizes
from refgf.oracle.spec.exercise import Arguments, Exercise, not_in_float16
from refgf.oracle.spec.families import any_vectors, inputs
from refgf.oracle.spec.lazy.calls import (
    FLOAT32,
    L2,
    Calls,
    any_theta,
    bytes_per_gradient,
    lazy_calls,
    pool_slices,
)
from refgf.oracle.spec.ring import Arrays, ring_allreduce
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement

ALLREDUCE = {"ring": ring_allreduce, "direct": direct_allreduce}

# ---- L4: each call by itself ----


def lazy_allreduce(
    xs: Arrays,
    sizes: list[int],
    theta_bytes: float,
    wire: str | None = None,
    order: str = "ring",
) -> Arrays:
    """L4: each call is an allreduce by itself, with its own slices; so the bits depend on theta
    with the ring, but not with direct.

    Source: follows from L1, R1, D3.

    p arrays -> p arrays
    """
    itemsize = bytes_per_gradient(xs[0].dtype, wire)
    return allreduce_calls(xs, lazy_calls(sizes, itemsize, theta_bytes), wire, order)


def allreduce_calls(xs: Arrays, calls: Calls, wire: str | None, order: str) -> Arrays:
    """The allreduces of a step, one after the other."""
    allreduce = {"ring": ring_allreduce, "direct": direct_allreduce}[order]
    sums = [allreduce([x[i:j] for x in xs], wire) for i, j in calls]
    return [np.concatenate([x[:0], *own]) for x, *own in zip(xs, *sums)]


def run_lazy(module: Any, case: Case) -> Outputs:
    a, sizes = case.arguments, case["in.sizes"].tolist()
    settings = number(a["theta_bytes"]), a["wire"], a["order"]
    return {"out.x": np.stack(module.lazy_allreduce(vectors(case), sizes, *settings))}


L4 = Statement("L4", lazy_allreduce)
LAZY = JudgedFunction(lazy_allreduce, "L1 L2 L3 L4", RANK_ELEMENT, "x sizes", run_lazy)


@LAZY.fresh
def any_lazy_sum(d: Draw) -> Given:
    sizes, wire = some_sizes(d.rng, d.n), pick(d.rng, None, "float16", "bfloat16")
    rule = {"theta_bytes": any_theta(d, sizes)}
    return summed(d, sizes, wire, rule)


def summed(d: Draw, sizes: np.ndarray, wire: str | None, rule: dict[str, Any]) -> Given:
    order = pick(d.rng, "ring", "direct")
    x = any_vectors(d, "float32", wire)
    return {"wire": wire, "order": order, **rule, "x": x, "sizes": sizes}


@LAZY.golden
def lazy_cases() -> Cases:
    sizes = np.array([10, 0, 6, 1, 40, 3, 16, 2])
    for order, wire, theta in (
        ("ring", None, 64),
        ("ring", "float16", 64),
        ("direct", None, 64),
        ("direct", "bfloat16", 31),
        ("ring", None, "inf"),
        ("ring", None, 0),
    ):
        name = f"lazy-{order}-theta-{theta}-wire-{wire or 'none'}"
        x = inputs("sensitive", 3, sizes.sum(), "float32", random_source("lazy"), wire)
        counted = f"theta counts {2 if wire else 4} bytes a gradient"
        why = f"calls are allreduces with their own slices; {counted}"
        given: Given = {"theta_bytes": theta, "wire": wire, "order": order, "x": x, "sizes": sizes}
        case = LAZY.case(name, why, "L1 L3 L4", "sensitive", **given)
        same = same_bits(ALLREDUCE[order](list(x), wire)[0], case["out.x"][0])
        hidden = order == "direct" or theta == "inf"
        yield case.shows(same == hidden, "only direct hides theta")
    sizes = np.array([10, 3, 5])
    x = inputs("sensitive", 3, sizes.sum(), "float32", random_source("lazy-rest"))
    why = "the last two tensors are exactly theta: they wait to the end, and go then"
    given = {"theta_bytes": 32, "wire": None, "order": "ring", "x": x, "sizes": sizes}
    case = LAZY.case("lazy-ring-rest-at-theta", why, family="sensitive", **given)
    calls = lazy_calls(sizes.tolist(), 4, 32)
    yield case.shows(calls == [(0, 10), (10, 18)], "the second call is the rest")


@L2.mistake("last bucket forgotten: the tensors that wait at the end stay local", lazy_allreduce)
def rest_stays_local(xs, sizes, theta_bytes, wire=None, order="ring"):
    itemsize = bytes_per_gradient(xs[0].dtype, wire)
    calls, start = lazy_calls(sizes, itemsize, theta_bytes), len(xs[0])
    if calls and (start - calls[-1][0]) * itemsize <= theta_bytes:
        start = calls.pop()[0]
    sums = allreduce_calls([x[:start] for x in xs], calls, wire, order)
    return [np.concatenate([y, x[start:]]) for x, y in zip(xs, sums)]


@L4.mistake("sliced as one large allreduce")
def one_allreduce(xs, sizes, theta_bytes, wire=None, order="ring"):
    return ALLREDUCE[order](xs, wire)


@L4.mistake("the elements after the last call are not summed")
def tail_not_summed(xs, sizes, theta_bytes, wire=None, order="ring"):
    done = one_allreduce(xs, sizes, theta_bytes, wire, order)
    return [np.concatenate([y[: len(x) // 2], x[len(x) // 2 :]]) for x, y in zip(xs, done)]


@L4.mistake("divided by p")
def lazy_averaged(xs, sizes, theta_bytes, wire=None, order="ring"):
    return [x / x.dtype.type(len(xs)) for x in lazy_allreduce(xs, sizes, theta_bytes, wire, order)]


@L4.mistake("divided by p twice")
def lazy_averaged_twice(xs, sizes, theta_bytes, wire=None, order="ring"):
    return [x / x.dtype.type(len(xs)) for x in lazy_averaged(xs, sizes, theta_bytes, wire, order)]


# ---- L5: groups ----


def merged_calls(sizes: list[int], counts: list[int]) -> Calls:
    """L5: groups of neighbouring tensors, fixed before the step (MG-WFBP), take the place of theta:
    each group is one call, with its own slices; a group without elements is no call.

    Source: MG-WFBP by its authors' code; they choose groups by a greedy rule. `exact_merge` in
    `refgf/papers/mgwfbp/merge.py` is ours.

    The first call sums counts[0] tensors, the second the next counts[1], and so on.
    """
    offsets = [sum(sizes[:i]) for i in range(len(sizes) + 1)]
    ends = [sum(counts[:i]) for i in range(len(counts) + 1)]
    return [(offsets[i], offsets[j]) for i, j in zip(ends, ends[1:]) if offsets[j] > offsets[i]]


def merged_allreduce(
    xs: Arrays,
    sizes: list[int],
    counts: list[int],
    wire: str | None = None,
    order: str = "ring",
) -> Arrays:
    """Groups fixed before the step take the place of theta. p arrays (n,) -> p arrays (n,)"""
    return allreduce_calls(xs, merged_calls(sizes, counts), wire, order)


def run_merged(module: Any, case: Case) -> Outputs:
    a, sizes = case.arguments, case["in.sizes"].tolist()
    settings = a["counts"], a["wire"], a["order"]
    return {"out.x": np.stack(module.merged_allreduce(vectors(case), sizes, *settings))}


L5 = Statement("L5", merged_calls)
MERGED = JudgedFunction(merged_allreduce, "L5", RANK_ELEMENT, "x sizes", run_merged)


@MERGED.fresh
def any_merged_sum(d: Draw) -> Given:
    sizes, wire = some_sizes(d.rng, d.n), pick(d.rng, None, "float16", "bfloat16")
    return summed(d, sizes, wire, {"counts": groups(d.rng, len(sizes))})


@MERGED.golden
def merged_cases() -> Cases:
    sizes = np.array([10, 0, 6, 1, 40, 0, 16, 2])
    for order, wire, counts in (
        ("ring", None, [2, 3, 1, 2]),
        ("ring", "float16", [1, 1, 6]),
        ("direct", "float16", [3, 5]),
        ("ring", None, [5, 3]),
    ):
        name = f"merged-{order}-{'-'.join(map(str, counts))}-wire-{wire or 'none'}"
        x = inputs("sensitive", 3, sizes.sum(), "float32", random_source("merged"), wire)
        why = "groups fixed in advance, each an allreduce with its own slices"
        why += "; one without elements" * (1 in counts)
        given: Given = {"counts": counts, "wire": wire, "order": order, "x": x, "sizes": sizes}
        case = MERGED.case(name, why, family="sensitive", **given)
        others = (
            merged_allreduce(list(x), sizes.tolist(), c, wire, order)[0] for c in ([8], [1] * 8)
        )
        same = [same_bits(other, case["out.x"][0]) for other in others]
        claim = "neither one call nor one for each tensor has these bits"
        yield case.shows(same == [order == "direct"] * 2, claim)


@L5.mistake("a group is sent before its last gradient is ready; that one joins the next group")
def one_gradient_early(sizes, counts):
    return merged_calls(sizes, [counts[0] - 1, *counts[1:], 1])


@L5.mistake("the groups are ignored: every tensor by itself")
def groups_ignored(sizes, counts):
    return merged_calls(sizes, [1] * len(sizes))


@L5.mistake("no group is ever full: one call at the end")
def never_full(sizes, counts):
    return merged_calls(sizes, [len(sizes)])


@L5.mistake("the last group is not summed", merged_allreduce)
def last_group_lost(xs, sizes, counts, wire=None, order="ring"):
    calls = merged_calls(sizes, counts)
    sums, start = allreduce_calls(xs, calls, wire, order), calls[-1][0]
    return [np.concatenate([y[:start], x[start:]]) for x, y in zip(xs, sums)]


# ---- exercise sum_calls ----


def sum_calls(
    gradients: list[Arrays],
    calls: Calls,
    rank: int,
    dtype: DTypeLike = np.float32,
    others: Callable[..., Any] | None = None,
    divisor: int = 1,
) -> Arrays:
    """The keywords make the typical mistakes. others: pools -> what lies outside the calls."""
    flat = ([x.ravel() for x in g] for g in gradients)
    pools = [np.concatenate([np.zeros(0), *xs]).astype(dtype) for xs in flat]
    result = pools[rank].copy() if others is None else others(pools)
    for start, stop in calls:
        result[start:stop] = sum(pool[start:stop] for pool in pools) / divisor
    slices = pool_slices([np.size(g) for g in gradients[rank]])
    return [result[i:j].reshape(np.shape(g)) for (i, j), g in zip(slices, gradients[rank])]


def on_ranks(random: np.random.Generator, p: int, shapes: list[Arguments]) -> list[Arrays]:
    return [[not_in_float16(random, *shape) for shape in shapes] for _ in range(p)]


def all_summed(random: np.random.Generator) -> list[Arguments]:
    return [
        (on_ranks(random, 3, [(4,), (2, 3), (5,)]), [(0, 10), (10, 15)], 1),
        (on_ranks(random, 2, [(1,), (1, 2)]), [(0, 3)], 1),
    ]


def some_summed(random: np.random.Generator) -> list[Arguments]:
    small = on_ranks(random, 2, [(1,), (1, 2)]), [(0, 1)], 1
    return [small, (on_ranks(random, 3, [(4,), (2, 3), (5,)]), [(0, 4)], 2)]


def few(random: np.random.Generator) -> list[Arguments]:
    return [
        (on_ranks(random, 1, [(4,), (3,)]), [(0, 7)], 0),
        (on_ranks(random, 2, [(4,)]), [], 1),
        (on_ranks(random, 2, [(2,), (0,), (1,)]), [(0, 2), (2, 3)], 1),
    ]


SUMS_03 = Exercise("03.3", sum_calls)
SUMS_03.part("the calls sum all gradients", 3, all_summed)
SUMS_03.part("a gradient that no call sums", 1, some_summed)
SUMS_03.part("one rank, no call, an empty gradient", 1, few)


@SUMS_03.mistake("your calls return the mean over the ranks; wanted the sum")
def mean_of_calls(gradients, calls, rank):
    return sum_calls(gradients, calls, rank, divisor=len(gradients))


@SUMS_03.mistake("your pool or your results are float64: give them the gradients' type")
def float64_pool(gradients, calls, rank):
    return sum_calls(gradients, calls, rank, dtype=np.float64)


@SUMS_03.mistake("you return slices of the pool; wanted each gradient in its own shape (reshape)")
def flat_gradients(gradients, calls, rank):
    return [g.ravel() for g in sum_calls(gradients, calls, rank)]


@SUMS_03.mistake("you sum the whole pool; a gradient that no call sums stays the rank's own")
def sums_everything(gradients, calls, rank):
    return sum_calls(gradients, calls, rank, others=sum)


@SUMS_03.mistake("your pool starts from zeros, so a gradient that no call sums is lost")
def zeros_outside(gradients, calls, rank):
    return sum_calls(gradients, calls, rank, others=lambda pools: np.zeros_like(pools[0]))


# ---- exercise step_seconds ----


def step_seconds(calls: Calls, compute_s: float, a: float, b: float) -> float:
    return compute_s + sum(a + b * FLOAT32 * (stop - start) for start, stop in calls)


def priced(random: np.random.Generator) -> list[Arguments]:
    sizes = random.integers(1, 10**6, 7).tolist()
    calls = pool_slices(sizes)
    longer = [(calls, 0.5, 2e-3, 1e-9), (calls, 1e-3, 2e-3, 1e-9)]  # computing, then the calls
    return [([(0, 3), (3, 10)], 0.25, 1e-3, 1e-8), *longer]


# the operations may be in another order: a few roundings of 1e-16
SECONDS_03 = Exercise("03.4", step_seconds, relative=1e-12)
SECONDS_03.part("several calls", 2, priced)
SECONDS_03.part(
    "no call",
    1,
    lambda random: [([], s, 1e-3, 1e-9) for s in (0.5, float(random.uniform(0.1, 2.0)))],
)


@SECONDS_03.mistake("every call pays the latency a, not each step once")
def one_latency(calls, compute_s, a, b):
    return step_seconds(calls, compute_s, 0.0, b) + a


@SECONDS_03.mistake("b is for a byte, and a float32 has 4 of them")
def elements_cost(calls, compute_s, a, b):
    return step_seconds(calls, compute_s, a, b / FLOAT32)


@SECONDS_03.mistake(
    "you take the longer of computation and communication; without overlap they add up"
)
def the_longer_one(calls, compute_s, a, b):
    return max(compute_s, step_seconds(calls, 0.0, a, b))
