"""L1 to L3: which tensors each call sums.

Lesson 03 asks for the places of gradients in the pool, and for the calls of float32 gradients.
"""

from itertools import accumulate
from math import inf
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from refgf.oracle.spec.calls import Outputs, number, pairs
from refgf.oracle.spec.case import Case
from refgf.oracle.spec.draw import Draw, pick, some_sizes
from refgf.oracle.spec.exercise import Arguments, Exercise
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement

WIRE_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
Calls = list[tuple[int, int]]  # (start, stop) of each call, in elements of the pool
FLOAT32 = 4  # bytes

# ---- L1: more than theta ----


def lazy_calls(sizes: list[int], itemsize: int, theta_bytes: float) -> Calls:
    """L1: when the waiting tensors' bytes are greater than theta, one call sums them all; with
    exactly theta bytes they go on waiting.

    Source: GradientFlow by the article.

    sizes: elements of each tensor in the order of generation. theta = 0 sends each tensor by
    itself, infinity all of them in one call.
    """
    calls, start, stop = [], 0, 0
    for size in sizes:
        stop += size
        if (stop - start) * itemsize > theta_bytes:
            calls.append((start, stop))
            start = stop
    return calls + lazy_rest(start, stop)


def run_calls(module: Any, case: Case) -> Outputs:
    a, sizes = case.arguments, case["in.sizes"].tolist()
    return {"out.calls": pairs(module.lazy_calls(sizes, a["itemsize"], number(a["theta_bytes"])))}


L1 = Statement("L1", lazy_calls)
CALLS = JudgedFunction(lazy_calls, "L1 L2", {"calls": ("call", "start, stop")}, "sizes", run_calls)


@CALLS.fresh
def any_calls(d: Draw) -> dict[str, Any]:
    sizes = some_sizes(d.rng, d.n)
    return {"itemsize": 4, "theta_bytes": any_theta(d, sizes), "sizes": sizes}


def any_theta(d: Draw, sizes: np.ndarray) -> int | str:
    """Often exactly the bytes of the first tensors."""
    first = int(sizes[: d.integer(0, len(sizes))].sum())
    return pick(d.rng, 0, "inf", 2 * first, 4 * first, 4 * first + 1)


@CALLS.golden
def call_cases() -> Cases:
    sizes = np.array([10, 0, 6, 1, 40, 3, 16, 2])
    for theta, why in (
        (0, "eager: each tensor that is not empty by itself"),
        ("inf", "one call"),
        (64, "exactly theta keeps waiting: 16 elements of 4 bytes are not greater"),
        (63, "one byte below: greater"),
        (159, "a tensor that is greater by itself takes what waits before it"),
        (10**6, "never reached: flushed at the end"),
    ):
        name = f"lazy-calls-theta-{theta}"
        yield CALLS.case(name, why, itemsize=4, theta_bytes=theta, sizes=sizes)
    why = "nothing waits at the end: no call"
    for name, other in (("nothing", []), ("empty-tensors", [0, 0]), ("ends-on-a-call", [5, 20])):
        given: dict[str, Any] = {
            "itemsize": 4,
            "theta_bytes": 64,
            "sizes": np.array(other, np.int64),
        }
        yield CALLS.case(f"lazy-calls-{name}", why, "L2", **given)


@L1.mistake("fires at theta, not above it")
def fires_at_theta(sizes, itemsize, theta_bytes):
    calls, start, stop = [], 0, 0
    for size in sizes:
        stop += size
        if (stop - start) * itemsize >= theta_bytes and stop > start:
            calls.append((start, stop))
            start = stop
    return calls + lazy_rest(start, stop)


@L1.mistake("the tensor that passes theta is left for the next call")
def leaves_the_last(sizes, itemsize, theta_bytes):
    calls, start, stop = [], 0, 0
    for size in sizes:
        if stop > start and (stop + size - start) * itemsize > theta_bytes:
            calls.append((start, stop))
            start = stop
        stop += size
    return calls + lazy_rest(start, stop)


@L1.mistake("sent tensors are sent again: every call begins with the first tensor")
def sent_again(sizes, itemsize, theta_bytes):
    calls, stop = [], 0
    for size in sizes:
        stop += size
        if stop * itemsize > theta_bytes:
            calls.append((0, stop))
    return calls + lazy_rest(0, stop)


# ---- L2: the rest ----


def lazy_rest(start: int, stop: int) -> Calls:
    """L2: after the last gradient one call sums the rest; if no tensor waits there is no call. A
    tensor without elements does not wait.

    Source: necessary; not in the text at hand.
    """
    return [(start, stop)] if stop > start else []


L2 = Statement("L2", lazy_rest)


@L2.mistake("last bucket forgotten")
def never_flushed(start, stop):
    return []


@L2.mistake("an empty call at the end if no tensor waits")
def always_flushed(start, stop):
    return [(start, stop)]


# ---- L3: bytes on the wire ----


