"""Computing without an exchange, and beside one: what predictions of overlapped steps start from.

    timing, ready_s = alone.step_alone(run, model, batches)      a step; when each gradient is ready on all ranks
    line = alone.queued(run, sizes, allreduce).line              T(m) of calls in a row, in a communication thread
    line, compute_s = alone.among(run, model, batches, line, allreduce)      of a call that ranks come to from computing
    curve = alone.row(run, sizes, allreduce)                     the same two by size, where a line is not enough
    curve, compute_s = alone.among_by_size(run, model, batches, curve, allreduce)
    compute_s = alone.beside(run, model, batches, curve, allreduce)          of a step that ends with a sum in a thread
    share = alone.kept_share_of(run, elements, allreduce)        of its speed, that a computation keeps beside a call

With more ranks than cores the ranks compute one after another. One that has no core yet leaves the barrier before its step
late, and its own clock does not know it. A sum needs all ranks, so what counts is the time since the *first* one started:

    rank 0   |= forward == backward =|                         second barrier|
    rank 1   |   waits for a core    |= forward == backward =| second barrier|
             |<------- late -------->|<--------- what rank 1's clock says -->|

The clocks of several machines differ; but all leave the second barrier together, so who took less long to it started later.
"""

import statistics
import time
from dataclasses import replace
from functools import partial

import numpy as np

import kit
from refgf.exchange.overlap import CommunicationThread
from refgf.predict.cost import Curve, Line
from refgf.predict.fit import fit_line
from refgf.predict.timeline import kept_share
from refgf.training.step import train_step

SHORT, ROW_ELEMENTS = 256, 1 << 16  # elements of a short call; below, ten calls are a row, else two
SIDE, PRODUCTS = 96, 100  # a load: products of matrices that stay in the cache
LONGER = 2  # than the call beside it


class Clock:
    """An exchange that sums nothing, and notes when each gradient is ready."""

    def __init__(self) -> None:
        self.ready_s = []

    def ready(self, i: int) -> None:
        self.ready_s.append(time.perf_counter())

    def finish(self) -> bool:
        return True


def step_alone(run: kit.Run, model, batches, skip: int = 1):
    """(Timing of a step, when each gradient is ready), both since the first rank started, on the slowest rank.

    Update included; the parameters stay as they are. The first `skip` steps are left out. Collective: two barriers a step.
    """

    def step(batch):
        clock = Clock()
        train_step(model, clock, *batch, rate=0.0)
        return clock.ready_s

    *ready_s, ends_s = noted(run, (partial(step, batch) for batch in batches), skip).T.tolist()
    timing = kit.Timing(statistics.median(ends_s), min(ends_s), max(ends_s), len(ends_s))
    return timing, [statistics.median(each) for each in ready_s]


def row(run: kit.Run, sizes: list[int], allreduce, itemsize: int = 4, repeats: int = 5) -> Curve:
    """T(m) of calls of so many elements, handed to a communication thread in rows; m in bytes on the wire.

    By size: short messages may travel on the credit of a link that was idle, and a line through them would be too fast.
    """
    thread, calls = CommunicationThread(allreduce), {max(1, n): 10 if n < ROW_ELEMENTS else 2 for n in sorted(sizes)}

    def some(x, count):
        for _ in range(count):
            thread(x)
        thread.wait()

    rows = {n: partial(some, np.zeros(n, np.float32), count) for n, count in calls.items()}
    points = [(itemsize * n, timing.median_s / calls[n]) for n, timing in run.alternate(rows, repeats).items()]
    thread.close()
    return Curve(tuple(points))


def queued(run: kit.Run, sizes: list[int], allreduce, itemsize: int = 4, repeats: int = 5):
    """`row` as a line: T(m) = a + b m. -> Fit"""
    points = row(run, sizes, allreduce, itemsize, repeats).points
    return fit_line(points if run.size > 1 else [(1, 1e-9), (10**9, 1e-9)])


def sizes_up_to(n: int, count: int = 8) -> list[int]:
    """Elements from a small tensor to n, each so many times the one before."""
    return sorted({max(1, round(n * (n / min(n, 64)) ** (i / (count - 1) - 1))) for i in range(count)})


def of_gradients(allreduce, gradients):
    """`allreduce`, each time of the first of these gradients (n,) anew: sums of zeros are neither rounded nor too small."""

    def fresh(x):
        x[:] = gradients[: x.size]
        allreduce(x)

    return fresh


class Short:
    """An exchange that sums some numbers of its own after each gradient, or after gradient `only`."""

    def __init__(self, allreduce, only: int | None = None, wait=lambda: None, elements: int = SHORT) -> None:
        self.allreduce, self.only, self.wait, self.x = allreduce, only, wait, np.zeros(elements, np.float32)

    def ready(self, i: int) -> None:
        if self.only in (None, i):
            self.allreduce(self.x)

    def finish(self) -> bool:
        self.wait()
        return True


