"""What the sums of GradientFlow's stack take here, each kind measured apart from the steps that it is part of.

    found = calls.measure(run, data, {"float32": Kind(), "float16, overlap": Kind(wire=np.float16, overlap=True)})
    found["float32"].seconds(nbytes)            T(m) of a call, m in bytes on the wire; also .compute_s, .kept_share

Each kind goes through what the stack puts a sum through, on a communicator of its own. With overlap a thread goes from call
to call and waits asleep; without it ranks come to a call from computing (alone.py).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

import kit
from kit import alone, images
from refgf.engine.sleeping import patient
from refgf.exchange.precision import LossScale, Unscaled
from refgf.predict.cost import Curve
from refgf.training.gradientflow import ring_allreduce

SCALE = 2.0**10  # the loss scale of float16


@dataclass(frozen=True)
class Kind:
    """make: as the argument `allreduce` of `GradientFlow`; wire: the type that travels; overlap: in a communication thread."""

    make: Callable = ring_allreduce
    wire: object = None
    overlap: bool = False


@dataclass(frozen=True)
class Calls:
    """row: of calls one after the other; seconds: of a call in a step; compute_s: what a step computes for among such calls;
    kept_share: of its speed, that a computation keeps beside a call (0 without overlap)."""

    row: Curve
    seconds: Curve
    compute_s: float
    kept_share: float


def measure(run: kit.Run, data, kinds: dict[str, Kind], count: int = 7) -> dict[str, Calls]:
    """Calls of each kind, up to all gradients of the lesson's network at once; count: steps for a median. Collective."""
    model, batches = images.model(run, data), list(images.steps(run, data, run.quick(3, count)))
    model.network.loss(*batches[0])
    model.network.backward(lambda i: None)
    gradients = SCALE * model.gradients.flat
    return {name: measure_kind(run, model, batches, gradients, kind) for name, kind in kinds.items()}


def measure_kind(run: kit.Run, model, batches: list, gradients, kind: Kind) -> Calls:
    comm, n = patient(run.comm.Dup()) if kind.overlap else run.comm.Dup(), gradients.size
    scale, itemsize = LossScale(SCALE if kind.wire else 1.0), np.dtype(kind.wire or np.float32).itemsize
    allreduce = alone.of_gradients(Unscaled(kind.make(comm, wire=kind.wire), scale), gradients)
    row = alone.row(run, alone.sizes_up_to(n), allreduce, itemsize, run.quick(2, 5))
    if kind.overlap:
        compute_s = alone.beside(run, model, batches, row, allreduce, itemsize)
        return Calls(row, row, compute_s, alone.kept_share_of(run, n, allreduce))
    return Calls(row, *alone.among_by_size(run, model, batches, row, allreduce, itemsize), kept_share=0.0)


def selection_s(run: kit.Run, stack, batches, compute_s: float, norms: bool = True) -> float:
    """Seconds that CSC adds to computing: steps in which its norms travel (or do not), but no gradient. Packing, choosing,
    keeping, and an update of the chosen chunks alone. The stack is of no use afterwards."""

    def nothing(x):
        pass

    stack.csc.allreduce = nothing
    if not norms:
        stack.csc.allreduce_norms = nothing

    def step(batch):
        stack.step(*batch, rate=0.0)

    return float(np.median(alone.noted(run, [partial(step, batch) for batch in batches], skip=2))) - compute_s
