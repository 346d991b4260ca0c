"""Lesson 07: the calls of the whole stack, their sums, what each technique gains in which order.

It puts together what L, P and C state, and has no statement of its own.
"""

from collections.abc import Callable
from itertools import combinations
from math import inf, prod
from typing import Any

import numpy as np

from refgf.oracle.spec.csc.importance import chunk_bounds
from refgf.oracle.spec.exercise import Arguments, Exercise, tenths
from refgf.oracle.spec.lazy.calls import lazy_calls
from refgf.oracle.spec.ring import Arrays

ROUNDINGS = 1e-12  # the operations may be in another order: a few roundings of 1e-16

# ---- traffic(calls, p): given in the starter ----


def traffic(calls: list[int], p: int) -> tuple[int, float]:
    return 2 * (p - 1) * len(calls), 2 * (p - 1) / p * sum(calls)


def of_several_ranks(random: np.random.Generator) -> list[Arguments]:
    return [([8, 12], 4), (random.integers(1, 10**6, 5).tolist(), int(random.integers(2, 64)))]


def few_calls(random: np.random.Generator) -> list[Arguments]:
    return [([8, 12], 1), ([], 4), (random.integers(1, 10**6, 3).tolist(), 1)]


TRAFFIC_07 = Exercise("07.1", traffic, relative=ROUNDINGS)
TRAFFIC_07.part("several ranks", 1, of_several_ranks)
TRAFFIC_07.part("one rank, no call", 1, few_calls)

# ---- call_bytes(sizes, theta, half, chunk, chosen) ----


DENSE, HALF = "float32, all gradients", "float16 on the wire, all gradients"

CSC, SHORT = "chosen chunks only", "the last chunk, which is shorter"

EXACTLY, ENDS = "exactly theta bytes go on waiting", "nothing to send, theta = 0, theta infinite"


def items_of(sizes: list[int], chunk: int, chosen: list[int] | None) -> list[int]:
    """Elements of what is sent, one item after another: gradients, or chosen chunks."""
    if chosen is None:
        return sizes
    bounds = chunk_bounds(sum(sizes), chunk)
    return [bounds[i][1] - bounds[i][0] for i in chosen]


def call_bytes(
    sizes: list[int], theta: float, half: bool, chunk: int, chosen: list[int] | None
) -> list[int]:
    items, itemsize = items_of(sizes, chunk, chosen), 2 if half else 4
    calls = lazy_calls(items, itemsize, theta)
    return [itemsize * (stop - start) for start, stop in calls]


def lazy(
    items: list[int],
    theta: float,
    itemsize: int,
    counted: int | None = None,
    equal: bool = False,
    flush: bool = True,
) -> list[int]:
    """The rule of lesson 03; the keywords make typical mistakes. counted: bytes of an element."""
    calls, waiting = [], 0
    for size in items:
        waiting += size
        total = waiting * (counted or itemsize)
        if total > theta or equal and total == theta:
            calls.append(itemsize * waiting)
            waiting = 0
    return calls + [itemsize * waiting] * (flush and waiting > 0)


def drawn(random: np.random.Generator) -> list[int]:
    """Sizes of 22 gradients, the last but one large and the last one small."""
    return [*random.integers(1, 12, 20).tolist(), 90, 1]


def dense(random: np.random.Generator) -> list[Arguments]:
    """theta is even, but no multiple of 4: no sum of float32 gradients has so many bytes."""
    theta = 4 * int(random.integers(3, 30)) + 2
    return [([1, 2, 2, 8, 1, 1], 17, False, 4, None), (drawn(random), theta, False, 4, None)]


def half(random: np.random.Generator) -> list[Arguments]:
    theta = 2 * int(random.integers(6, 30)) + 1
    return [([1, 2, 2, 8, 1, 1], 9, True, 4, None), (drawn(random), theta, True, 4, None)]


def sparse(random: np.random.Generator) -> list[Arguments]:
    """6 or 11 of 20 chunks of 10 elements, of which float16 sends 20 bytes each."""
    chosen = sorted(random.choice(20, 11, replace=False).tolist())
    sizes = [*random.integers(1, 18, 10).tolist(), 5]
    sizes.append(200 - sum(sizes))
    rows = [([5, 7, 8], 9, True, 4, [0, 2, 3]), ([5, 7, 8], 25, False, 4, [0, 1, 4])]
    rows.append((sizes, 71, True, 10, [0, 1, 2, 4, 9, 12]))
    return rows + [(sizes, 20 * int(random.integers(1, 3)) + 5, True, 10, chosen)]


