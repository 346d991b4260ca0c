"""Lesson 03: where gradients lie in the pool, which calls theta makes, their sums, their time."""

from itertools import accumulate
from math import inf

import numpy as np

from refgf.oracle import definitions
from refgf.oracle.grade.exercises.before import Exercise, Mistake, Part

FLOAT32 = 4  # bytes

# ---- pool_slices(sizes): given in the starter ----


def pool_slices(sizes):
    return [(stop - size, stop) for size, stop in zip(sizes, accumulate(sizes))]


def few_gradients(random):
    return [([],), ([3, 0, 2],), ([int(random.integers(1, 999)), 0],)]


SLICES = Exercise(
    "pool_slices",
    pool_slices,
    (
        Part("several gradients", 1, lambda random: [(random.integers(1, 50, 6).tolist(),)]),
        Part("no gradients, an empty one", 1, few_gradients),
    ),
)

# ---- lazy_calls(sizes, theta) ----


def lazy_calls(sizes, theta):
    return definitions.lazy_calls(sizes, FLOAT32, theta)


MORE, EXACTLY = "more than theta bytes are sent", "exactly theta bytes go on waiting"
REST, ENDS = "the rest after the last gradient", "no gradients, theta = 0, theta infinite"


def thetas(random):
    """One theta that no sum of float32 gradients reaches exactly, and the sizes of 20 gradients."""
    return random.integers(1, 12, 20).tolist(), 4 * int(random.integers(3, 30)) + 2


def without_a_rest(random):
    """The last gradient has more than theta bytes by itself."""
    sizes, theta = thetas(random)
    return [([1, 2, 3, 1, 4], 14), ([*sizes, 31], theta)]


def exactly_theta(random):
    k = int(random.integers(2, 999))
    return [([2, 1, 2, 9], 12), ([1, 1, 1, 1, 5], 4), ([k, 1, k + 2], 4 * k + 4)]


def with_a_rest(random):
    sizes, theta = thetas(random)
    return [([1, 2, 3, 1, 2], 14), ([3, 1, 1], 10), ([*sizes, 31, 1, 1], theta)]


def lazy(sizes, theta, itemsize=FLOAT32, equal=False, reset=True, flush=True, always=False):
    """The rule of the lesson; the keywords make its typical mistakes."""
    calls, start, waiting = [], 0, 0
    for stop in accumulate(sizes):
        waiting = (stop - start if reset else stop) * itemsize
        if waiting > theta or equal and waiting == theta:
            calls.append((start, stop))
            start = stop
    stop = sum(sizes)
    return calls + [(start, stop)] * (flush and (start < stop or always))


def greater_or_equal(sizes, theta):
    return lazy(sizes, theta, equal=True)


def without_flush(sizes, theta):
    return lazy(sizes, theta, flush=False)


def flushes_nothing(sizes, theta):
    return lazy(sizes, theta, always=True)


def one_call(sizes, theta):
    return [(0, sum(sizes))]


def elements_for_bytes(sizes, theta):
    return lazy(sizes, theta, itemsize=1)


def all_bytes_so_far(sizes, theta):
    return lazy(sizes, theta, reset=False)


def sends_before_theta(sizes, theta):
    calls, start = [], 0
    for first, stop in pool_slices(sizes):
        if first > start and (stop - start) * FLOAT32 > theta:
            calls.append((start, first))
            start = first
    return calls + [(start, sum(sizes))] * (start < sum(sizes))


def ends(random):
    drawn = random.integers(1, 99, 3).tolist(), inf
    return [([], 8), ([2, 3], 0), ([2, 3, 1], inf), drawn]


CALLS = Exercise(
    "lazy_calls",
    lazy_calls,
    (
        Part(MORE, 2, without_a_rest),
        Part(EXACTLY, 1, exactly_theta),
        Part(REST, 2, with_a_rest),
        Part(ENDS, 1, ends),
    ),
    (
        Mistake(
            "you send as soon as theta bytes wait; the rule says more than theta",
            greater_or_equal,
            (EXACTLY,),
        ),
        Mistake(
            "your flush is missing: what waits after the last gradient is never sent",
            without_flush,
            (REST, ENDS),
        ),
        Mistake(
            "your flush makes a call of 0 elements when nothing waits",
            flushes_nothing,
            (MORE, EXACTLY, ENDS),
        ),
        Mistake(
            "you sum everything in one call, whatever theta is",
            one_call,
            (MORE, EXACTLY, REST, ENDS),
        ),
        Mistake(
            "you compare elements with theta, which is in bytes: a float32 has 4",
            elements_for_bytes,
            (MORE, EXACTLY, REST),
        ),
        Mistake(
            "you compare all bytes of the pool so far with theta, not those that wait: after a "
            "call, count from 0 again",
            all_bytes_so_far,
            (MORE, EXACTLY, REST),
        ),
        Mistake(
            "your calls have at most theta bytes: the gradient that exceeds theta is sent with "
            "those that waited, not after them",
            sends_before_theta,
            (MORE, EXACTLY, REST),
        ),
    ),
)

# ---- sum_calls(gradients, calls, rank) ----


