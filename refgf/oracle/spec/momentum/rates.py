"""M3, M6: the learning rate of each step."""

from typing import Any

import numpy as np

from refgf.oracle.spec.case import Case, Given
from refgf.oracle.spec.draw import Draw, pick
from refgf.oracle.spec.exercise import Exercise
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement

U = 2.0**-53  # the unit roundoff of float64

# ---- M3: warm-up ----


def warmup_rate(step: int, warmup_steps: int, base_rate: float, batch_factor: float) -> float:
    """M3: linear scaling with gradual warm-up: the rate grows by the same increment each step, from
    the base rate to batch_factor times it; it is one increment above the base in step 0, and
    reaches the target in the last warm-up step. In float64: base + (target - base)(s + 1) / steps
    in step s, from left to right, and from the last one on the target.

    Source: Goyal et al. 2017, who start at the base rate; the increment in step 0: chosen.

    step: counted from 0.
    """
    target = base_rate * batch_factor
    if step + 1 >= warmup_steps:
        return target
    return base_rate + (target - base_rate) * (step + 1) / warmup_steps


M3 = Statement("M3", warmup_rate)
WARMUP = JudgedFunction(warmup_rate, "M3", {"rate": ()})
WARMUP.bounds(lambda case: {"rate": 8 * U * case["out.rate"]})


def rounded(case: Case, times: int) -> Case:
    case.tensors["bound.rate"] = times * U * case["out.rate"]
    return case


@WARMUP.fresh
def any_warmup(d: Draw) -> Given:
    plan = {"step": d.integer(0, 12), "warmup_steps": d.integer(1, 9), "base_rate": 0.1}
    return {**plan, "batch_factor": d.integer(1, 64)}


@WARMUP.golden
def warmup_cases() -> Cases:
    for step, why in (
        (0, "one amount above the base"),
        (3, "on the way"),
        (4, "reaches the target"),
        (9, "stays there"),
    ):
        plan: Given = {"step": step, "warmup_steps": 5, "base_rate": 0.1, "batch_factor": 8}
        yield rounded(WARMUP.case(f"warmup-rate-step-{step}", why, **plan), 4)
    plan = {"step": 4, "warmup_steps": 7, "base_rate": 0.3, "batch_factor": 3}
    case = WARMUP.case("warmup-rate-factor-3", "three times 0.3, in seven steps", **plan)
    yield rounded(case, 4)


@M3.mistake("one step late: the first step is at the base rate")
def warmup_late(step, warmup_steps, base_rate, batch_factor):
    share = min(1.0, step / warmup_steps)
    return base_rate + (base_rate * batch_factor - base_rate) * share


@M3.mistake("warms up from 0 instead of from the base rate")
def warmup_from_zero(step, warmup_steps, base_rate, batch_factor):
    return base_rate * batch_factor * min(1.0, (step + 1) / warmup_steps)


# ---- M6: decay ----


def polynomial_rate(step: int, steps: int, rate: float, power: float = 2.0) -> float:
    """M6: polynomial decay: the rate of step s of S is rate (1 - s/S)^power, and 0 from step S on.

    Source: You et al. 2017 (Algorithm 1), with power 2.
    """
    return rate * max(0.0, 1 - step / steps) ** power


M6 = Statement("M6", polynomial_rate)
M6.given("the power is ignored: linear decay", power=lambda power: 1.0)
M6.given("one step early: the last step has rate 0", steps=lambda steps: steps - 1)
M6.given("the power is cut to a whole number", power=int)
POLYNOMIAL = JudgedFunction(polynomial_rate, "M6", {"rate": ()})
POLYNOMIAL.bounds(  # 1 - step / steps cancels
    lambda case: {"rate": 8 * case.arguments["steps"] * U * case["out.rate"]}
)


@POLYNOMIAL.fresh
def any_step(d: Draw) -> Given:
    plan = {"step": d.integer(0, 12), "steps": d.integer(1, 12), "rate": 0.3}
    return {**plan, "power": pick(d.rng, 1.0, 1.5, 2.0, 3.0)}


@POLYNOMIAL.golden
def polynomial_cases() -> Cases:
    for step, power, why in (
        (0, 2.0, "the whole rate"),
        (3, 2.0, "on the way"),
        (3, 1.0, "along a line"),
        (11, 2.0, "the last step still moves"),
        (12, 2.0, "nothing from here on"),
        (40, 0.5, "nothing, also of a root"),
    ):
        plan: Given = {"step": step, "steps": 12, "rate": 0.3, "power": power}
        case = POLYNOMIAL.case(f"polynomial-rate-step-{step}-power-{power:g}", why, **plan)
        yield rounded(case, 8)
    plan = {"step": 3, "steps": 11, "rate": 0.3, "power": 1.5}
    case = POLYNOMIAL.case("polynomial-rate-power-1.5", "the power of a root and a half", **plan)
    yield rounded(case, 8)