def short(random: np.random.Generator) -> list[Arguments]:
    """The last chunk by itself, so neither theta nor the calls matter."""
    chunk, whole, rest = 7, int(random.integers(1, 9)), int(random.integers(1, 7))
    rows = [([5, 6], 0, True, 4, [2]), ([4, 9], 0, False, 5, [2])]
    return rows + [([whole * chunk, rest], 0, True, chunk, [whole])]


def exactly(random: np.random.Generator) -> list[Arguments]:
    """All float32, so what is wrong with float16 changes nothing here."""
    k = int(random.integers(2, 999))
    rows = [([2, 1, 2, 9], 12, False, 4, None), ([k, 1, k + 2], 4 * k + 4, False, 4, None)]
    return rows + [([5, 7, 18], 24, False, 3, list(range(10)))]


def ends(random: np.random.Generator) -> list[Arguments]:
    rows: list[Arguments] = [([], 8, False, 4, None), ([5, 3], 8, True, 4, [])]
    rows.append(([2, 3], 0, True, 4, None))
    drawn = random.integers(1, 99, 3).tolist()
    return rows + [(sizes, inf, False, 4, None) for sizes in ([2, 3, 1], drawn)]


CALLS_07 = Exercise("07.2", call_bytes)
CALLS_07.part(DENSE, 1, dense)
CALLS_07.part(HALF, 2, half)
CALLS_07.part(CSC, 2, sparse)
CALLS_07.part(SHORT, 1, short)
CALLS_07.part(EXACTLY, 1, exactly)
CALLS_07.part(ENDS, 1, ends)


@CALLS_07.mistake("you send as soon as theta bytes wait; the rule says more than theta")
def greater_or_equal(sizes, theta, half, chunk, chosen):
    return lazy(items_of(sizes, chunk, chosen), theta, 2 if half else 4, equal=True)


@CALLS_07.mistake("your flush is missing: what waits at the end is never sent")
def without_flush(sizes, theta, half, chunk, chosen):
    return lazy(items_of(sizes, chunk, chosen), theta, 2 if half else 4, flush=False)


@CALLS_07.mistake("you count 4 bytes an element, whatever half says; float16 has 2")
def half_ignored(sizes, theta, half, chunk, chosen):
    return lazy(items_of(sizes, chunk, chosen), theta, 4)


@CALLS_07.mistake("theta counts bytes on the wire: float16 has 2, not 4")
def theta_in_float32(sizes, theta, half, chunk, chosen):
    return lazy(items_of(sizes, chunk, chosen), theta, 2 if half else 4, counted=4)


@CALLS_07.mistake("the last chunk of the pool may be shorter than the others")
def all_chunks_alike(sizes, theta, half, chunk, chosen):
    items = sizes if chosen is None else [chunk] * len(chosen)
    return lazy(items, theta, 2 if half else 4)


CALLS_07.given(
    "you send all gradients; with CSC only the chosen chunks are sent", chosen=lambda chosen: None
)


# ---- exchange(gradients, residuals, chosen) ----

ROUNDED, KEPT = "float16 on the wire, all chosen", "residuals, numbers that float16 holds"

BOTH, FEW = "float16 and residuals", "one rank, nothing chosen, no elements"


def rounded(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float16).astype(np.float32)


def exchange(
    gradients: Arrays,
    residuals: Arrays,
    chosen: np.ndarray,
    on_wire: Callable[..., Any] = rounded,
    finished: Callable[..., Any] = rounded,
    kept: Callable[..., Any] = np.copy,
) -> tuple[np.ndarray, Arrays]:
    """on_wire, finished, kept: what happens to a rank's numbers, the sum and the residuals."""
    waiting = [g + r for g, r in zip(gradients, residuals)]
    sums, new = np.zeros_like(gradients[0]), [np.where(chosen, 0, kept(x)) for x in waiting]
    terms = [on_wire(x[chosen]) for x in waiting]
    sums[chosen] = finished(sum(terms[1:], terms[0]))
    return sums, [x.astype(np.float32) for x in new]


