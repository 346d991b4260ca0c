"""Solutions of lesson 08, each checked by the code below it.

python lessons/solutions/08_scaling.py
"""

from dataclasses import replace
from math import inf, isclose

from refgf.predict.cost import Link
from refgf.papers.scaling.collectives import LINES
from refgf.papers.scaling.headlines import ALPHA, HEADLINES, IMAGES, IMPLIED_RATE
from refgf.papers.scaling.interval import Input
from refgf.papers.scaling.published import SIMULATION
from refgf.papers.scaling.scaling import best_theta_step, ready_of
from refgf.papers.scaling.systems import System, scaling_efficiency
from refgf.papers.scaling.workloads import resnet50

BATCH, RATE = 64, 253.1  # ResNet-50 on one GPU (verified: ddl-benchmarks)


def first_p(alpha_s: float) -> int:
    """The first p at which the latencies of one call per gradient outlast a step's computing."""
    calls, compute_s = len(resnet50().tensors), BATCH / RATE
    return next(p for p in range(2, 5000) if calls * 2 * (p - 1) * alpha_s > compute_s)


def latencies() -> None:
    """1. At 101 to 159 ranks on InfiniBand (alpha 7.9 to 5 us), at 19 on the authors' Ethernet
    (45.25 us): 161 calls of 2(p-1) alpha each against 0.25 s. From there on no overlap and no
    bandwidth helps, only fewer calls or fewer steps."""
    assert [first_p(alpha_s) for alpha_s in ALPHA.values] == [159, 101]
    assert first_p(SIMULATION.links["between"].alpha_s) == 19


def the_implied_rate() -> None:
    """2. It says something near 410, and it is worth nothing. The rate of 3297 images/s was
    computed *from* 410.2 and 1.5 minutes. And the two are one number, not two: for any rate R and
    any step, 410.2 x minutes x R is 95 epochs of batches. With R computed from both, one of them
    comes out right whenever the other does. So `is_result` is False, and the lesson does not show
    it."""
    headline, minutes = HEADLINES[:2]
    implied = (
        IMPLIED_RATE,
        Input("small_batch", (1.0,), "", "computed", "the rate is that at 128 images already"),
    )
    circular = replace(headline, inputs=(*implied, *headline.inputs[2:]))
    low, high = circular.interval()
    assert not circular.is_result and low < 410.2 < high
    given = {each.name: each.values[-1] for each in headline.inputs}
    images = 95 * -(-IMAGES // (128 * 512)) * 128 * 512
    seconds = 60 * minutes.predict(**given)
    rate = given["rate"] * given["small_batch"]
    assert isclose(headline.predict(**given) * seconds * rate, images)


def reached(algorithm: str, threshold_bytes: float) -> float:
    """Throughput of ResNet-50 on 2048 GPUs and InfiniBand, over one GPU.

    threshold_bytes: infinity for the best theta, 0 for eager
    """
    line = LINES[algorithm](2048, Link(7.9e-6, 1 / 7e9))
    step = best_theta_step(ready_of(resnet50(), BATCH, RATE), System("", 4, threshold_bytes), line)
    return 2048 * scaling_efficiency(step) / 100


def fewer_steps() -> None:
    """3. 22 steps in place of 4094. Eager exchange gains most, from 5 percent of 2048 to nearly all
    of it, because latencies are what it pays. Lazy allreduce has avoided most of them already, and
    gains a sixth. Fewer calls and fewer steps are two ways to the same end. (The price:
    halving-doubling's far partners share links that a ring's neighbours have to themselves.)"""
    eager, lazy = (
        [reached(name, theta) for name in ("ring", "halving-doubling")] for theta in (0, inf)
    )
    assert eager[0] < 0.06 * 2048 and eager[1] > 0.9 * 2048
    assert 1.05 < lazy[1] / lazy[0] < 1.25


if __name__ == "__main__":
    for exercise in (latencies, the_implied_rate, fewer_steps):
        exercise()
        print(exercise.__doc__.strip() + "\n")