def bytes_per_gradient(dtype: DTypeLike, wire: str | None = None) -> int:
    """L3: theta counts bytes on the wire.

    Source: chosen.

    These are 2 a gradient for a 16-bit wire type.
    """
    return WIRE_BYTES[wire or str(dtype)]


L3 = Statement("L3", bytes_per_gradient)


@L3.mistake("theta counts the bytes of the array, not of the wire")
def bytes_of_the_array(dtype, wire=None):
    return np.dtype(dtype).itemsize


# ---- exercise pool_slices: given in the starter ----


def pool_slices(sizes: list[int]) -> Calls:
    return [(stop - size, stop) for size, stop in zip(sizes, accumulate(sizes))]


SLICES_03 = Exercise("03.1", pool_slices)
SLICES_03.part("several gradients", 1, lambda random: [(random.integers(1, 50, 6).tolist(),)])
SLICES_03.part(
    "no gradients, an empty one",
    1,
    lambda random: [([],), ([3, 0, 2],), ([int(random.integers(1, 999)), 0],)],
)

# ---- exercise lazy_calls, of float32 gradients ----


def float32_calls(sizes: list[int], theta: float) -> Calls:
    return lazy_calls(sizes, FLOAT32, theta)


def thetas(random: np.random.Generator) -> tuple[list[int], int]:
    """One theta that no sum of float32 gradients reaches exactly, and the sizes of 20 gradients."""
    return random.integers(1, 12, 20).tolist(), 4 * int(random.integers(3, 30)) + 2


def without_a_rest(random: np.random.Generator) -> list[Arguments]:
    """The last gradient has more than theta bytes by itself."""
    sizes, theta = thetas(random)
    return [([1, 2, 3, 1, 4], 14), ([*sizes, 31], theta)]


def exactly_theta(random: np.random.Generator) -> list[Arguments]:
    k = int(random.integers(2, 999))
    return [([2, 1, 2, 9], 12), ([1, 1, 1, 1, 5], 4), ([k, 1, k + 2], 4 * k + 4)]


def with_a_rest(random: np.random.Generator) -> list[Arguments]:
    sizes, theta = thetas(random)
    return [([1, 2, 3, 1, 2], 14), ([3, 1, 1], 10), ([*sizes, 31, 1, 1], theta)]


def ends(random: np.random.Generator) -> list[Arguments]:
    drawn = [(random.integers(1, 99, 3).tolist(), theta) for theta in (inf, 0)]
    return [([], 8), ([2, 3], 0), ([2, 3, 1], inf), *drawn]


CALLS_03 = Exercise("03.2", float32_calls, "lazy_calls")
CALLS_03.part("more than theta bytes are sent", 2, without_a_rest)
CALLS_03.part("exactly theta bytes go on waiting", 1, exactly_theta)
CALLS_03.part("the rest after the last gradient", 2, with_a_rest)
CALLS_03.part("no gradients, theta = 0, theta infinite", 1, ends)


def lazy(
    sizes: list[int],
    theta: float,
    itemsize: int = FLOAT32,
    equal: bool = False,
    reset: bool = True,
    flush: bool = True,
    always: bool = False,
) -> Calls:
    """The rule of the lesson; the keywords make its typical mistakes."""
    calls, start, waiting = [], 0, 0
    for stop in accumulate(sizes):
        waiting = (stop - start if reset else stop) * itemsize
        if waiting > theta or equal and waiting == theta:
            calls.append((start, stop))
            start = stop
    stop = sum(sizes)
    return calls + [(start, stop)] * (flush and (start < stop or always))


@CALLS_03.mistake("you send as soon as theta bytes wait; the rule says more than theta")
def greater_or_equal(sizes, theta):
    return lazy(sizes, theta, equal=True)


@CALLS_03.mistake("your flush is missing: what waits after the last gradient is never sent")
def without_flush(sizes, theta):
    return lazy(sizes, theta, flush=False)


@CALLS_03.mistake("your flush makes a call of 0 elements when nothing waits")
def flushes_nothing(sizes, theta):
    return lazy(sizes, theta, always=True)


@CALLS_03.mistake("you sum everything in one call, whatever theta is")
def one_call(sizes, theta):
    return [(0, sum(sizes))]


@CALLS_03.mistake("you compare elements with theta, which is in bytes: a float32 has 4")
def elements_for_bytes(sizes, theta):
    return lazy(sizes, theta, itemsize=1)


@CALLS_03.mistake(
    "you compare all bytes of the pool so far with theta, not those that wait: after a call, "
    "count from 0 again"
)
def all_bytes_so_far(sizes, theta):
    return lazy(sizes, theta, reset=False)


@CALLS_03.mistake(
    "your calls have at most theta bytes: the gradient that exceeds theta is sent with those that "
    "waited, not after them"
)
def sends_before_theta(sizes, theta):
    return leaves_the_last(sizes, FLOAT32, theta)
