"""Exercise learning_rate(base_rate, batch, base_batch, step, steps, warmup_steps)."""

from refgf.oracle.definitions import polynomial_rate
from refgf.oracle.grade.exercises.before import Exercise, Mistake, Part

WARM, DECAY = "during warm-up", "after warm-up"
EDGES = "step 0, the end of warm-up, no warm-up, the last step and later ones"


def learning_rate(base_rate, batch, base_batch, step, steps, warmup_steps):
    rate = polynomial_rate(step, steps, base_rate * batch / base_batch)
    return rate * min(1.0, (step + 1) / max(1, warmup_steps))


def without_linear_scaling(base_rate, batch, base_batch, step, steps, warmup_steps):
    return learning_rate(base_rate, 1, 1, step, steps, warmup_steps)


def root_of_the_batch(base_rate, batch, base_batch, step, steps, warmup_steps):
    return learning_rate(base_rate, batch**0.5, base_batch**0.5, step, steps, warmup_steps)


def begins_at_zero(base_rate, batch, base_batch, step, steps, warmup_steps):
    rate = polynomial_rate(step, steps, base_rate * batch / base_batch)
    return rate * step / warmup_steps if step < warmup_steps else rate


def begins_at_the_base_rate(base_rate, batch, base_batch, step, steps, warmup_steps):
    rate = polynomial_rate(step, steps, base_rate * batch / base_batch)
    if step + 1 >= warmup_steps:
        return rate
    return base_rate + (rate - base_rate) * (step + 1) / warmup_steps


def no_decay_in_warmup(base_rate, batch, base_batch, step, steps, warmup_steps):
    target = base_rate * batch / base_batch
    if step < warmup_steps:
        return target * (step + 1) / warmup_steps
    return polynomial_rate(step, steps, target)


def decay_begins_after_warmup(base_rate, batch, base_batch, step, steps, warmup_steps):
    target = base_rate * batch / base_batch
    if step < warmup_steps:
        return target * (step + 1) / warmup_steps
    return polynomial_rate(step - warmup_steps, steps - warmup_steps, target)


def linear_decay(base_rate, batch, base_batch, step, steps, warmup_steps):
    target = base_rate * batch / base_batch
    return polynomial_rate(step, steps, target, 1.0) * min(1, (step + 1) / max(1, warmup_steps))


def rises_again(base_rate, batch, base_batch, step, steps, warmup_steps):
    rate = base_rate * batch / base_batch * (1 - step / steps) ** 2
    return rate * min(1.0, (step + 1) / max(1, warmup_steps))


def of_steps(random, first, stop):
    """A schedule and one of its steps. first and stop are shares of its 120 steps, 20 warm."""
    step = int(random.integers(round(first * 120), round(stop * 120)))
    base_batch = int(random.integers(20, 200))
    batch = base_batch * int(random.integers(2, 9))
    return float(random.random() + 0.1), batch, base_batch, step, 120, 20


LEARNING_RATE = Exercise(
    "learning_rate",
    learning_rate,
    (
        Part(
            WARM,
            2,
            lambda random: [
                (0.1, 256, 64, 2, 24, 6),
                *(of_steps(random, 1 / 60, 18 / 120) for _ in range(3)),
            ],
        ),
        Part(
            DECAY,
            2,
            lambda random: [
                (0.1, 256, 64, 12, 24, 6),
                *(of_steps(random, 1 / 4, 0.95) for _ in range(3)),
            ],
        ),
        Part(
            EDGES,
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
        ),
    ),
    (
        Mistake(
            "your linear scaling is missing: a batch k times as large has a rate k times as large",
            without_linear_scaling,
            (WARM, DECAY, EDGES),
        ),
        Mistake(
            "you scale by the root of the batch: linear scaling means batch / base_batch",
            root_of_the_batch,
            (WARM, DECAY, EDGES),
        ),
        Mistake(
            "your warm-up is one step late: step 0 has the share 1 / warmup_steps, not 0",
            begins_at_zero,
            (WARM, EDGES),
        ),
        Mistake(
            "your warm-up begins at base_rate; wanted equal increments from 0",
            begins_at_the_base_rate,
            (WARM, EDGES),
        ),
        Mistake(
            "your rate does not decay during warm-up: multiply the decayed rate",
            no_decay_in_warmup,
            (WARM, EDGES),
        ),
        Mistake(
            "your decay begins after warm-up; wanted in step 0",
            decay_begins_after_warmup,
            (WARM, DECAY, EDGES),
        ),
        Mistake("your decay is linear; wanted a square", linear_decay, (WARM, DECAY, EDGES)),
        Mistake(
            "after the last step your rate rises again, because a square is positive: wanted 0",
            rises_again,
            (EDGES,),
        ),
    ),
    relative=1e-12,  # the operations may be in another order: a few roundings of 1e-16
)
