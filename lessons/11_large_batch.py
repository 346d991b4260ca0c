"""Lesson 11: large batches - linear scaling, warm-up and LARS.

    mpiexec -n 8 python lessons/11_large_batch.py
    options: --predict "70 %", -v (all tables), --data PATH, --trust 0.1, --full, --quick, --plot

QUESTION    More ranks with the same images per rank make a larger batch, and an epoch has fewer
            steps. How much accuracy does that cost? Does the best rate grow with the batch? Do
            warm-up and LARS gain anything?
IDEA        With a batch k times as large, each step should go k times as far (linear scaling). The
            rate must not be that large at once (gradual warm-up), and no layer should move too far.
            Layers differ by orders of magnitude in |w| / |g|, so one rate cannot suit them all.
            LARS (You et al. 2017) gives each layer a rate of its own: `lars_step` below, for real
            in refgf/papers/jia/lars.py (drawing: lessons/drawings/11.svg).

                v <- m v + rate ratio (g + decay w)        ratio = trust |w| / (|g| + decay |w|)
                w <- w - v                                 1 for biases and normalisation

            Naive is the old rate, for all layers. By hand, without momentum and decay: 8 steps at
            rate 0.1 along a gradient of 1 go 0.8 far, one step of a batch 8 times as large only
            0.1. At rate 0.8 a layer with |w| = 10 and |g| = 0.1 moves by 0.8 % of |w|, one with 1
            and 0.5 by 40 %. LARS with trust 0.1 moves both by 8 %.

PREDICTION  b images per rank and p ranks: batch p b, N / (p b) steps an epoch, a learning rate p
            times that of one rank. If linear scaling holds, the accuracy stays that of the small
            batch.

Before you run it, write down: if the batch grows from 64 to 512, by which factor does the best rate
grow, for SGD and for LARS? With a batch of 512 of the about 1,400 digits, 5 epochs are 15 steps,
and with one of 64 they are 115. What accuracy, in percent, will SGD reach with each? And LARS? And
what if the larger batch may take as many steps? (--full: all images in one batch, too.)

Batches grow as in weak scaling. One rank with p micro-batches of b images computes what p ranks
compute (checked, to the bit). So each rank trains models of its own, and p trainings run at once.
After this lesson you can say what a large batch costs, which part of it is missing steps, and judge
a method by a paired interval.

APPENDIX    All ranks hold the same w and g, so each needs to form only 1/p of LARS's norms (Shi et
            al. 2021): whole layers (unverified), or equal slices of the pool (ours). L tensors
            whose norms take T_norms on one rank:

                each rank all norms    T_norms
                by slices              T_norms / p                        + T_allreduce(2L numbers)
                by whole layers        T_norms (the busiest rank's share) + T_allreduce(2L numbers)

            Distribution by layers gains at most 1 / (the largest layer's share of the parameters).
            AlexNet's fc6 has 60 %: at most a factor of 1.7.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/11_large_batch.py)
    1. Multiply one layer's gradient by 1000. What happens to a step of SGD, and to one of LARS?
    2. Appendix: sum norms instead of squared norms over the ranks. How wrong is the ratio for p
       equal shares?
    3. Appendix: which order of AlexNet's tensors suits 4 ranks best, if they share whole layers?
       How much can then be gained?

A COLLEAGUE SAYS the following, and is wrong. Show it. (answers: lessons/teaching/11.md)
    a. "Linear scaling makes a large batch free." The same epochs against the same steps.
    b. "One run was better, so the method is better." -v: cover the intervals, decide, then look.
    c. "Distribute whole layers: each rank takes some." Appendix, -v: "How long does a LARS step
       take?"
"""

import refgf.launch  # noqa: F401  before MPI starts

from collections.abc import Iterator
import numpy as np

import kit
from kit import images
from lab.large_batch import comparison, lars_norms, oracle, picture, training
from lab.large_batch.claims import REVEAL
from refgf.device import array_module
from refgf.exchange.result import StepResult
from refgf.papers.jia.accumulate import accumulated_step
from refgf.training.rates import linear_scaling, polynomial_decay, warmup

BASE_BATCH = 64  # the batch that --rate is meant for
WARMUP_SHARE = 1 / 6  # of all steps

# ---- the idea: one update, the same on every rank ----


def trust_ratio(w: np.ndarray, g: np.ndarray, trust: float, decay: float) -> float:
    """From the norms of one layer, in float64."""
    w_norm, g_norm = (float(np.linalg.norm(x.astype(np.float64))) for x in (w, g))
    below = g_norm + decay * w_norm
    return trust * w_norm / below if w_norm > 0 and below > 0 else 1.0


def lars_step(ws, vs, gs, adapted, rate, trust=0.001, momentum=0.9, decay=5e-4):
    """ws[i], vs[i], gs[i]: float32 weights, velocity, gradient of layer i. -> new (ws, vs)

    adapted[i]: False for biases and normalisation, whose rate is the plain one, without decay.
    """
    new_ws, new_vs = [], []
    for w, v, g, adapts in zip(ws, vs, gs, adapted):
        ratio = trust_ratio(w, g, trust, decay) if adapts else 1.0
        decayed = g + decay * w if adapts and decay else g
        v = momentum * v + rate * ratio * decayed  # rate * ratio is rounded to float32 once
        new_ws.append(w - v)
        new_vs.append(v)
    return new_ws, new_vs


# ---- one step of a large batch, on one rank ----


def learning_rate(base_rate: float, batch: int, step: int, steps: int, warm: bool) -> float:
    """The rate of a step: linear scaling, decay to 0, and at first a gradual warm-up."""
    rate = polynomial_decay(linear_scaling(base_rate, batch, BASE_BATCH), step, steps)
    return warmup(rate, step, round(WARMUP_SHARE * steps)) if warm else rate


class LocalExchange:
    """The exchange of a step on one rank. A step with infinite gradients is not accepted."""

    def __init__(self, gradients) -> None:
        self.gradients = gradients

    def ready(self, i: int) -> None:
        pass

    def finish(self) -> StepResult:
        flat = self.gradients.flat
        return StepResult(bool(array_module(flat).isfinite(flat).all()))


def large_step(model, micro_batches, batch: int, rate: float) -> float:
    """A step of p micro-batches, one after another: what p ranks compute. -> the loss"""
    return accumulated_step(model, LocalExchange(model.gradients), micro_batches, batch, rate)


# ---- the lesson ----


def measure(run: kit.Run) -> Iterator[dict]:
    train, _ = training.images_of(run, 0)
    run.say(train.note)
    oracle.check(run, train, large_step)
    yield {"norms": lars_norms.time_steps(run)}
    yield {"trained": comparison.compare(run, train, learning_rate, large_step)}


if __name__ == "__main__":
    lesson = kit.Lesson(__file__, __doc__, REVEAL)
    images.arguments(lesson)
    searched = "of LARS; it is searched over the rates of SGD"
    lesson.argument("--trust", type=float, default=0.1, help=searched)
    lesson.parser.set_defaults(image_size=67, width=1 / 16, batch=64)
    lesson.main(measure, picture.draw)
