"""Lesson 06: coarse-grained sparse communication (CSC) - send a tenth of the chunks.

    mpiexec -n 4 python lessons/06_csc.py    waits for messages instead of sending slowly
    python -m refgf.cluster run --like v100-56gbit -- python lessons/06_csc.py
    options: --predict "10 times", -v (all tables), --density PERCENT, --pairs N (trainings), ...

QUESTION    Even half the bytes take long. Must every gradient be sent in every step?
IDEA        Divide the pool into chunks and send only the most important ones: their share of all
            chunks, in percent, is the density. What is not sent, the residual, is added to the next
            step's gradient. All ranks sum their norms of the chunks, so they choose the same ones
            without sending indices: `csc_sums` below (drawing: lessons/drawings/06.svg), for real
            in refgf/exchange/csc.py, chunk_choice.py and momentum_correction.py.

            Naive is to drop what is not sent. By hand: three chunks have gradients of 5, 2 and 1 in
            every step, and one is sent. Dropping always sends the first, so two weights never move.
            With residuals the second waits until its sum is the largest, then all of it is sent:

                would be sent    5 2 1    5 4 2    5 6 3    10 2 4    5 4 5    5 6 6
                is sent          5        5          6      10        5          6

            In this lesson a step sends what the step before has chosen. It chooses by what it would
            send, *before* that is cleared (statement C4): guess what follows for the next step.

PREDICTION  A step packs k = max(1, ceil(C percent/100)) of C chunks in float16, and C norms and one
            flag (overflow) in float64. A rank sends 2(p-1)/p times as many bytes as it packs:

                packed = 2 x chosen elements + 8 (C + 1)        dense: 2 x all elements
                step   = step without exchange + time of the bytes sent + own work

            Own work is the processor's: norms, choosing, packing. It is measured first. What CSC
            costs in accuracy depends on the network, the length of the training and the warm-up of
            the density: lesson 12 (3 epochs, no warm-up) loses far more.

Before you run it, write down: how many times as fast as dense is the exchange at a density of 10 %?
If all chunks took turns, each would wait 10 steps. How many of them have not been sent after 30
steps? And what share of the chunks sent was sent in the step before?

This is weak scaling: each rank brings a batch of its own. After this lesson you can predict the
bytes of a sparse step, say why all ranks choose the same chunks, how long one waits, and what that
costs.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/06_csc.py)
    1. --mine FILE --wrong-anyway: `importance` does not divide by the chunk's length (which chunk
       is hardly ever chosen?); then `csc_step` drops what is not sent (what does the loss show?)
    2. Each rank chooses from its own norms only, without the allreduce. With your own functions
       (python -i lessons/student/06.py), for two ranks' arrays w of 7 elements each:
           own = choose(importance([w], 3), 30);  packed, _ = csc_step([w], [0 * w], own, 3)
       Add up the packed arrays of both ranks. What breaks, and in which steps would you notice it?
    3. At which density do norms and flag cost as many bytes as the chunks, for the full AlexNet?
    4. `csc_sums` chooses before it clears. Move one line, so that chunks are ranked by what stays
       after sending (the core's option `after`). How many are sent twice in a row now?
    5. (Appendix) A chunk is sent in every tenth step. Up to which learning rate does gradient
       descent on w^2 / 2 with momentum 0.9 converge, dense and with each form?

APPENDIX    What does momentum make of a gradient that waits? (dgc: Deep Gradient Compression) It is
            1 in step 1, then 0; momentum is 0.5; its chunk is sent in steps 3, 6, 9, ... So far
            moves the weight, divided by the learning rate:

            step           1     2     3     4     5     6   ...  in all
            dense        1.00   .50   .25   .12   .06   .03       2.00
            none           .     .   1.00    .     .    .50       2.00   late, but all of it
            dgc            .     .   1.75    .     .    .22       2.00   catches up when it is sent
            dgc_masked     .     .   1.75    .     .     .        1.75   its momentum is cleared
            history        .     .    .25    .     .    .12       0.50   multiplied by m^2 = 0.25

A COLLEAGUE SAYS the following, and is wrong. Show it. (answers: lessons/teaching/06.md)
    a. "A tenth of the chunks takes a tenth of the time." --density 5 -v: what does not shrink?
    b. "What is not sent is lost." -v: "One gradient of 1", forms none and history.
    c. "Any tenth would do, because all chunks come in turn." -v: "Do the chosen chunks matter?"
"""

