"""Momentum SGD over the flat pool.

The convention is PyTorch's (torch.optim.SGD, dampening 0): the rate stays outside the velocity,

    v <- m v + (g + decay w)          w <- w - rate v

so a changed rate needs no correction of v (Goyal et al. 2017, section 3, remark 2).
"""

import copy
import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from refgf import ops
from refgf.comm.arguments import require_number
from refgf.device import Array, array_module, is_device
from refgf.exchange.interfaces import Optimizer, Parts, Waits
from refgf.nn.workspace import Shape, Workspace, cut

BLOCK_ELEMENTS = 524_288  # workers share the update in such blocks; a GPU does all at once


class PlainSGD:
    """w <- w - rate g: the optimiser where momentum and decay happen before the exchange."""

    settings, state = {"momentum": 0.0, "weight_decay": 0.0}, dict[str, Array]()

    def __init__(self, parameters: Array) -> None:
        self.parameters = parameters

    def step(self, gradients: Array, rate: float, sent: Parts = None, waited: Waits = None) -> None:
        """One update, of the slices `sent` only (None: of all). waited: not needed."""
        for part in joined(sent, self.parameters.size):
            ops.plain_sgd(self.parameters[part], gradients[part], float(rate))

    def split(self, before: bool) -> NoReturn:
        got = "CSC: got a model whose momentum another CSC has taken over"
        raise ValueError(f"{got}; wanted a fresh one; next: make another replica")


class MomentumSGD:
    """Updates a flat parameter array in place; `velocity` is all it remembers.

    specs         objects with .shape and .decay, in the order of the pool; decay False: none
    parameters    (n,) float32 or float64, NumPy or CuPy; kept, not copied
    workspace     whose threads share the blocks; the bits do not depend on their number

    The order of rounding is part of the definition, so that other code can reproduce the bits. For
    each element, every operation rounded to the array's type, m, decay and rate rounded to it
    first, no fused multiply-add:

        t = decay * w;  t = t + g;  v = m * v;  v = v + t;  t = rate * v;  w = w - t

    Without decay (the tensor's, or weight_decay 0) t = g.
    """

    def __init__(
        self,
        specs: Sequence[Any],
        parameters: Array,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        workspace: Workspace | None = None,
    ) -> None:
        n = sum(math.prod(spec.shape) for spec in specs)
        _require(parameters, (n,), ("float32", "float64"), "parameters")
        if not (0 <= momentum < 1 and 0 <= weight_decay < math.inf):
            got = f"MomentumSGD: got momentum={momentum}, weight_decay={weight_decay}"
            raise ValueError(f"{got}; wanted 0 <= m < 1 and a finite decay >= 0; next: 0.9, 5e-4")
        self.specs, self.parameters = specs, parameters
        self.momentum, self.weight_decay = float(momentum), float(weight_decay)
        self.settings = {"momentum": self.momentum, "weight_decay": self.weight_decay}
        self._workspace = workspace or Workspace(array_module(parameters), parameters.dtype)

    @functools.cached_property
    def velocity(self) -> Array:
        """(n,) Allocated when it is needed: not where CSC takes momentum over."""
        return array_module(self.parameters).zeros_like(self.parameters)

    @property
    def state(self) -> dict[str, Array]:
        return {"velocity": self.velocity}

    def split(self, before: bool) -> tuple[Optimizer, float, float]:
        """CSC applies decay and, if `before`, momentum: (the optimiser then, momentum, decay)."""
        momentum, decay = self.momentum, self.weight_decay
        if before:
            return PlainSGD(self.parameters), momentum, decay
        rest = copy.copy(self)
        rest.velocity, rest.weight_decay = self.velocity, 0.0
        return rest, momentum, decay

    def step(self, gradients: Array, rate: float, sent: Parts = None, waited: Waits = None) -> None:
        """One update with gradients (n,) and a learning rate.

        sent (ascending, disjoint slices) restricts it; elsewhere w, v and g are not touched.
        """
        _require(gradients, self.parameters.shape, (self.parameters.dtype.name,), "gradients")
        require_number("MomentumSGD.step: rate", rate, 0, "0.01")
        blocks, velocity = list(self._cut(joined(sent, self.parameters.size))), self.velocity

        def work(worker: int, share: slice) -> None:
            for block, decay in blocks[share]:
                w, v, g = self.parameters[block], velocity[block], gradients[block]
                ops.momentum_sgd(w, v, g, self.momentum, decay, float(rate))

        self._workspace.share(work, len(blocks))

    def _cut(self, parts: list[slice]) -> Iterable[tuple[slice, float]]:
        """The parts, cut where decay changes and into blocks: (block, decay)."""
        longest = max(1, self.parameters.size) if is_device(self.parameters) else BLOCK_ELEMENTS
        runs = _runs(self.specs, self.weight_decay)
        for part in parts:
            for run, decay in runs:
                inside = slice(max(part.start, run.start), min(part.stop, run.stop))
                yield from ((block, decay) for block in cut(inside, longest))


def joined(parts: Iterable[slice] | None, n: int) -> list[slice]:
    """Ascending, disjoint slices of n elements, neighbours joined; None: all. Else ValueError."""
    runs, end = list[slice](), 0
    for part in [slice(0, n)] if parts is None else parts:
        bounded = None not in (part.start, part.stop) and part.step in (None, 1)
        if not (bounded and end <= part.start <= part.stop <= n):
            got = f"optimiser: got {part} after element {end} of {n}"
            raise ValueError(f"{got}; wanted ascending, disjoint slices; next: sort them")
        if runs and runs[-1].stop == part.start:
            runs[-1] = slice(runs[-1].start, part.stop)
        elif part.stop > part.start:
            runs.append(part)
        end = part.stop
    return runs


def _runs(specs: Sequence[Any], weight_decay: float) -> list[tuple[slice, float]]:
    """The pool as (slice, decay), neighbours with the same decay joined."""
    runs, start = list[tuple[slice, float]](), 0
    for spec in specs:
        stop, decay = start + math.prod(spec.shape), weight_decay if spec.decay else 0.0
        if runs and runs[-1][1] == decay:
            start = runs.pop()[0].start
        runs.append((slice(start, stop), decay))
        start = stop
    return runs


def _require(x: Array, shape: Shape, dtypes: Sequence[str], what: str) -> None:
    if x.shape != shape or x.dtype.name not in dtypes or not x.flags.c_contiguous:
        got, kinds = f"MomentumSGD: got {what} {x.shape} {x.dtype}", " or ".join(dtypes)
        wanted = f"wanted contiguous {shape}, as in specs, {kinds}"
        raise ValueError(f"{got}; {wanted}; next: keep float32 master weights in a pool")
