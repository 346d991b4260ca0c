"""Mixed precision: 16 bits where numbers are sent and multiplied, 32 bits where they are added up.

    float32 master weights --round--> float16 working copy --forward, backward--> gradients * scale
              ^                                                                          |
              |                                                                 float16 on the wire
              |                                                                          v
              +--------- update in float32 <--------- / scale <--------- sum over ranks -+

The wire type is an argument of the collective (`comm/schedule.py`). This module has the loss scale,
which lifts gradients out of the range where float16 becomes zero, and the working copy. On a CPU
NumPy has no fast float16 arithmetic, so only the rounding is reproduced: the working copy holds
float16 values in float32 numbers. A network of float16, for a GPU, has a float16 working copy.

Source: Micikevicius et al. 2018; float16 on the wire as in GradientFlow.
"""

import math

import numpy as np
from numpy.typing import DTypeLike

from refgf import ops
from refgf.device import Array


class LossScale:
    """The factor on the loss, and how many steps it has cost.

        scale = LossScale(2.0**16, dynamic=True)
        scale.update(finite)        after each step, with the same answer on all ranks

    A static scale never changes. A dynamic one is halved in a step that is not finite, which all
    ranks skip, and doubled after `interval` finite steps in a row, within smallest..largest. It is
    a power of two, so multiplying and dividing are exact unless something underflows.

    Errors: ValueError for a scale that is not a power of two, and after `patience` skipped steps in
    a row: then it is not the scale that makes gradients infinite.
    """

    def __init__(
        self,
        scale: float = 1.0,
        dynamic: bool = False,
        interval: int = 2000,
        smallest: float = 1.0,
        largest: float = 2.0**24,
        patience: int = 50,
    ) -> None:
        for name, value in {"scale": scale, "smallest": smallest, "largest": largest}.items():
            if not (0 < value < math.inf and math.frexp(value)[0] == 0.5):
                got = f"loss scale: got {name} = {value}"
                raise ValueError(f"{got}; wanted a power of two; next: 2.0**16")
        if not (interval >= 1 and patience >= 1):  # NaN is neither
            got = f"loss scale: got interval={interval}, patience={patience}"
            raise ValueError(f"{got}; wanted at least 1 of each; next: leave them out")
        self.scale, self.dynamic, self.interval = float(scale), dynamic, interval
        self.smallest, self.largest, self.patience = smallest, largest, patience
        self.good_steps = self.skipped = self.skipped_in_a_row = 0

    def update(self, finite: bool) -> None:
        """The step is over; `finite`: were all sums finite, on all ranks?"""
        if finite:
            self.good_steps, self.skipped_in_a_row = self.good_steps + 1, 0
            if self.dynamic and self.good_steps == self.interval:
                self.scale, self.good_steps = min(self.scale * 2, self.largest), 0
            return
        self.good_steps, self.skipped = 0, self.skipped + 1
        self.skipped_in_a_row += 1
        if self.dynamic:
            self.scale = max(self.scale / 2, self.smallest)
        if self.skipped_in_a_row >= self.patience:
            raise ValueError(
                f"mixed precision: got gradients that are infinite or NaN in {self.patience} steps "
                f"in a row, the last with loss scale {self.scale}; wanted finite ones; next: a "
                "smaller learning rate or a longer warm-up; look at the loss: was it NaN before?"
            )

    def state(self) -> dict[str, float]:
        """What a checkpoint must hold; `restore` takes it."""
        names = ("scale", "good_steps", "skipped", "skipped_in_a_row")
        return {name: getattr(self, name) for name in names}

    def restore(self, state: dict[str, float]) -> None:
        self.__dict__.update(state)


class WorkingCopy:
    """The weights that forward and backward use: the master weights, rounded to 16 bits.

    master   (n,) float32, what the optimiser updates
    working  (n,) float16 for a network of float16; else float32 numbers with float16 values
    """

    def __init__(self, master: Array, working: Array, half: DTypeLike = "float16") -> None:
        if master.shape != working.shape:
            got = f"working copy: got {working.shape} for master weights {master.shape}"
            raise ValueError(f"{got}; wanted the same; next: lay both out from the same specs")
        self.master, self.working, self.half = master, working, np.dtype(half)

    def refresh(self, slices: list[slice] | None = None) -> None:
        """Round the master weights (only these slices of them) into the working copy."""
        with np.errstate(over="ignore"):  # beyond 65504 a weight becomes infinite, as on a GPU
            for part in [slice(0, self.master.size)] if slices is None else slices:
                if self.working.dtype == self.half:
                    ops.cast(self.master[part], self.working[part])
                else:
                    ops.rounded(self.master[part], self.half, out=self.working[part])
