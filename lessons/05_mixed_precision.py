"""Lesson 05: mixed precision - half the bytes, and the care that it takes.

    python -m refgf.cluster run --like v100-56gbit -- python lessons/05_mixed_precision.py
    mpiexec -n 4 python lessons/05_mixed_precision.py    without nodes: links are waited for
    ... --like this-machine    your laptop as a cluster: ranks compute for real on its cores

QUESTION    Gradients need not be exact. Can they be sent as 16-bit numbers, in half the time,
            without harm?
IDEA        Round to float16 on the wire only. Add in float32, keep float32 master weights, and
            multiply the loss by a power of two so that small gradients do not become zero.
            (refgf/exchange/precision.py)
PREDICTION  A ring allreduce of n gradients of b bytes on p ranks takes

                T = 2 (p-1) (alpha + beta b n / p) + casts and additions

            Only the term with b is halved. Let r be the relative error of one rounding (about
            2^-12 root mean square). Each hop of a ring rounds a partial sum once more. `direct`
            rounds every input once and every result once, whatever p is. For random gradients:

                ring    r sqrt((p+1) / 2)            direct    r sqrt(2)

            float16 ends at 65,504 and has nothing below 6e-8. A sum of p gradients that is divided
            by p only afterwards overflows for gradients p times smaller.

Before you run it, write down: by how much is the error of the float16 ring on 512 ranks larger than
on 2? Which is larger, that error or the noise of a mini-batch, and by how much? What share of your
network's gradients is too small for float16?

This is weak scaling: each rank brings its own batch, whatever p is.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/05_mixed_precision.py)
    1. Let all gradients be positive (biased). How does the ring's error grow with p now, and why?
    2. Divide each rank's gradients by p before the cast, instead of its loss by the global batch
       before backward. Are other numbers sent? When would it matter?
    3. Leave out the rounding of the owner's own slice (`finish` in refgf/comm/ring.py). Which
       property is lost?
"""

import refgf.launch  # noqa: F401  before MPI starts

import numpy as np

import kit
from kit import flow, images
from kit.claims import GAIN, LIMIT, NOISE, Claim
from lab import half_numbers as compared
from lab import half_rounding, half_times, loss_scales
from lab.precision_picture import draw
from refgf.comm import direct, ring
from refgf.comm.schedule import collective
from refgf.oracle import definitions
from refgf.oracle.definitions import on_wire, same_bits, scaled_allreduce

HALF = np.float16
CLAIMS = (
    Claim(
        "The exchange of a step takes at most 0.65 times as long in float16.",
        compared.times("exchange", "<", 0.65),
        "casts that take longer than the bytes saved, or latency",
        kind=GAIN,
    ),
    Claim(
        f"In a call of {half_times.SHORT} gradients float16 saves less than a tenth.",
        compared.short_call(">", 0.9),
        "a link on which even such a message takes longer than its latency",
        kind=LIMIT,
        expected=NOISE,
    ),
    Claim(
        "Without a network float16 loses: casts take longer than the copied bytes that they save.",
        compared.times("own", ">"),
        "a processor that casts faster than it copies",
    ),
    Claim(
        "Next to direct's rounding error, the ring's grows with the root of p.",
        compared.growth,
        "gradients that are not random numbers",
    ),
    Claim(
        "The noise of the largest batch is over 100 times the ring's rounding error of its sum.",
        compared.noise(100),
        "more images in the batch, or more ranks in the ring",
    ),
    Claim(
        "A loss scale of 2^12 loses less than a tenth of the gradients that no scale loses.",
        compared.lost(loss_scales.GOOD, "<", 1.0, 0.1),
        "gradients all of which float16 can hold",
    ),
    Claim(
        "float16 with a dynamic scale ends less than 1.5 points of accuracy below float32.",
        compared.accuracy(loss_scales.DYNAMIC, ">", -1.5),
        "more skipped steps, or fewer epochs",
    ),
    Claim(
        "float16 with a scale of 2^-16 ends less than 1.5 points below float32, too.",
        compared.accuracy(loss_scales.LOW, ">", -1.5),
        "what the lost gradients are worth to this network",
    ),
)


