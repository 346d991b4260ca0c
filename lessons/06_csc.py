"""Lesson 06: coarse-grained sparse communication - send a tenth of the chunks, accumulate the rest.

    python -m refgf.cluster run --like v100-56gbit -- python lessons/06_csc.py
    mpiexec -n 4 python lessons/06_csc.py      (--density PERCENT, --chunk, --warmup, --full, ...)

QUESTION    Even half the bytes take too long on a slow network. Must every gradient be sent in
            every step?
IDEA        Divide the pool into chunks and send only the most important ones. Add what was not
            sent, the residual, to the next step's gradient. All ranks choose from the same norms,
            so they choose the same chunks. No indices are sent, and a plain dense allreduce sums
            the packed chunks. (refgf/exchange/csc.py, chunk_choice.py, momentum_correction.py)

            A gradient that waits is late. What momentum makes of it depends on the form. Example:
            it is 1 in step 1 and 0 later, momentum is 0.5, its chunk is sent in steps 3, 6, 9, ...
            So far moves the weight, divided by the learning rate:

            step           1     2     3     4     5     6   ...  in all
            dense        1.00   .50   .25   .12   .06   .03       2.00
            none           .     .   1.00    .     .    .50       2.00   late, but all of it
            dgc            .     .   1.75    .     .    .22       2.00   catches up when it is sent
            dgc_masked     .     .   1.75    .     .     .        1.75   its momentum is cleared
            history        .     .    .25    .     .    .12       0.50   multiplied by m^2 = 0.25

PREDICTION  A step sends k = max(1, ceil(C percent/100)) of C chunks. It also sends C norms and one
            flag in float64:

                bytes = 2 x chosen elements + 8 (C + 1)         a little over a tenth of dense
                step  = step without exchange + time of these bytes + own work

            Own work is what the processor does: norms of all gradients, choosing, packing. It is
            measured first, without a network.

Before you run it, write down: how many steps does an unimportant chunk wait at a density of 10 %?
How much faster is the exchange then, 10 times or less? And which form will learn best?

This is weak scaling: each rank brings a batch of its own, whatever p is.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/06_csc.py)
    1. Compute importance without the division by the chunk's length. Which chunk is hardly ever
       chosen now?
    2. Each rank chooses from its own norms only, without the allreduce. What breaks, and at which
       step does the lesson notice?
    3. At which density do norms and flag cost as many bytes as the chunks, for the full AlexNet?
    4. A chunk is sent in every tenth step. Up to which learning rate does gradient descent on
       w^2 / 2 still converge, dense and with each form of correction? What does that say about the
       accuracies above?
"""

import refgf.launch  # noqa: F401  before MPI starts

import numpy as np

import kit
from kit import images, trials
from kit.claims import GAIN, LIMIT, Claim
from lab import csc_forms, csc_here, csc_learning, csc_reference, csc_study, csc_times
from lab.csc_picture import PICTURE, draw
from lab.csc_results import better_control, compare, largest_error, learned, moved, of_step, small
from lab.csc_study import LARGE_RATE, SMALL_RATE
from refgf.comm.direct import direct_allreduce
from refgf.comm.ring import ring_allreduce
from refgf.engine.residual import FusedResidual
from refgf.exchange.csc import CSC
from refgf.exchange.dense import Transport
from refgf.exchange.lazy import Theta
from refgf.exchange.momentum_correction import BEFORE, FORMS, CSCSettings
from refgf.training.step import Replica

CLAIMS = (
    Claim(
        "At a density of 10 % the exchange takes at most a quarter of the dense one.",
        lambda r: compare(of_step(r, 10, "exchange"), "<", of_step(r, None, "exchange"), 0.25),
        unless="the norms of all gradients, which are computed at any density",
        kind=GAIN,
    ),
    Claim(
        "Each step is predicted within 20 %.",
        lambda r: compare(largest_error(r), "<", 0.2),
        unless="other work on the cores while the lesson runs",
    ),
    Claim(
        "Without a network, as in shared memory, CSC gains less: at 10 % more than half of the "
        "time of a dense exchange remains.",
        lambda r: compare(of_step(r, 10, "own"), ">", of_step(r, None, "own"), 0.5),
        unless="a processor to which casts and sums of all gradients cost more than their norms",
        kind=LIMIT,
    ),
    Claim(
        "In a small network, whose norms weigh nearly as much as the chosen chunks, the exchange "
        "with CSC takes longer than the dense one.",
        lambda r: compare(small(r, 1), ">", small(r, 0)),
        unless="a link so slow that its bytes cost more than one more call and the choice",
        kind=LIMIT,
    ),
    Claim(
        "In the form `none` a gradient that waits is late, not lost: in all it moves the weight as "
        "far as in dense training.",
        lambda r: compare(moved(r, "none"), ">", moved(r, "dense"), 0.999),
        unless="a training that ends earlier",
    ),
    Claim(
        "Chunks chosen by importance learn faster than as many chosen at random or in turn.",
        lambda r: compare(better_control(r), ">", 0.0),
        unless="gradients of equal size in all chunks, or a training long enough for any choice",
        kind=GAIN,
    ),
    Claim(
        "In so short a training CSC costs accuracy (form `none`).",
        lambda r: compare(learned(r, "forms", "none", "accuracy"), "<", 0.0),
        unless="a longer training, or a larger learning rate",
        kind=LIMIT,
    ),
    Claim(
        "The larger the learning rate, the better none learns compared with dgc.",
        lambda r: compare(learned(r, "why", SMALL_RATE), ">", learned(r, "why", LARGE_RATE)),
        unless="rates so small that dgc is stable at all of them",
    ),
)


