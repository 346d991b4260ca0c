"""A training whose gradients are summed by a function of all ranks' gradients, for --mine.

    losses(run, data, sums, steps)      sums([gradients of each rank], rank) -> this rank's (n,)

Every rank receives all gradients and calls the function, so it shows what is learnt, not how fast.
"""

from collections.abc import Callable

import numpy as np

import kit
from kit import images
from refgf.exchange.result import StepResult
from refgf.training.step import train_step

QUICK_STEPS, QUICK_RATE = 12, 1 / 4  # the latter of the lesson's rate
Sums = Callable[[list[np.ndarray], int], np.ndarray]


class Gathered:
    """An exchange: all ranks' gradients are gathered, and `sums` makes this rank's own of them."""

    def __init__(self, run: kit.Run, pool, sums: Sums) -> None:
        self.run, self.pool, self.sums = run, pool, sums

    def ready(self, index: int) -> None:
        pass

    def finish(self) -> StepResult:
        gradients = self.run.gather(self.pool.flat.copy())
        self.pool.flat[:] = self.run.array(np.asarray(self.sums(gradients, self.run.rank)))
        return StepResult()


def losses(run: kit.Run, data, sums: Sums, steps: int, **more) -> list[float]:
    """The loss of each step, of all ranks together. more: of `images.model`. Collective.

    --quick: few steps, at a smaller rate. With the lesson's rate the loss rises for longer than
    that, and a mistake may seem to train better.
    """
    rate = run.options.rate * run.quick(QUICK_RATE, 1)
    model = images.model(run, data, **more)
    exchange = Gathered(run, model.gradients, sums)
    mine = [
        train_step(model, exchange, *batch, rate=rate) for batch in images.steps(run, data, steps)
    ]
    return np.sum(run.plain.allgather(mine), axis=0).tolist()  # (steps,)