def numbers(random: np.random.Generator, p: int, n: int) -> tuple[Arrays, Arrays]:
    """Gradients and residuals of the same sign, not small: float32 holds all sums exactly."""
    gradients = random.uniform(0.5, 60, (p, n)) * random.choice([-1, 1], (p, n))
    residuals = gradients * random.uniform(0.2, 0.9, (p, n))
    return list(gradients.astype(np.float32)), list(residuals.astype(np.float32))


def short_numbers(random: np.random.Generator, p: int, n: int) -> tuple[Arrays, Arrays]:
    return list(tenths(random, p, n)), list(tenths(random, p, n))


def some(random: np.random.Generator, n: int) -> np.ndarray:
    """A third of n elements."""
    chosen = np.zeros(n, bool)
    chosen[random.choice(n, n // 3, replace=False)] = True
    return chosen


def all_chosen(random: np.random.Generator) -> list[Arguments]:
    rows = [list(tenths(random, 3, 4)) for _ in range(4)]
    rows += [numbers(random, p, 60)[0] for p in (3, 5)]
    return [(g, [np.zeros_like(x) for x in g], np.ones(g[0].size, bool)) for g in rows]


def whole_numbers(random: np.random.Generator) -> list[Arguments]:
    rows = [random.integers(1, 99, (2, p, n)).astype(np.float32) for p, n in ((2, 4), (3, 12))]
    return [(list(g), list(r), some(random, len(g[0]))) for g, r in rows]


def both(random: np.random.Generator) -> list[Arguments]:
    small = [(*short_numbers(random, 3, 4), some(random, 4)) for _ in range(6)]
    return small + [(*numbers(random, p, 60), some(random, 60)) for p in (3, 5)]


def few(random: np.random.Generator) -> list[Arguments]:
    g, r = random.integers(1, 99, (2, 2, 6)).astype(np.float32)
    empty = [np.zeros(0, np.float32)] * 2
    return [
        (*short_numbers(random, 1, 6), some(random, 6)),
        (list(g), list(r), np.zeros(6, bool)),
        (empty, empty, np.zeros(0, bool)),
    ]


EXCHANGE_07 = Exercise("07.3", exchange)
EXCHANGE_07.part(ROUNDED, 2, all_chosen)
EXCHANGE_07.part(KEPT, 2, whole_numbers)
EXCHANGE_07.part(BOTH, 1, both)
EXCHANGE_07.part(FEW, 1, few)


@EXCHANGE_07.mistake("you do not add the residual to the gradient, so it is never sent")
def residual_ignored(gradients, residuals, chosen):
    return exchange(gradients, [np.zeros_like(r) for r in residuals], chosen)


@EXCHANGE_07.mistake("what you do not send is lost: it is the residual of the next step")
def unsent_is_lost(gradients, residuals, chosen):
    return exchange(gradients, residuals, chosen, kept=np.zeros_like)


@EXCHANGE_07.mistake(
    "where nothing is sent, your residual stays as it was; wanted the old residual plus the "
    "gradient"
)
def residual_stays(gradients, residuals, chosen):
    new = [np.where(chosen, np.float32(0), r) for r in residuals]
    return exchange(gradients, residuals, chosen)[0], new


@EXCHANGE_07.mistake(
    "you round nothing: the chosen elements are sent as float16, and so is their sum"
)
def not_rounded(gradients, residuals, chosen):
    return exchange(gradients, residuals, chosen, on_wire=np.copy, finished=np.copy)


@EXCHANGE_07.mistake("you send the gradient without the residual: add it before anything is sent")
def without_residual(gradients, residuals, chosen):
    sums, _ = residual_ignored(gradients, residuals, chosen)
    return sums, exchange(gradients, residuals, chosen)[1]


@EXCHANGE_07.mistake("what was sent is no residual: set it to 0, or it is sent twice")
def residual_not_cleared(gradients, residuals, chosen):
    new = [g + r for g, r in zip(gradients, residuals)]
    return exchange(gradients, residuals, chosen)[0], new


@EXCHANGE_07.mistake("you sum what was not chosen too: the result is 0 there")
def sums_everything(gradients, residuals, chosen):
    sums, _ = exchange(gradients, residuals, np.ones_like(chosen))
    return sums, exchange(gradients, residuals, chosen)[1]


@EXCHANGE_07.mistake("you round residuals, but they stay on their rank as float32")
def residual_rounded(gradients, residuals, chosen):
    return exchange(gradients, residuals, chosen, kept=rounded)


EXCHANGE_07.given(
    "you round the gradient before you add the residual; rounding is the last thing before sending",
    gradients=lambda gradients: [rounded(g) for g in gradients],
)


@EXCHANGE_07.mistake("you do not round the sum, but it is sent to all ranks as float16 too")
def sum_not_rounded(gradients, residuals, chosen):
    return exchange(gradients, residuals, chosen, finished=np.copy)


@EXCHANGE_07.mistake(
    "your sums are in float16: only the wire has 16 bits, additions are in float32"
)
def float16_sums(gradients, residuals, chosen):
    return exchange(gradients, residuals, chosen, on_wire=lambda x: x.astype(np.float16))


# ---- gains(off_s, steps_s, order) ----

SORTED, OTHER = "techniques in the alphabet's order", "techniques in another order"

COSTS, NONE = "a technique that costs time", "no technique"


def key(techniques: str | tuple[str, ...]) -> str:
    return "".join(sorted(techniques))


def steps_in(steps_s: dict[str, float], order: str) -> list[float]:
    return [steps_s[key(order[:i])] for i in range(len(order) + 1)]


def rows(off_s: float, gained: list[float], steps: list[float]) -> list[tuple[float, float]]:
    return [(gain_s, 100 * off_s / step_s) for gain_s, step_s in zip(gained, steps[1:])]


def gains(off_s: float, steps_s: dict[str, float], order: str) -> list[tuple[float, float]]:
    steps = steps_in(steps_s, order)
    return rows(off_s, [before - after for before, after in zip(steps, steps[1:])], steps)


def stacks(random: np.random.Generator, techniques: str) -> dict[str, float]:
    """The step of each set of techniques. Each shortens it by a factor."""
    factors = dict(zip(techniques, random.uniform(0.4, 0.9, len(techniques)).tolist()))
    sets = [chosen for k in range(len(techniques) + 1) for chosen in combinations(techniques, k)]
    return {key(chosen): 8.0 * prod(factors[t] for t in chosen) for chosen in sets}


EXAMPLE = {"": 10.0, "H": 6.0, "O": 8.0, "HO": 5.0}


def in_order(random: np.random.Generator) -> list[Arguments]:
    return [(3.0, EXAMPLE, "HO"), (0.125, stacks(random, "CHLO"), "CHLO")]


def in_another_order(random: np.random.Generator) -> list[Arguments]:
    order = str(random.choice(["OLHC", "HOCL", "LCOH", "OHLC"]))
    return [(3.0, EXAMPLE, "OH"), (0.125, stacks(random, "CHLO"), order)]


def longer(random: np.random.Generator) -> list[Arguments]:
    step_s, more_s = random.uniform(3.0, 9.0, 2).tolist()
    return [(2.0, {"": 4.0, "L": 5.0}, "L"), (2.0, {"": step_s, "L": step_s + more_s}, "L")]


def nothing(random: np.random.Generator) -> list[Arguments]:
    return [(2.0, {"": step_s}, "") for step_s in (4.0, float(random.uniform(3.0, 9.0)))]


GAINS_07 = Exercise("07.4", gains, relative=ROUNDINGS)
GAINS_07.part(SORTED, 1, in_order)
GAINS_07.part(OTHER, 1, in_another_order)
GAINS_07.part(COSTS, 1, longer)
GAINS_07.part(NONE, 1, nothing)


GAINS_07.given(
    "you switch techniques on in the alphabet's order, whatever order is given",
    order=lambda order: key(order),
)


@GAINS_07.mistake("you measure each technique by itself; wanted what it adds to those before it")
def each_by_itself(off_s, steps_s, order):
    return rows(off_s, [steps_s[""] - steps_s[t] for t in order], steps_in(steps_s, order))


@GAINS_07.mistake("your gain is that of all techniques so far, not of the last one")
def all_so_far(off_s, steps_s, order):
    steps = steps_in(steps_s, order)
    return rows(off_s, [steps[0] - step_s for step_s in steps[1:]], steps)


@GAINS_07.mistake("a technique that makes the step longer has a negative gain, not 0")
def never_negative(off_s, steps_s, order):
    return [(max(0.0, gain_s), percent) for gain_s, percent in gains(off_s, steps_s, order)]
