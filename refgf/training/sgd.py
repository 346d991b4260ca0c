"""Momentum SGD over the flat pool, and learning rates.

The convention is PyTorch's (torch.optim.SGD, dampening 0): the rate stays outside the velocity,

    v <- m v + (g + decay w)          w <- w - rate v

so changing the rate from step to step needs no correction of v (Goyal et al. 2017, section 3, remark 2).
"""

import math
from collections.abc import Iterable, Iterator, Sequence

from refgf.comm.slices import chunks, length
from refgf.device import array_module, is_device
from refgf.engine.fused import compiled, momentum_sgd
from refgf.nn.workspace import Workspace

BLOCK_ELEMENTS_CPU = 131_072  # longer than a second-level cache would like: two threads hand Python's lock over at each call
BLOCK_ELEMENTS_LOOP = 524_288  # one pass needs no cache; short enough that the threads have the same to do
BLOCK_ELEMENTS_GPU = 4_194_304  # a GPU wants few large kernels


class MomentumSGD:
    """Updates a flat parameter array in place; `velocity` is all it remembers.

    specs         objects with .name, .shape and .decay, in the order of the pool; decay False: no weight decay
    parameters    (n,) float32 or float64, NumPy or CuPy; kept, not copied
    workspace     whose threads share the blocks, a network's for example; the bits do not depend on their number

    The order of rounding is part of the definition, so that other code can reproduce the bits. For each element,
    every operation rounded to the array's type, m, decay and rate rounded to it first, no fused multiply-add:

        t = decay * w;  t = t + g;  v = m * v;  v = v + t;  t = rate * v;  w = w - t

    Without decay (the tensor's, or weight_decay 0) t = g. Works block by block: scratch of one block, no temporaries of
    full size. `loop` does the same in one pass, without scratch, where `fused.py` has it; None: the passes.
    """

    def __init__(self, specs: Sequence, parameters, momentum: float = 0.9, weight_decay: float = 5e-4,
                 workspace: Workspace | None = None) -> None:  # fmt: skip
        self._check(specs, parameters, momentum, weight_decay)
        self.parameters = parameters
        self.momentum = float(momentum)  # a Python float takes the array's type; a NumPy scalar would keep its own
        self.weight_decay = float(weight_decay)
        xp = array_module(parameters)
        self.velocity = xp.zeros_like(parameters)
        self.loop = compiled(momentum_sgd, parameters)
        on_cpu = BLOCK_ELEMENTS_LOOP if self.loop else BLOCK_ELEMENTS_CPU
        self.block_elements = BLOCK_ELEMENTS_GPU if is_device(parameters) else on_cpu
        self._workspace = workspace or Workspace(xp, parameters.dtype)
        self._runs = _runs(specs, self.weight_decay)

    def step(self, gradients, rate: float, slices: Iterable[slice] | None = None) -> None:
        """One update with gradients (n,) and a learning rate.

        slices (ascending, disjoint) restricts it to parts of the pool; the rest of w, v and g is not touched.
        """
        self._check_step(gradients, rate)
        rate = float(rate)
        parts = [slice(0, self.parameters.size)] if slices is None else _ascending(slices, self.parameters.size)
        blocks = [block for part in parts for block in self._blocks(part)]

        def work(worker: int, share: slice) -> None:
            longest = min(self.block_elements, gradients.size)
            scratch = self._workspace.scratch("update", (0 if self.loop else longest,), worker, gradients.dtype)
            for block, decay in blocks[share]:
                self._update(block, gradients[block], rate, decay, scratch[: length(block)])

        self._workspace.share(work, len(blocks))

    def _blocks(self, part: slice) -> Iterator[tuple[slice, bool]]:
        """Cut a part of the pool where decay changes, then into blocks."""
        for run, decay in self._runs:
            start, stop = max(part.start, run.start), min(part.stop, run.stop)
            for block in chunks(max(0, stop - start), self.block_elements):
                yield slice(start + block.start, start + block.stop), decay

    def _update(self, block: slice, g, rate: float, decay: bool, t) -> None:
        xp, w, v = array_module(g), self.parameters[block], self.velocity[block]
        if self.loop:
            self.loop(w, v, g, *map(w.dtype.type, (self.momentum, self.weight_decay, rate)), decay)
            return
        if decay:
            xp.multiply(w, self.weight_decay, out=t)
            t += g
            g = t
        v *= self.momentum
        v += g
        xp.multiply(v, rate, out=t)
        w -= t

    def _check(self, specs, parameters, momentum, weight_decay) -> None:
        got, n = f"MomentumSGD: got parameters {parameters.shape} {parameters.dtype}", _total(specs)
        if parameters.ndim != 1 or parameters.size != n or not parameters.flags.c_contiguous:
            raise ValueError(f"{got}; wanted a contiguous ({n},), the sum of the shapes in specs")
        if parameters.dtype.name not in ("float32", "float64"):
            raise ValueError(f"{got}; wanted float32 or float64; next: keep float32 master weights")
        if not (0 <= momentum < 1 and 0 <= weight_decay < math.inf):
            raise ValueError(
                f"MomentumSGD: got momentum={momentum}, weight_decay={weight_decay}; "
                "wanted 0 <= momentum < 1 and a finite weight_decay >= 0"
            )

    def _check_step(self, gradients, rate) -> None:
        if gradients.shape != self.parameters.shape or gradients.dtype != self.parameters.dtype:
            raise ValueError(
                f"MomentumSGD.step: got gradients {gradients.shape} {gradients.dtype}; "
                f"wanted {self.parameters.shape} {self.parameters.dtype}"
            )
        if not 0 <= rate < math.inf:
            raise ValueError(f"MomentumSGD.step: got rate={rate}; wanted a finite number >= 0")