def sum_calls(gradients, calls, rank, dtype=np.float32, others=None, divisor=1):
    """The keywords make the typical mistakes. others: pools -> what lies outside the calls."""
    pools = [np.concatenate([np.zeros(0), *map(np.ravel, g)]).astype(dtype) for g in gradients]
    result = pools[rank].copy() if others is None else others(pools)
    for start, stop in calls:
        result[start:stop] = sum(pool[start:stop] for pool in pools) / divisor
    slices = pool_slices([g.size for g in gradients[rank]])
    return [result[i:j].reshape(g.shape) for (i, j), g in zip(slices, gradients[rank])]


ALL, OUTSIDE, FEW = (
    "the calls sum all gradients",
    "a gradient that no call sums",
    "one rank, no call, an empty gradient",
)


def on_ranks(random, p, shapes):
    """Whole numbers: their float32 sums are exact in any order."""
    return [[random.integers(1, 99, s).astype(np.float32) for s in shapes] for _ in range(p)]


def all_summed(random):
    return [
        (on_ranks(random, 3, [(4,), (2, 3), (5,)]), [(0, 10), (10, 15)], 1),
        (on_ranks(random, 2, [(1,), (1, 2)]), [(0, 3)], 1),
    ]


def some_summed(random):
    small = on_ranks(random, 2, [(1,), (1, 2)]), [(0, 1)], 1
    return [small, (on_ranks(random, 3, [(4,), (2, 3), (5,)]), [(0, 4)], 2)]


def few(random):
    return [
        (on_ranks(random, 1, [(4,), (3,)]), [(0, 7)], 0),
        (on_ranks(random, 2, [(4,)]), [], 1),
        (on_ranks(random, 2, [(2,), (0,), (1,)]), [(0, 2), (2, 3)], 1),
    ]


def mean_of_calls(gradients, calls, rank):
    return sum_calls(gradients, calls, rank, divisor=len(gradients))


def float64_pool(gradients, calls, rank):
    return sum_calls(gradients, calls, rank, dtype=np.float64)


def flat_gradients(gradients, calls, rank):
    return [g.ravel() for g in sum_calls(gradients, calls, rank)]


def sums_everything(gradients, calls, rank):
    return sum_calls(gradients, calls, rank, others=sum)


def zeros_outside(gradients, calls, rank):
    return sum_calls(gradients, calls, rank, others=lambda pools: np.zeros_like(pools[0]))


SUMS = Exercise(
    "sum_calls",
    sum_calls,
    (Part(ALL, 3, all_summed), Part(OUTSIDE, 1, some_summed), Part(FEW, 1, few)),
    (
        Mistake(
            "your calls return the mean over the ranks; wanted the sum",
            mean_of_calls,
            (ALL, OUTSIDE, FEW),
        ),
        Mistake(
            "your pool is float64: give np.zeros and np.empty the gradients' type",
            float64_pool,
            (ALL, OUTSIDE, FEW),
        ),
        Mistake(
            "you return slices of the pool; wanted each gradient in its own shape (reshape)",
            flat_gradients,
            (ALL, OUTSIDE),
        ),
        Mistake(
            "you sum the whole pool; a gradient that no call sums stays the rank's own",
            sums_everything,
            (OUTSIDE, FEW),
        ),
        Mistake(
            "your pool starts from zeros, so a gradient that no call sums is lost",
            zeros_outside,
            (OUTSIDE, FEW),
        ),
    ),
)

# ---- step_seconds(calls, compute_s, a, b) ----


def step_seconds(calls, compute_s, a, b):
    return compute_s + sum(a + b * FLOAT32 * (stop - start) for start, stop in calls)


def one_latency(calls, compute_s, a, b):
    return step_seconds(calls, compute_s, 0.0, b) + a


def elements_cost(calls, compute_s, a, b):
    return step_seconds(calls, compute_s, a, b / FLOAT32)


def the_longer_one(calls, compute_s, a, b):
    return max(compute_s, step_seconds(calls, 0.0, a, b))


SEVERAL, NONE = "several calls", "no call"


def priced(random):
    sizes = random.integers(1, 10**6, 7).tolist()
    return [([(0, 3), (3, 10)], 0.25, 1e-3, 1e-8), (pool_slices(sizes), 0.5, 2e-3, 1e-9)]


SECONDS = Exercise(
    "step_seconds",
    step_seconds,
    (
        Part(SEVERAL, 2, priced),
        Part(
            NONE,
            1,
            lambda random: [([], s, 1e-3, 1e-9) for s in (0.5, float(random.uniform(0.1, 2.0)))],
        ),
    ),
    (
        Mistake("every call pays the latency a, not each step once", one_latency, (SEVERAL, NONE)),
        Mistake("b is for a byte, and a float32 has 4 of them", elements_cost, (SEVERAL,)),
        Mistake(
            "you take the longer of computation and communication; without overlap they add up",
            the_longer_one,
            (SEVERAL,),
        ),
    ),
    relative=1e-12,  # the operations may be in another order: a few roundings of 1e-16
)

EXERCISES = (SLICES, CALLS, SUMS, SECONDS)