def steps_s(run: kit.Run, model, batches, exchanges: list) -> list[float]:
    """Medians of training steps with each exchange, one after the other for each batch, the parameters as they are."""

    def step(batch, exchange):
        train_step(model, exchange, *batch, rate=0.0)

    functions = [partial(step, batch, exchange) for batch in batches for exchange in exchanges]
    times_s = noted(run, functions, skip=len(exchanges)).reshape(-1, len(exchanges))  # (steps, exchanges)
    return np.median(times_s, axis=0).tolist()


def calls_among(run: kit.Run, model, batches: list, sizes: list[int], allreduce) -> tuple[list[float], float]:
    """(seconds that a call of each size adds to a step, seconds of a step that sums SHORT numbers at its end).

    Ranks come to a call one by one, from computing, and find cold caches; in a row of calls all are there. Those that wait
    take cores from those that still compute. From steps with a call after each gradient, and after the last alone.
    """
    last = len(model.gradients.specs) - 1
    exchanges = [Short(allreduce, last), *(Short(allreduce, elements=n) for n in sizes)]
    once_s, *each_s = steps_s(run, model, batches, exchanges)
    return [(s - once_s) / last for s in each_s], once_s


def among(run: kit.Run, model, batches: list, line: Line, allreduce) -> tuple[Line, float]:
    """(the line with the start-up that a call has in a step without overlap, seconds of computing in such a step).

    Bytes stay the line's.
    """
    (short_s,), once_s = calls_among(run, model, batches, [SHORT], allreduce)
    line = replace(line, a_s=max(line.a_s, short_s))
    return line, max(0.0, once_s - line.a_s)


def among_by_size(run: kit.Run, model, batches: list, curve: Curve, allreduce, itemsize: int = 4) -> tuple[Curve, float]:
    """`among` for a curve. Calls of two sizes are measured; others are later than in a row by something in between."""
    sizes = [SHORT, max(2 * SHORT, model.gradients.flat.size // 32)]
    found_s, once_s = calls_among(run, model, batches, sizes, allreduce)
    at = [itemsize * n for n in sizes]
    late_s = [s - curve(m) for s, m in zip(found_s, at)]
    curve = Curve(tuple((m, max(0.0, t + float(np.interp(m, at, late_s)))) for m, t in curve.points))
    return curve, max(0.0, once_s - curve(at[0]))


def beside(run: kit.Run, model, batches: list, allreduce_s, allreduce, itemsize: int = 4) -> float:
    """Seconds of computing in a step that ends with a sum in the communication thread: who waits sleeps."""
    thread, last = CommunicationThread(allreduce), len(model.gradients.specs) - 1
    (once_s,) = steps_s(run, model, batches, [Short(thread, last, thread.wait)])
    thread.close()
    return max(0.0, once_s - allreduce_s(itemsize * SHORT))


def at_pace(ready_s: list[float], timing: kit.Timing, compute_s: float) -> list[float]:
    """When gradients are ready in a step that computes for compute_s, not for as long as the step without exchange."""
    return [t * compute_s / timing.median_s for t in ready_s]


def noted(run: kit.Run, functions, skip: int = 1):
    """The times that each function returns and the time of its end, (functions - skip, times + 1): see `since_first`."""
    mine = []
    for function in functions:
        run.plain.Barrier()
        start_s = time.perf_counter()
        times_s = [*(function() or []), time.perf_counter()]
        run.plain.Barrier()
        mine.append([t - start_s for t in [*times_s, time.perf_counter()]])
    return since_first(np.array(run.plain.allgather(mine[skip:])))


def since_first(own_s):
    """Seconds since the first rank's start, on the slowest rank: (ranks, steps, events) -> (steps, events - 1).

    own_s: seconds since each rank's own start; the last event is that it leaves a barrier.
    """
    closed_s = own_s[..., -1]
    late_s = closed_s.max(axis=0) - closed_s  # (ranks, steps)
    return (own_s[..., :-1] + late_s[..., None]).max(axis=0)


def kept_share_of(run: kit.Run, elements: int, allreduce) -> float:
    """The share of its speed that a computation on all ranks keeps beside a call: who sends, adds or waits takes cores.

    Measured with a load of its own, so it knows nothing of the steps that it helps to predict.
    """
    if run.size == 1:
        return 1.0
    thread = CommunicationThread(allreduce)
    a, b, c = np.ones((3, SIDE, SIDE), np.float32)
    x, repeats = np.zeros(elements, np.float32), run.quick(2, 7)

    def load(products, beside=False):
        if beside:
            thread(x)
        for _ in range(products):
            np.matmul(a, b, out=c)
        thread.wait()

    def median_s(*arguments):
        return float(np.median(noted(run, [partial(load, *arguments)] * (repeats + 1))))

    call_s = median_s(0, True)
    products = max(1, round(PRODUCTS * LONGER * call_s / median_s(PRODUCTS)))
    share = kept_share(max(call_s, median_s(products)), call_s, median_s(products, True))
    thread.close()
    return share
