"""Call times of each kind of sum in GradientFlow's stack, measured apart from its steps.

    found = calls.measure(run, data, {"float32": Kind(), "later": Kind(wire=np.float16,
    overlap=True)})
    found["float32"].seconds(nbytes)      T(m) of a call, m in bytes on the wire

Each kind passes through what the stack passes a sum through, on a communicator of its own. With
overlap a thread makes one call after another and sleeps while it waits; without it ranks come to a
call from computing.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

import kit
from kit import call_times, images, step_times
from refgf import ops
from refgf.comm.ring import ring_allreduce
from refgf.predict.fit import Curve

SCALE = 2.0**10  # the loss scale of float16


@dataclass(frozen=True)
class Kind:
    """make: as `allreduce=` of `GradientFlow`; wire: the wire type; overlap: in a thread."""

    make: Callable = ring_allreduce
    wire: object = None
    overlap: bool = False


@dataclass(frozen=True)
class Calls:
    """What was measured of one kind.

    queued      time of calls one after another
    seconds     time of a call inside a step
    compute_s   seconds of computing in a step with such calls
    kept_share  share of its speed that computing keeps during a call; 0 without overlap
    """

    queued: Curve
    seconds: Curve
    compute_s: float
    kept_share: float


def measure(run: kit.Run, data, kinds: dict[str, Kind], count: int = 7) -> dict[str, Calls]:
    """{name: Calls}, up to all gradients of the lesson's network in one call. Collective.

    count: steps for a median
    """
    model, batches = images.model(run, data), list(images.steps(run, data, run.quick(3, count)))
    model.network.loss(*batches[0])
    model.network.backward(lambda i: None)
    gradients = SCALE * model.gradients.flat
    return {name: of_kind(run, model, batches, gradients, kind) for name, kind in kinds.items()}


def of_kind(run: kit.Run, model, batches: list, gradients, kind: Kind) -> Calls:
    comm, n = run.comm.Dup(), gradients.size
    allreduce = kind.make(ops.background(comm) if kind.overlap else comm, wire=kind.wire)
    allreduce = unscaled(allreduce, SCALE if kind.wire else 1.0)
    allreduce = call_times.of_gradients(allreduce, gradients)
    itemsize, sizes = np.dtype(kind.wire or np.float32).itemsize, call_times.sizes_up_to(n)
    queued = call_times.queued(run, sizes, allreduce, itemsize, run.quick(2, 5))
    steps = run, model, batches, queued, allreduce, itemsize
    if kind.overlap:
        compute_s = call_times.compute_with_thread(*steps)
        return Calls(queued, queued, compute_s, call_times.kept_share(run, n, allreduce))
    return Calls(queued, *call_times.in_steps(*steps), kept_share=0.0)


def unscaled(allreduce, scale: float):
    """The same Allreduce with its sums divided by the loss scale, as `DenseExchange` does."""

    def call(x):
        allreduce(x)
        ops.unscale(x, 1 / scale)

    return call


def selection_s(run: kit.Run, stack, batches, compute_s: float, norms: bool = True) -> float:
    """Seconds that CSC adds to computing, from steps that send norms or nothing, but no gradients.

    They include packing, choosing chunks, updating the residual, and the update of the chosen
    chunks. The stack cannot be used afterwards.
    """

    def nothing(x):
        pass

    stack.csc.transport = replace(stack.csc.transport, allreduce=nothing)
    if not norms:
        stack.csc.sum_norms = nothing

    def step(batch):
        stack.step(*batch, rate=0.0)

    steps = [partial(step, batch) for batch in batches]
    return float(np.median(step_times.since_first_start(run, steps, skip=2))) - compute_s
