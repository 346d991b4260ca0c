"""Mixed precision: 16 bits where they travel and are multiplied, 32 bits where they are added up.

    float32 master weights --round--> float16 working copy --forward, backward--> gradients * loss scale
           ^                                                                        |  float16 on the wire
           +---- update in float32 <---- / loss scale <---- sum over ranks <--------+

The wire type itself is an argument of the collective (`comm/schedule.py`); this module has what is around it: the loss
scale, which lifts gradients out of the range where float16 becomes zero; the check that a step is finite on all ranks;
and the working copy. Not multiplied by p anywhere: each rank's loss is divided by the global batch before.

On a CPU NumPy has no fast float16 arithmetic, so only the rounding is reproduced: the working copy holds float16 values
in float32 numbers, of 4 bytes each. A network of float16, for a GPU, has a working copy and gradients of float16
(`training/step.py`).

Source: Micikevicius et al. 2018; float16 gradients on the wire as in GradientFlow and Jia et al. 2018.
"""

import math

import numpy

from refgf.comm.slices import length
from refgf.device import array_module
from refgf.engine.blocks import blocks
from refgf.engine.half import cast


def is_finite(x) -> bool:
    """Is no element of x infinite or NaN?"""
    return bool(array_module(x).isfinite(x).all())


class LossScale:
    """The factor on the loss, and how many steps it has cost.

        scale = LossScale(2.0**16, dynamic=True)
        scale.update(finite)        after each step, with the same answer on all ranks

    A static scale never changes. A dynamic one is divided by `factor` in a step that is not finite, which is skipped on
    all ranks, and multiplied by it after `interval` finite steps in a row; it stays within smallest..largest. Powers of
    two, so that multiplying and dividing are exact unless something underflows.

    Errors: ValueError for a scale that is not a power of two, and after `patience` skipped steps in a row: then it is
    not the scale that makes gradients infinite. `skipped` counts all skipped steps.
    """

    def __init__(self, scale: float = 1.0, dynamic: bool = False, interval: int = 2000, factor: float = 2.0,
                 smallest: float = 1.0, largest: float = 2.0**24, patience: int = 50) -> None:  # fmt: skip
        for name, value in {"scale": scale, "factor": factor, "smallest": smallest, "largest": largest}.items():
            if not (0 < value < math.inf and math.frexp(value)[0] == 0.5):
                raise ValueError(f"loss scale: got {name} = {value}; wanted a power of two; next: 2.0**16")
        if interval < 1 or patience < 1:
            raise ValueError(f"loss scale: got interval={interval}, patience={patience}; wanted at least 1 of each")
        self.scale, self.dynamic, self.interval, self.factor = float(scale), dynamic, interval, factor
        self.smallest, self.largest, self.patience = smallest, largest, patience
        self.good_steps = self.skipped = self.skipped_in_a_row = 0

    def update(self, finite: bool) -> None:
        if finite:
            self._count_good_step()
            return
        self.good_steps, self.skipped = 0, self.skipped + 1
        self.skipped_in_a_row += 1
        if self.dynamic:
            self.scale = max(self.scale / self.factor, self.smallest)
        if self.skipped_in_a_row >= self.patience:
            raise ValueError(
                f"mixed precision: got gradients that are infinite or NaN in {self.patience} steps in a row, the last "
                f"with loss scale {self.scale}; wanted finite ones; next: a smaller learning rate or a longer warm-up, "
                "and look at the loss: it was probably NaN before"
            )

    def _count_good_step(self) -> None:
        self.good_steps, self.skipped_in_a_row = self.good_steps + 1, 0
        if self.dynamic and self.good_steps == self.interval:
            self.scale, self.good_steps = min(self.scale * self.factor, self.largest), 0

    def state(self) -> dict:
        """What a checkpoint must hold."""
        return {name: getattr(self, name) for name in ("scale", "good_steps", "skipped", "skipped_in_a_row")}

    def restore(self, state: dict) -> None:
        self.__dict__.update(state)


class Unscaled:
    """An `Allreduce` around another: divides the sums by the loss scale and remembers whether they were finite.

    Where every rank holds the same sums (ring, direct), every rank gets the same answer without a further message:
    an infinity or NaN that any rank contributes cannot become finite again. x is float32 or float64.

    thread    a `CommunicationThread` that does so while the next sums are formed (else the link rests during this pass over
              memory); then x belongs to it until `take` returns
    """

    def __init__(self, allreduce, loss_scale: LossScale, thread=None) -> None:
        self._allreduce, self._loss_scale, self._thread = allreduce, loss_scale, thread
        self._finite = True

    def __call__(self, x) -> None:
        self._allreduce(x)
        if self._thread:
            self._thread.run(self._look, x)
        else:
            self._look(x)

    def _look(self, x) -> None:
        scale = self._loss_scale.scale
        for block in blocks(x, 0, x.size):
            self._finite = self._finite and is_finite(x[block])
            if scale != 1:
                x[block] *= 1 / scale  # exact: a power of two

    def take(self) -> bool:
        """Were all sums since the last `take` finite?"""
        if self._thread:
            self._thread.wait()
        finite, self._finite = self._finite, True
        return finite


class Underflow:
    """An `Allreduce` around another: counts the elements that are not zero but become zero on the wire.

    `share` is their share among all that were not zero so far. A measuring instrument: one more pass over what travels.
    """

    def __init__(self, allreduce, wire) -> None:
        self._allreduce, self._wire = allreduce, numpy.dtype(wire)
        self.nonzero = self.lost = 0

    def __call__(self, x) -> None:
        xp = array_module(x)
        for block in blocks(x, 0, x.size):
            with numpy.errstate(over="ignore", under="ignore", invalid="ignore"):
                travels = x[block].astype(self._wire)
            nonzero = int(xp.count_nonzero(x[block]))
            self.nonzero += nonzero
            self.lost += nonzero - int(xp.count_nonzero(travels))
        self._allreduce(x)

    @property
    def share(self) -> float:
        return self.lost / max(1, self.nonzero)


class WorkingCopy:
    """The weights that forward and backward use: the master weights, rounded to 16 bits.

    master   (n,) float32, what the optimiser updates
    working  (n,) float16 for a network of float16; else float32 numbers with float16 values
    """

    def __init__(self, master, working, half="float16") -> None:
        if master.shape != working.shape:
            raise ValueError(f"working copy: got {working.shape} for master weights {master.shape}; wanted the same")
        self.master, self.working, self.half = master, working, numpy.dtype(half)

    def refresh(self, slices=None) -> None:
        """Round the master weights (only these slices of them) into the working copy."""
        for part in [slice(0, self.master.size)] if slices is None else slices:
            for block in blocks(self.master, part.start, part.stop):
                with numpy.errstate(over="ignore"):  # beyond 65504 a weight becomes infinite, as on a GPU
                    half = array_module(self.master).empty(length(block), self.half)
                    cast(self.master[block], half)
                    cast(half, self.working[block])
