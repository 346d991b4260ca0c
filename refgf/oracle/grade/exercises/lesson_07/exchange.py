"""Exercise exchange(gradients, residuals, chosen)."""

import numpy as np

from refgf.oracle.grade.exercises.before import Exercise, Mistake, Part
from refgf.oracle.spec.exercise import tenths

ROUNDED, KEPT = "float16 on the wire, all chosen", "residuals, numbers that float16 holds"
BOTH, FEW = "float16 and residuals", "one rank, nothing chosen, no elements"


def rounded(x):
    return x.astype(np.float16).astype(np.float32)


def exchange(gradients, residuals, chosen, on_wire=rounded, finished=rounded, kept=np.copy):
    """on_wire, finished, kept: what happens to a rank's numbers, the sum and the residuals."""
    waiting = [g + r for g, r in zip(gradients, residuals)]
    sums, new = np.zeros_like(gradients[0]), [np.where(chosen, 0, kept(x)) for x in waiting]
    terms = [on_wire(x[chosen]) for x in waiting]
    sums[chosen] = finished(sum(terms[1:], terms[0]))
    return sums, [x.astype(np.float32) for x in new]


def without_residual(gradients, residuals, chosen):
    sums, _ = exchange(gradients, [np.zeros_like(r) for r in residuals], chosen)
    return sums, exchange(gradients, residuals, chosen)[1]


def residual_not_cleared(gradients, residuals, chosen):
    new = [g + r for g, r in zip(gradients, residuals)]
    return exchange(gradients, residuals, chosen)[0], new


def sums_everything(gradients, residuals, chosen):
    sums, _ = exchange(gradients, residuals, np.ones_like(chosen))
    return sums, exchange(gradients, residuals, chosen)[1]


def residual_rounded(gradients, residuals, chosen):
    return exchange(gradients, residuals, chosen, kept=rounded)


def gradients_rounded_first(gradients, residuals, chosen):
    return exchange([rounded(g) for g in gradients], residuals, chosen)


def sum_not_rounded(gradients, residuals, chosen):
    return exchange(gradients, residuals, chosen, finished=np.copy)


def float16_sums(gradients, residuals, chosen):
    return exchange(gradients, residuals, chosen, on_wire=lambda x: x.astype(np.float16))


def numbers(random, p, n):
    """Gradients and residuals of the same sign, not small: float32 holds all sums exactly."""
    gradients = random.uniform(0.5, 60, (p, n)) * random.choice([-1, 1], (p, n))
    residuals = gradients * random.uniform(0.2, 0.9, (p, n))
    return list(gradients.astype(np.float32)), list(residuals.astype(np.float32))


def short_numbers(random, p, n):
    return list(tenths(random, p, n)), list(tenths(random, p, n))


def some(random, n):
    """A third of n elements."""
    chosen = np.zeros(n, bool)
    chosen[random.choice(n, n // 3, replace=False)] = True
    return chosen


def all_chosen(random):
    rows = [list(tenths(random, 3, 4)) for _ in range(4)]
    rows += [numbers(random, p, 60)[0] for p in (3, 5)]
    return [(g, [np.zeros_like(x) for x in g], np.ones(g[0].size, bool)) for g in rows]


def whole_numbers(random):
    rows = [random.integers(1, 99, (2, p, n)).astype(np.float32) for p, n in ((2, 4), (3, 12))]
    return [(list(g), list(r), some(random, len(g[0]))) for g, r in rows]


def both(random):
    small = [(*short_numbers(random, 3, 4), some(random, 4)) for _ in range(6)]
    return small + [(*numbers(random, p, 60), some(random, 60)) for p in (3, 5)]


def few(random):
    g, r = random.integers(1, 99, (2, 2, 6)).astype(np.float32)
    empty = [np.zeros(0, np.float32)] * 2
    return [
        (*short_numbers(random, 1, 6), some(random, 6)),
        (list(g), list(r), np.zeros(6, bool)),
        (empty, empty, np.zeros(0, bool)),
    ]


EXCHANGE = Exercise(
    "exchange",
    exchange,
    (
        Part(ROUNDED, 2, all_chosen),
        Part(KEPT, 2, whole_numbers),
        Part(BOTH, 1, both),
        Part(FEW, 1, few),
    ),
    (
        Mistake(
            "you send the gradient without the residual: add it before anything is sent",
            without_residual,
            (KEPT, BOTH, FEW),
        ),
        Mistake(
            "what was sent is no residual: set it to 0, or it is sent twice",
            residual_not_cleared,
            (ROUNDED, KEPT, BOTH, FEW),
        ),
        Mistake(
            "you sum what was not chosen too: the result is 0 there",
            sums_everything,
            (KEPT, BOTH, FEW),
        ),
        Mistake(
            "you round residuals, but they stay on their rank as float32",
            residual_rounded,
            (BOTH, FEW),
        ),
        Mistake(
            "you round the gradient before you add the residual; rounding is the last thing "
            "before sending",
            gradients_rounded_first,
            (BOTH, FEW),
        ),
        Mistake(
            "you do not round the sum, but it is sent to all ranks as float16 too",
            sum_not_rounded,
            (ROUNDED, BOTH),
        ),
        Mistake(
            "your sums are in float16: only the wire has 16 bits, additions are in float32",
            float16_sums,
            (ROUNDED, BOTH),
        ),
    ),
)