import refgf.launch  # noqa: F401  before MPI starts

from collections.abc import Iterator
import numpy as np

import kit
from kit import images, trials
from lab.csc import forms, here, learning, oracle, study, times
from lab.csc.claims import REVEAL
from lab.csc.picture import draw
from refgf.comm.direct import direct_allreduce
from refgf.comm.ring import ring_allreduce
from refgf.exchange.csc import CSC
from refgf.exchange.dense import Transport
from refgf.exchange.lazy import Theta
from refgf.exchange.momentum_correction import BEFORE, CSCSettings
from refgf.training.step import Replica

# ---- the idea, for all ranks in one process ----


def csc_sums(gradients, residuals, chosen, chunk: int, percent: float) -> tuple:
    """(p, n) twice, chunk numbers -> (sums (n,), residuals (p, n), chunks of the next step)."""
    waiting = residuals + gradients  # (p, n) what each rank would send
    chunk_of = np.arange(waiting.shape[1]) // chunk  # (n,) 0 0 0 1 1 1 2 2
    norms = sum(np.bincount(chunk_of, np.abs(mine)) for mine in waiting)  # (C,) one allreduce
    importance = norms / np.bincount(chunk_of)  # the last chunk may be shorter
    count = int(max(1, np.ceil(len(importance) * percent / 100)))
    best = np.argsort(-importance, kind="stable")[:count]  # the same on all ranks
    sent = np.isin(chunk_of, chosen)  # (n,) True in the chunks that the last step has chosen
    sums = np.zeros_like(waiting[0])
    sums[sent] = sum(waiting[:, sent])  # packed, without indices: the other allreduce
    waiting[:, sent] = 0  # the others wait
    return sums, waiting, np.sort(best)


# ---- one step: all of CSC, built from the core ----


def exchange_of(run: kit.Run, model: Replica, settings: CSCSettings, theta: float) -> CSC:
    """CSC over a float16 ring. Momentum and decay that CSC applies leave the optimiser."""
    model.optimizer, momentum, decay = model.optimizer.split(settings.form in BEFORE)
    pools = model.gradients, model.parameters.flat
    residual = settings.residual(*pools, settings, momentum, decay, run.size)
    transport = Transport(ring_allreduce(run.comm, wire=np.float16), Theta(theta), np.float16)
    return CSC(settings, residual, transport, direct_allreduce(run.comm), model.loss_scale)


def one_step(exchange: CSC, model: Replica, gradients, rate: float) -> None:
    """One step from gradients (n,), announced in backward's order. Only sent chunks are updated."""
    model.gradients.flat[:] = gradients
    for i in range(len(model.gradients.specs)):
        exchange.ready(i)  # packs chosen chunks, sends them above theta bytes
    result = exchange.finish()  # norms, flag, residual, the next choice
    if result.accepted:
        model.update(rate, result)


# ---- the lesson ----


def measure(run: kit.Run) -> Iterator[dict]:
    trials.require_density(run, study.EPOCHS)
    data = train, _ = images.load(run)
    oracle.check(run, exchange_of, one_step)
    yield {"forms": forms.show(run)}
    yield {"chosen": (chosen := learning.watch(run, train))}
    if run.regime.like:
        yield {"times": times.sweep(run, chosen["norms"]), "small": times.small(run, train)}
    else:
        yield {"here": here.measure(run, train)}
    yield {"study": study.compare(run, data)}


if __name__ == "__main__":
    lesson = kit.Lesson(__file__, __doc__, REVEAL, like="v100-56gbit")
    images.arguments(lesson)
    lesson.parser.set_defaults(width=1 / 16)
    add, percent = lesson.argument, {"type": float, "metavar": "PERCENT"}
    add("--density", default=10.0, help="how much of the chunks is sent", **percent)
    add("--chunk", type=int, metavar="ELEMENTS", help="default: about 1900 chunks")
    add("--pairs", type=kit.positive, metavar="N", help="trainings of each kind (4; --full: 12)")
    add("--warmup", nargs="*", help="densities of the first epochs", **percent)
    lesson.main(measure, draw)
