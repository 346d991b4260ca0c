"""Exercise lars_ratio(w, g, trust, decay)."""

import numpy as np

from refgf.oracle import definitions
from refgf.oracle.grade.exercises.before import Exercise, Mistake, Part
from refgf.oracle.grade.exercises.lesson_11.cases import normal

LAYERS, NO_DECAY, FAR = "ordinary layers", "decay 0", "squares outside the range of float32"
ZERO = "a norm of 0"


def ratio(w, g, trust, decay, norm=None, zero=1.0):
    """M4; the keywords make its typical mistakes."""
    norm = norm or (lambda x: np.linalg.norm(x.astype(np.float64)))
    w_norm, g_norm = float(norm(w)), float(norm(g))
    below = g_norm + decay * w_norm
    return trust * w_norm / below if w_norm > 0 and below > 0 else zero


def float32_norms(w, g, trust, decay):
    return ratio(w, g, trust, decay, norm=np.linalg.norm)


def float32_throughout(w, g, trust, decay):
    w_norm, g_norm = np.linalg.norm(w), np.linalg.norm(g)
    below = g_norm + decay * w_norm
    return trust * w_norm / below if w_norm > 0 and below > 0 else 1.0


def squared_norms(w, g, trust, decay):
    return ratio(w, g, trust, decay, norm=lambda x: np.sum(x.astype(np.float64) ** 2))


def sums_of_magnitudes(w, g, trust, decay):
    return ratio(w, g, trust, decay, norm=lambda x: np.abs(x.astype(np.float64)).sum())


def decay_missing_in_the_denominator(w, g, trust, decay):
    return ratio(w, g, trust, 0.0)


def decay_of_elements(w, g, trust, decay):
    w, g = w.astype(np.float64), g.astype(np.float64)
    return ratio(w, g + decay * w, trust, 0.0)


def upside_down(w, g, trust, decay):
    return trust**2 / ratio(w, g, trust, decay) if w.any() and (g.any() or decay) else 1.0


def without_trust(w, g, trust, decay):
    return ratio(w, g, 1.0, decay)


def zero_weights_stay(w, g, trust, decay):
    return ratio(w, g, trust, decay, zero=0.0)


def layers(decays, scale=1.0):
    def cases(random):
        return [
            (
                normal(random, n, scale * factor),
                normal(random, n, scale),
                float(random.random() / 10 + 0.001),
                decay,
            )
            for (n, factor), decay in zip(((3, 1.0), (300, 20.0), (7, 0.1)), decays)
        ]

    return cases


def zeros(random):
    w, nothing = np.array([3, -4], np.float32), np.zeros(2, np.float32)
    w *= 2.0 ** int(random.integers(-3, 4))
    trust = float(random.random() / 10 + 0.001)
    return [(nothing, w, 0.01, 0.5), (w, nothing, trust, 0.5), (w, nothing, 0.01, 0.0)]


RATIO = Exercise(
    "lars_ratio",
    definitions.lars_ratio,
    (
        Part(LAYERS, 2, layers((5e-4, 0.01, 0.5))),
        Part(NO_DECAY, 1, layers((0.0, 0.0, 0.0))),
        Part(
            FAR,
            1,
            lambda random: [
                *layers((0.01,), 1e25)(random),
                *layers((0.01,), 1e-30)(random),
            ],
        ),
        Part(ZERO, 1, zeros),
    ),
    (
        Mistake(
            "your norms are float32, where large squares are infinite and small ones 0: "
            "x.astype(np.float64) first",
            float32_norms,
            (LAYERS, NO_DECAY, FAR),
        ),
        Mistake(
            "you compute in float32: np.linalg.norm(w) of a float32 array is a float32 number",
            float32_throughout,
            (LAYERS, NO_DECAY, FAR, ZERO),
        ),
        Mistake(
            "you forget the root: a norm is the root of the sum of squares",
            squared_norms,
            (LAYERS, NO_DECAY, FAR),
        ),
        Mistake(
            "you add magnitudes; wanted Euclidean norms",
            sums_of_magnitudes,
            (LAYERS, NO_DECAY, FAR),
        ),
        Mistake(
            "decay |w| is missing in the denominator: without it a small gradient makes the ratio "
            "as large as you like",
            decay_missing_in_the_denominator,
            (LAYERS, FAR, ZERO),
        ),
        Mistake(
            "you take the norm of g + decay w; wanted the norm of g, plus decay times that of w",
            decay_of_elements,
            (LAYERS, FAR),
        ),
        Mistake(
            "your ratio is upside down: a layer with large weights may move far",
            upside_down,
            (LAYERS, NO_DECAY, FAR, ZERO),
        ),
        Mistake("the factor trust is missing", without_trust, (LAYERS, NO_DECAY, FAR, ZERO)),
        Mistake(
            "weights that are all 0 would stay 0 for ever: the ratio is then 1",
            zero_weights_stay,
            (ZERO,),
        ),
    ),
    relative=1e-12,  # squares may be added in any order: a few roundings of 1e-16
)
