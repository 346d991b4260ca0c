"""Lesson 05: mixed precision - half the bytes, and the care that it takes.

    python -m refgf.cluster run --like v100-56gbit -- python lessons/05_mixed_precision.py
    mpiexec -n 4 python lessons/05_mixed_precision.py    without nodes: links are waited for
    ... --like this-machine    your laptop as a cluster: ranks compute for real on its cores
    options: --predict "the noise, 2 times", -v (all tables), --pairs N (of trainings, 0: none),
             --quick, --full, --plot, ...

QUESTION    Can gradients be sent as 16-bit numbers, in half the time, without harm? And 8 bits?
IDEA        Round to float16 on the wire only. Add in float32, keep float32 master weights, and
            multiply the loss by a power of two so that small gradients do not become zero. How
            often a number is rounded depends on the allreduce: `half_sum` below (drawing:
            lessons/drawings/05.svg), and refgf/comm/schedule.py, refgf/exchange/precision.py.

                ring      x0 -> round -> + x1 -> round -> + x2 -> round      at every hop
                direct    round(x0) + round(x1) + round(x2)    -> round      inputs and result

PREDICTION  A ring allreduce of n gradients of b bytes on p ranks takes

                T = 2 (p-1) (alpha + beta b n / p) + casts and additions

            Only the term with b is halved. Let r be the relative error of one rounding
            (2.1e-4 root mean square). Each hop of a ring rounds a partial sum once more. `direct`
            rounds every input once and every result once, whatever p is. For random gradients:

                ring    r sqrt((p+1) / 2)            direct    r sqrt(2)

            Naive is float16 for everything. By hand: next to 1, float16 has 0.9995 and 1.00098. A
            weight of 1 that 1,000 updates of 0.0002 should bring to 1.2 stays 1. So weights stay in
            float32. And a gradient of 1e-8 becomes zero in float16: that is what the scale is for.

            float16 ends at 65,504 and has nothing below 6e-8. A sum of p gradients that is divided
            by p only afterwards overflows for gradients p times smaller.

            8 bits (E4M3) have 3 for the fraction, not 10, so r is 2^7 times as large: 2.7 %. They
            end at 448, so 32 numbers share a power of two. A ring of 512 ranks would be off by
            42 %. `direct` sends as many bytes, adds in float32, and is off by 3.7 % on any p.

Before you run it, write down: by how much is the error of the float16 ring on 512 ranks larger than
on 2? Of the real gradients of a batch of 256 images, which is larger, the ring's error or the noise
of the batch, and by how much? What share of your network's gradients is too small for float16, and
what share of their norm?

This is weak scaling: each rank brings its own batch, whatever p is. After this lesson you can say
when half the bytes are half the time, how rounding grows with p, and what a loss scale is for.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/05_mixed_precision.py)
    1. Let all gradients be positive (biased); `error_of` in lessons/kit/rounding.py draws them.
       How does the ring's error grow with p now, and why?
    2. Divide each rank's gradients by p before the cast, instead of its loss by the global batch
       before backward (`train_step` in refgf/training/step.py). Are other numbers sent? When would
       it matter?
    3. Leave out the rounding of the owner's own slice (`finish` in refgf/comm/ring.py) and run this
       with --wrong-anyway. Which property is lost?

A COLLEAGUE SAYS the following, and is wrong. Show it. (answers: lessons/teaching/05.md)
    a. "Half the bytes are half the time." --like this-machine -v: the calls, by length.
    b. "An error of a part in a thousand ruins the training." -v: the noise of a mini-batch next to
       rounding.
    c. "If no gradient overflows, their sum does not." -v: "Where division after the sum overflows".
"""

import refgf.launch  # noqa: F401  before MPI starts

from collections.abc import Iterator
import numpy as np

import kit
from kit import images
from lab.precision import blocks, loss_scales, oracle, rounding, times
from lab.precision.claims import REVEAL
from lab.precision.picture import draw
from refgf.comm import ring
from refgf.comm.schedule import collective

# ---- the idea: which numbers are rounded, for all ranks in one process ----


def half(x: np.ndarray) -> np.ndarray:
    """float32 numbers as they arrive after they were sent as float16. (n,) -> (n,)"""
    with np.errstate(over="ignore"):
        return x.astype(np.float16).astype(np.float32)


def half_sum(gradients: list[np.ndarray], scale: float, every_hop: bool) -> np.ndarray:
    """p float32 arrays (n,) -> their sum (n,), by a ring (every_hop) or by `direct`."""
    p, sums = len(gradients), []
    slices = [np.array_split(g * np.float32(scale), p) for g in gradients]  # [rank][slice]
    for s in range(p):
        if every_hop:  # the sum of slice s starts on rank s; each hop sends it on
            total = slices[s][s]
            for k in range(1, p):
                total = half(total) + slices[(s + k) % p][s]
        else:  # the owner of slice s gets all inputs and adds them in rank order
            total = half(slices[0][s])
            for r in range(1, p):
                total = total + half(slices[r][s])
        sums.append(half(total))  # the finished slice is sent to all
    return np.concatenate(sums) / np.float32(scale)


# ---- one step: scale, round for the wire, sum, unscale ----


def half_allreduce(run: kit.Run, gradients, scale: float, algorithm=ring.allreduce) -> None:
    """Sum float32 gradients (n,) over all ranks in place, as float16 on the wire."""
    gradients *= np.float32(scale)  # a real step scales the loss instead, before backward
    collective(run.comm, algorithm, wire=np.float16)(gradients)
    gradients /= np.float32(scale)


# ---- the lesson ----


def measure(run: kit.Run) -> Iterator[dict]:
    train, held_out = images.load(run)
    gradients = loss_scales.real_gradients(run, train)
    oracle.check(run, gradients, half_allreduce)
    yield {"times": times.measure(run, train)}
    yield {"rounding": rounding.errors(run), "overflow": rounding.overflow(run)}
    yield {"noise": rounding.noise(run, train), "blocks": blocks.measure(run, gradients[run.rank])}
    yield {"scales": loss_scales.lost(run, gradients[run.rank])}
    yield {"learning": loss_scales.learn(run, train, held_out)}


if __name__ == "__main__":
    lesson = kit.Lesson(__file__, __doc__, REVEAL, like="v100-56gbit")
    images.arguments(lesson)
    lesson.argument("--pairs", type=int, metavar="N", help="pairs of trainings (10; 0: none)")
    lesson.main(measure, draw)