def measure(run: kit.Run) -> dict:
    trials.require_density(run, csc_study.EPOCHS)
    train, held_out = images.load(run)
    check_against_oracle(run)
    forms = csc_forms.show(run)
    chosen = csc_learning.watch(run, train)
    if run.regime.like:
        measured = {
            "times": csc_times.sweep(run, chosen["norms"]),
            "small": csc_times.small(run, train),
        }
    else:
        measured = {"here": csc_here.measure(run, train)}
    study = csc_study.compare(run, (train, held_out))
    return {"forms": forms, "chosen": chosen, **measured, "study": study}


# ---- one step: all of CSC, built from the core ----


def one_step(exchange: CSC, model: Replica, gradients, rate: float) -> None:
    """One step from gradients (n,), announced in backward's order. Only sent chunks are updated."""
    model.gradients.flat[:] = gradients
    for i in range(len(model.gradients.specs)):
        exchange.ready(i)  # packs chosen chunks, sends them above theta bytes
    result = exchange.finish()  # norms, flag, residual, the next choice
    if result.accepted:
        model.update(rate, result)


def exchange_of(run: kit.Run, model: Replica, settings: CSCSettings, theta: float) -> CSC:
    """CSC over a float16 ring. Momentum and decay that CSC applies leave the optimiser."""
    model.optimizer, momentum, decay = model.optimizer.split(settings.form in BEFORE)
    pools = model.gradients, model.parameters.flat
    residual = settings.residual(*pools, settings, momentum, decay, run.size)
    transport = Transport(ring_allreduce(run.comm, wire=np.float16), Theta(theta), itemsize=2)
    return CSC(settings, residual, transport, direct_allreduce(run.comm), model.loss_scale)


# ---- the oracle ----


def check_against_oracle(run: kit.Run) -> None:
    """Every form on a small pool: weights, residual and choices are those of the definition."""
    run.section("The oracle")
    gs = csc_reference.gradients(run.size, steps=run.quick(4, 8))
    for form in FORMS:
        model, lists, weights = csc_reference.model(), [], []
        percent, chunk = csc_reference.PERCENT, csc_reference.CHUNK
        settings = CSCSettings(percent, form, chunk, residual=FusedResidual)
        exchange = exchange_of(run, model, settings, csc_reference.THETA_BYTES)
        for gradients in gs:
            lists.append(exchange.chosen)
            one_step(exchange, model, gradients[run.rank], csc_reference.RATE)
            weights.append(model.parameters.flat.copy())
        csc_reference.require(run.rank, form, gs, lists, (weights, exchange.residual.settled()))
    run.say(
        f"{', '.join(FORMS)}:\nthe bits of the definition over {len(gs)} steps, "
        "with float16, lazy allreduce and weight decay"
    )


if __name__ == "__main__":
    lesson = kit.Lesson(__file__, __doc__, like="v100-56gbit", claims=CLAIMS, picture=PICTURE)
    images.arguments(lesson)
    lesson.parser.set_defaults(width=1 / 16)
    lesson.argument(
        "--density",
        type=float,
        default=10.0,
        metavar="PERCENT",
        help="how many percent of the chunks are sent",
    )
    lesson.argument(
        "--chunk",
        type=int,
        metavar="ELEMENTS",
        help="length of a chunk (default: about 1900 chunks)",
    )
    lesson.argument(
        "--warmup", type=float, nargs="*", metavar="PERCENT", help="densities of the first epochs"
    )
    lesson.main(measure, draw)