# ---- exercise learning_rate ----


def learning_rate(
    base_rate: float, batch: float, base_batch: float, step: int, steps: int, warmup_steps: int
) -> float:
    rate = polynomial_rate(step, steps, base_rate * batch / base_batch)
    return rate * min(1.0, (step + 1) / max(1, warmup_steps))


def of_steps(random: np.random.Generator, first: float, stop: float) -> tuple[Any, ...]:
    """A schedule and one of its steps. first and stop are shares of its 120 steps, 20 warm."""
    step = int(random.integers(round(first * 120), round(stop * 120)))
    base_batch = int(random.integers(20, 200))
    batch = base_batch * int(random.integers(2, 9))
    return float(random.random() + 0.1), batch, base_batch, step, 120, 20


# the operations may be in another order
RATE_11 = Exercise("11.2", learning_rate, relative=1e-12)
RATE_11.part(
    "during warm-up",
    2,
    lambda random: [
        (0.1, 256, 64, 2, 24, 6),
        *(of_steps(random, 1 / 60, 18 / 120) for _ in range(3)),
    ],
)
RATE_11.part(
    "after warm-up",
    2,
    lambda random: [
        (0.1, 256, 64, 12, 24, 6),
        *(of_steps(random, 1 / 4, 0.95) for _ in range(3)),
    ],
)
RATE_11.part(
    "step 0, the end of warm-up, no warm-up, the last step and later ones",
    1,
    lambda random: [
        (0.1, 512, 64, 0, 30, 5),
        (float(random.random() + 0.1), 512, 64, 0, 30, 5),
        (0.1, 512, 64, 4, 30, 5),
        (0.1, 512, 64, 0, 30, 0),
        (0.1, 512, 64, 29, 30, 5),
        (0.1, 512, 64, 30, 30, 5),
        (0.1, 512, 64, 30 + int(random.integers(1, 9)), 30, 5),
    ],
)


@RATE_11.mistake(
    "your linear scaling is missing: a batch k times as large has a rate k times as large"
)
def without_linear_scaling(base_rate, batch, base_batch, step, steps, warmup_steps):
    return learning_rate(base_rate, 1, 1, step, steps, warmup_steps)


@RATE_11.mistake("you scale by the root of the batch: linear scaling means batch / base_batch")
def root_of_the_batch(base_rate, batch, base_batch, step, steps, warmup_steps):
    return learning_rate(base_rate, batch**0.5, base_batch**0.5, step, steps, warmup_steps)


@RATE_11.mistake("your warm-up is one step late: step 0 has the share 1 / warmup_steps, not 0")
def begins_at_zero(base_rate, batch, base_batch, step, steps, warmup_steps):
    rate = polynomial_rate(step, steps, base_rate * batch / base_batch)
    return rate * step / warmup_steps if step < warmup_steps else rate


@RATE_11.mistake("your warm-up begins at base_rate; wanted equal increments from 0")
def begins_at_the_base_rate(base_rate, batch, base_batch, step, steps, warmup_steps):
    rate = polynomial_rate(step, steps, base_rate * batch / base_batch)
    if step + 1 >= warmup_steps:
        return rate
    return base_rate + (rate - base_rate) * (step + 1) / warmup_steps


@RATE_11.mistake("your rate does not decay during warm-up: multiply the decayed rate")
def no_decay_in_warmup(base_rate, batch, base_batch, step, steps, warmup_steps):
    target = base_rate * batch / base_batch
    if step < warmup_steps:
        return target * (step + 1) / warmup_steps
    return polynomial_rate(step, steps, target)


@RATE_11.mistake("your decay begins after warm-up; wanted in step 0")
def decay_begins_after_warmup(base_rate, batch, base_batch, step, steps, warmup_steps):
    target = base_rate * batch / base_batch
    if step < warmup_steps:
        return target * (step + 1) / warmup_steps
    return polynomial_rate(step - warmup_steps, steps - warmup_steps, target)


@RATE_11.mistake("your decay is linear; wanted a square")
def decay_along_a_line(base_rate, batch, base_batch, step, steps, warmup_steps):
    target = base_rate * batch / base_batch
    return polynomial_rate(step, steps, target, 1.0) * min(1, (step + 1) / max(1, warmup_steps))


@RATE_11.mistake(
    "after the last step your rate rises again, because a square is positive: wanted 0"
)
def rises_again(base_rate, batch, base_batch, step, steps, warmup_steps):
    rate = base_rate * batch / base_batch * (1 - step / steps) ** 2
    return rate * min(1.0, (step + 1) / max(1, warmup_steps))