# ---- the idea: one slice, whose sum starts on rank 0 ----


def ring_slice(xs: list[np.ndarray]) -> np.ndarray:
    """Every hop rounds the partial sum that it sends. p float32 arrays (k,) -> (k,)"""
    total = xs[0]
    for x in xs[1:]:
        total = x + on_wire(total, "float16")
    return on_wire(total, "float16")


def direct_slice(xs: list[np.ndarray]) -> np.ndarray:
    """The inputs are rounded, and the result. p float32 arrays (k,) -> (k,)"""
    total = on_wire(xs[0], "float16")
    for x in xs[1:]:
        total = total + on_wire(x, "float16")
    return on_wire(total, "float16")


# ---- one step: scale, round for the wire, sum, unscale ----


def half_allreduce(run: kit.Run, gradients, scale: float, algorithm=ring.allreduce) -> None:
    """Sum float32 gradients (n,) over all ranks in place, as float16 on the wire."""
    gradients *= np.float32(scale)  # a real step scales the loss instead, before backward
    collective(run.comm, algorithm, wire=HALF)(gradients)
    gradients /= np.float32(scale)


# ---- the oracle ----


def real_gradients(run: kit.Run, data) -> list[np.ndarray]:
    """Every rank's gradients of a batch, after a few steps of training."""
    with flow.new(run, data) as stack:
        for batch in images.steps(run, data, run.quick(2, 20)):
            stack.step(*batch, rate=run.options.rate)
        stack.model.network.loss(*next(images.steps(run, data, 1)))
        stack.model.network.backward(lambda i: None)
        return run.gather(stack.model.gradients.flat.copy())


def check_against_oracle(run: kit.Run, gradients: list[np.ndarray]) -> None:
    """Compare the bits of both schedules, with and without scaling, with the definition."""
    run.section("The oracle")
    first = slice(0, -(-len(gradients[0]) // run.size))  # slice 0
    for algorithm, definition, idea in (
        (direct.allreduce, definitions.direct_allreduce, direct_slice),
        (ring.allreduce, definitions.ring_allreduce, ring_slice),
    ):
        for scale in (1.0, loss_scales.GOOD):
            mine = gradients[run.rank].copy()
            half_allreduce(run, mine, scale, algorithm)
            wanted = scaled_allreduce(gradients, scale, allreduce=definition)[run.rank]
            alike = scale != 1 or same_bits(idea([x[first] for x in gradients]), wanted[first])
            if not (same_bits(mine, wanted) and alike):
                raise AssertionError(
                    f"{definition.__name__} of float16 on rank {run.rank}, scale {scale}: "
                    "got other bits; wanted those of the definition"
                )
    run.say("float16 on the wire, with and without a loss scale, ring and direct:")
    run.say("a real batch's gradients have the bits of the definition.")


# ---- the measurement ----


def measure(run: kit.Run) -> dict:
    train, held_out = images.load(run)
    gradients = real_gradients(run, train)
    check_against_oracle(run, gradients)
    run.section("Half the bytes")
    measured = half_times.measure(run, train)
    half_times.show(run, measured)
    return {
        "times": measured,
        "rounding": half_rounding.errors(run),
        "overflow": half_rounding.overflow(run),
        "noise": half_rounding.noise(run, train),
        "scales": loss_scales.lost(run, gradients[run.rank]),
        "learning": loss_scales.learn(run, train, held_out),
    }


PICTURE = (
    "Bars of a step with float32 and float16 on the wire, and the ratio of the two for calls of "
    "each length; rounding errors against ranks, next to the noise of a mini-batch; gradients that "
    "are lost for each loss scale; differences in accuracy with intervals."
)

if __name__ == "__main__":
    lesson = kit.Lesson(__file__, __doc__, like="v100-56gbit", claims=CLAIMS, picture=PICTURE)
    images.arguments(lesson)
    lesson.main(measure, draw)
