"""Times of allreduce calls: one after another, in a communication thread, and inside steps.

    times = call_times.measure(run, allreduce, sizes, repeats)      {elements: Timing} of a call
    fit = call_times.fit(run, times, itemsize)                      T(m) = a + b m
    curve = call_times.queued(run, sizes, allreduce)                T(m) in a communication thread
    curve, compute_s = call_times.in_steps(run, model, batches, curve, allreduce)
    compute_s = call_times.compute_with_thread(run, model, batches, curve, allreduce)
    share = call_times.kept_share(run, elements, allreduce)

In a series of calls all ranks arrive together. Inside a step they arrive one by one, from
computing, with cold caches; ranks that wait take cores from those that still compute. So calls
inside steps are measured separately.
"""

from functools import partial

import numpy as np

import kit
from kit import step_times
from refgf.exchange.result import StepResult
from refgf.exchange.overlap import CommunicationThread
from refgf.predict.cost import Line
from refgf.predict import fit as measured
from refgf.predict.fit import Curve
from refgf.predict.fit import fit_line

SHORT, LONG_ELEMENTS = 256, 1 << 16  # shorter calls are queued in tens, longer ones in twos
SHORT_BYTES, SHORT_REPEATS = 1 << 16, 5
SIDE, PRODUCTS = 96, 100  # a load: products of matrices that stay in the cache
LONGER = 2  # than the concurrent call


def measure(run: kit.Run, allreduce, sizes, repeats: int, dtype=np.float32) -> dict:
    """{elements: Timing} of an allreduce of that many zeros. Collective.

    Below SHORT_BYTES the repeats are SHORT_REPEATS times as many: they take little time, and the
    latency depends on them.
    """
    times = {}
    for n in sorted(set(sizes)):
        x = run.xp.zeros(n, dtype)
        often = repeats * (SHORT_REPEATS if x.nbytes < SHORT_BYTES else 1)
        times[n] = run.time(partial(allreduce, x), often)
    return times


def fit(run: kit.Run, times: dict, itemsize: int = 4):
    """T(m) = a + b m, m in bytes on the wire, through {elements: Timing}. -> Fit"""
    return _fit(run, [(itemsize * n, timing.median_s) for n, timing in times.items()])


def _fit(run: kit.Run, points):
    """The fitted line; nearly zero on one rank, which sends nothing."""
    return fit_line(points if run.size > 1 else [(1, 1e-9), (10**9, 1e-9)])


def queued(run: kit.Run, sizes, allreduce, itemsize: int = 4, repeats: int = 5) -> Curve:
    """T(m) of calls that are queued in a communication thread; m in bytes on the wire.

    A Curve, because short messages may use the credit of an idle link: a line would be too fast.
    """
    thread = CommunicationThread()
    counts = {max(1, n): 10 if n < LONG_ELEMENTS else 2 for n in sorted(sizes)}

    def series(x, count):
        for _ in range(count):
            thread.run(allreduce, x)
        thread.wait()

    calls = {n: partial(series, run.xp.zeros(n, np.float32), count) for n, count in counts.items()}
    timings = run.alternate(calls, repeats)
    thread.close()
    return Curve(tuple((itemsize * n, t.median_s / counts[n]) for n, t in timings.items()))


def line_of(run: kit.Run, curve: Curve) -> Line:
    """The line a + b m through the points of a Curve."""
    return _fit(run, curve.points).line


def sizes_up_to(n: int, count: int = 8) -> list[int]:
    """Elements from a small tensor to n, in geometric steps."""
    first = min(n, 64)
    return sorted({max(1, round(n * (n / first) ** (i / (count - 1) - 1))) for i in range(count)})


def of_gradients(allreduce, gradients):
    """An Allreduce that first copies gradients (n,) into x, because zeros need no rounding."""

    def call(x):
        x[:] = gradients[: x.size]
        allreduce(x)

    return call


class CallsInBackward:
    """An exchange that sums its own array after each gradient, or only after gradient `only`."""

    def __init__(
        self, run: kit.Run, allreduce, only=None, elements: int = SHORT, wait=lambda: None
    ) -> None:
        self.allreduce, self.only, self.wait = allreduce, only, wait
        self.x = run.xp.zeros(elements, np.float32)

    def ready(self, index: int) -> None:
        if self.only in (None, index):
            self.allreduce(self.x)

    def finish(self) -> StepResult:
        self.wait()
        return StepResult()


def added_to_steps(run: kit.Run, model, batches: list, sizes: list[int], allreduce):
    """(seconds that a call of each size adds to a step, seconds of a step with one short call).

    Compares steps with a call after each gradient and steps with one call after the last.
    """
    last = len(model.gradients.specs) - 1
    exchanges = [CallsInBackward(run, allreduce, last)]
    exchanges += [CallsInBackward(run, allreduce, elements=n) for n in sizes]
    once_s, *each_s = step_times.with_exchanges(run, model, batches, exchanges)
    return [(s - once_s) / last for s in each_s], once_s


def in_steps(run: kit.Run, model, batches: list, curve: Curve, allreduce, itemsize: int = 4):
    """(the Curve inside steps, seconds of computing in such a step).

    Calls of two sizes are measured; the delay of the others is interpolated.
    """
    sizes = [SHORT, max(2 * SHORT, model.gradients.flat.size // 32)]
    found_s, once_s = added_to_steps(run, model, batches, sizes, allreduce)
    at = [itemsize * n for n in sizes]
    late_s = [s - curve(m) for s, m in zip(found_s, at)]
    points = [(m, max(0.0, t + float(np.interp(m, at, late_s)))) for m, t in curve.points]
    curve = Curve(tuple(points))
    return curve, max(0.0, once_s - curve(at[0]))


def compute_with_thread(run: kit.Run, model, batches: list, allreduce_s, allreduce, itemsize=4):
    """Seconds of computing in a step that ends with a sum in the communication thread."""
    thread, last = CommunicationThread(), len(model.gradients.specs) - 1
    exchange = CallsInBackward(run, partial(thread.run, allreduce), last, wait=thread.wait)
    (once_s,) = step_times.with_exchanges(run, model, batches, [exchange])
    thread.close()
    return max(0.0, once_s - allreduce_s(itemsize * SHORT))


def kept_share(run: kit.Run, elements: int, allreduce) -> float:
    """The share of its speed that a computation on all ranks keeps while a call is in flight.

    A rank that sends, adds or waits takes cores. The load is matrix products, not the network, so
    the result is independent of the steps that it helps to predict.
    """
    if run.size == 1:
        return 1.0
    thread = CommunicationThread()
    a, b, c = run.xp.ones((3, SIDE, SIDE), np.float32)
    x, repeats = run.xp.zeros(elements, np.float32), run.quick(2, 7)

    def load(products, call=False):
        if call:
            thread.run(allreduce, x)
        for _ in range(products):
            run.xp.matmul(a, b, out=c)
        thread.wait()

    def median_s(*arguments):
        loads = [partial(load, *arguments)] * (repeats + 1)
        return float(np.median(step_times.since_first_start(run, loads)))

    call_s = median_s(0, True)
    products = max(1, round(PRODUCTS * LONGER * call_s / median_s(PRODUCTS)))
    both_s = median_s(products, True)
    share = measured.kept_share(max(call_s, median_s(products)), call_s, both_s)
    thread.close()
    return share