def _total(specs: Sequence) -> int:
    return sum(math.prod(spec.shape) for spec in specs)


def _runs(specs: Sequence, weight_decay: float) -> list[tuple[slice, bool]]:
    """The pool as (slice, decay?), neighbours with the same answer joined."""
    runs, start = [], 0
    for spec in specs:
        stop, decay = start + math.prod(spec.shape), bool(spec.decay and weight_decay)
        if runs and runs[-1][1] == decay:
            runs[-1] = (slice(runs[-1][0].start, stop), decay)
        else:
            runs.append((slice(start, stop), decay))
        start = stop
    return runs


def _ascending(slices: Iterable[slice], n: int) -> list[slice]:
    """The slices, checked before the first is used: a pool that is half updated would be worse than an error."""
    slices, end = list(slices), 0
    for s in slices:
        if s.step not in (None, 1) or s.start is None or s.stop is None or not end <= s.start <= s.stop <= n:
            raise ValueError(f"MomentumSGD.step: got {s} after element {end} of {n}; wanted ascending, disjoint slices")
        end = s.stop
    return slices


def linear_scaling(base_rate: float, global_batch: int, base_batch: int = 256) -> float:
    """The rate for a batch k times as large is k times as large (Goyal et al. 2017, section 2.1)."""
    return base_rate * global_batch / base_batch


def warmup(rate: float, step: int, warmup_steps: int, start_rate: float = 0.0) -> float:
    """Gradual warm-up: from start_rate to rate in equal increments, step 0 being the first above start_rate.

    `rate` is what the schedule says for this step, returned as it is once step >= warmup_steps - 1. Goyal et al. start
    at the rate of one worker (start_rate = base_rate) and take 5 epochs.
    """
    if step < 0 or warmup_steps < 0:
        raise ValueError(f"warmup: got step={step}, warmup_steps={warmup_steps}; wanted neither negative")
    if step + 1 >= warmup_steps:
        return rate
    return start_rate + (rate - start_rate) * (step + 1) / warmup_steps


def polynomial_decay(rate: float, step: int, steps: int, power: float = 2.0) -> float:
    """rate * (1 - step/steps)**power: the whole rate at step 0, nothing from `steps` on."""
    if step < 0 or steps < 1 or power <= 0:
        raise ValueError(f"polynomial_decay: got step={step}, steps={steps}, power={power}; wanted >= 0, >= 1, > 0")
    return rate * max(0.0, 1 - step / steps) ** power
