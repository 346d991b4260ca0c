"""Exercise lars_step(w, v, g, rate, trust, momentum, decay, adapted)."""

import numpy as np

from refgf.oracle import definitions
from refgf.oracle.definitions import LARSSettings
from refgf.oracle.grade.exercises.before import Exercise, Mistake, Part
from refgf.oracle.spec.exercise import tenths

FIRST, LATER = "the first step: v is 0", "later steps"
PLAIN, ODD = "biases and normalisation", "weights of 0, momentum 0, decay 0"


def lars_step(w, v, g, rate, trust, momentum, decay, adapted):
    settings = LARSSettings((w.size,), rate, momentum, trust, decay, (adapted,))
    return definitions.lars_step(w, v, g, settings)


def layer_rate(w, g, rate, trust, decay, adapted):
    """float32 rate * ratio, and the decay, of this layer."""
    own = definitions.lars_ratio(w, g, trust, decay) if adapted else 1.0
    return np.float32(rate * own), np.float32(decay if adapted else 0)


def rate_outside_the_velocity(w, v, g, rate, trust, momentum, decay, adapted):
    own, decay = layer_rate(w, g, 1.0, trust, decay, adapted)
    v = np.float32(momentum) * v + own * (g + decay * w)
    return w - np.float32(rate) * v, v


def without_ratio(w, v, g, rate, trust, momentum, decay, adapted):
    v = np.float32(momentum) * v + np.float32(rate) * (g + np.float32(decay * adapted) * w)
    return w - v, v


def decay_in_the_ratio_only(w, v, g, rate, trust, momentum, decay, adapted):
    own, _ = layer_rate(w, g, rate, trust, decay, adapted)
    v = np.float32(momentum) * v + own * g
    return w - v, v


def decay_outside_the_velocity(w, v, g, rate, trust, momentum, decay, adapted):
    own, decay = layer_rate(w, g, rate, trust, decay, adapted)
    v = np.float32(momentum) * v + own * g
    return w - v - own * decay * w, v


def momentum_of_all(w, v, g, rate, trust, momentum, decay, adapted):
    own, decay = layer_rate(w, g, rate, trust, decay, adapted)
    v = np.float32(momentum) * (v + own * (g + decay * w))
    return w - v, v


def average(w, v, g, rate, trust, momentum, decay, adapted):
    own, decay = layer_rate(w, g, rate, trust, decay, adapted)
    m = np.float32(momentum)
    v = m * v + (1 - m) * own * (g + decay * w)
    return w - v, v


def without_momentum(w, v, g, rate, trust, momentum, decay, adapted):
    return lars_step(w, v, g, rate, trust, 0.0, decay, adapted)


def velocity_of_before(w, v, g, rate, trust, momentum, decay, adapted):
    return w - v, lars_step(w, v, g, rate, trust, momentum, decay, adapted)[1]


def biases_adapted_too(w, v, g, rate, trust, momentum, decay, adapted):
    return lars_step(w, v, g, rate, trust, momentum, decay, True)


def biases_decayed(w, v, g, rate, trust, momentum, decay, adapted):
    if adapted:
        return lars_step(w, v, g, rate, trust, momentum, decay, adapted)
    v = np.float32(momentum) * v + np.float32(rate) * (g + np.float32(decay) * w)
    return w - v, v


def uphill(w, v, g, rate, trust, momentum, decay, adapted):
    _, v = lars_step(w, v, g, rate, trust, momentum, decay, adapted)
    return w + v, v


def float64_arrays(w, v, g, rate, trust, momentum, decay, adapted):
    w, v, g = (x.astype(np.float64) for x in (w, v, g))
    return lars_step(w, v, g, rate, trust, momentum, decay, adapted)


def layer(random, moving, momentum=0.9, decay=0.05, adapted=True, weights=1.0, n=4):
    """w, v, g and settings whose effects are all far above rounding."""
    w, v, g = (tenths(random, n) * np.float32(f) for f in (weights, 0.1 * moving, 1.0))
    rate, trust = (random.integers(5, 15, 2) / (10, 100)).tolist()
    return w, v, g, rate, trust, momentum, decay, adapted


STEP = Exercise(
    "lars_step",
    lars_step,
    (
        Part(FIRST, 2, lambda random: [layer(random, False) for _ in range(2)]),
        Part(LATER, 2, lambda random: [layer(random, True, m) for m in (0.9, 0.5)]),
        Part(PLAIN, 1, lambda random: [layer(random, True, adapted=False) for _ in range(2)]),
        Part(
            ODD,
            1,
            lambda random: [
                layer(random, True, weights=0.0),
                layer(random, True, momentum=0.0, decay=0.0),
            ],
        ),
    ),
    (
        Mistake(
            "you multiply the velocity by the rate at the end; wanted rate * ratio inside the "
            "velocity, where an older gradient keeps the rate of its own step",
            rate_outside_the_velocity,
            (FIRST, LATER, PLAIN, ODD),
        ),
        Mistake("your step does not use the ratio", without_ratio, (FIRST, LATER, ODD)),
        Mistake(
            "you use decay in the ratio only: decay w is added to the gradient too",
            decay_in_the_ratio_only,
            (FIRST, LATER),
        ),
        Mistake(
            "you subtract the decay from the weights; wanted added to the gradient, so that it is "
            "in the velocity",
            decay_outside_the_velocity,
            (FIRST, LATER),
        ),
        Mistake(
            "you multiply the new term by momentum too; wanted only the old velocity",
            momentum_of_all,
            (FIRST, LATER, PLAIN, ODD),
        ),
        Mistake(
            "your velocity is an average: the new term has no factor 1 - momentum",
            average,
            (FIRST, LATER, PLAIN, ODD),
        ),
        Mistake(
            "your momentum is missing: the old velocity is part of the new one",
            without_momentum,
            (LATER, PLAIN, ODD),
        ),
        Mistake(
            "you move the weights by the old velocity; wanted the new one",
            velocity_of_before,
            (FIRST, LATER, PLAIN, ODD),
        ),
        Mistake(
            "biases and normalisation (adapted False) have ratio 1 and no decay",
            biases_adapted_too,
            (PLAIN,),
        ),
        Mistake("biases and normalisation have no decay", biases_decayed, (PLAIN,)),
        Mistake(
            "you add the velocity to the weights: a step goes downhill, w - v",
            uphill,
            (FIRST, LATER, PLAIN, ODD),
        ),
        Mistake(
            "your arrays are float64: np.float64 times a float32 array is float64, so convert "
            "rate * ratio with float()",
            float64_arrays,
            (FIRST, LATER, PLAIN, ODD),
        ),
    ),
    relative=1e-6,  # factors may be multiplied in another order: a few float32 roundings of 6e-8
)
