"""Exercise csc_step(gradients, residuals, chosen, chunk)."""

import numpy as np

from refgf.oracle.definitions import (
    accumulated_gradient,
    next_residual,
)
from refgf.oracle.grade.exercise import Exercise, Mistake, Part

FIRST, LATER = "the first step: residuals are 0", "with residuals of earlier steps"
LAST, EVERYTHING = "the shorter last chunk is sent", "one rank, all chunks"


def csc_step(gradients, residuals, chosen, chunk):
    sent, pairs = in_chunks(gradients, chosen, chunk), list(zip(residuals, gradients))
    packed = sum(accumulated_gradient("none", {"h": h}, g, 0)[sent] for h, g in pairs)
    return packed, [next_residual("none", {"h": h}, g, 0, sent)["h"] for h, g in pairs]


def in_chunks(gradients, chosen, chunk):
    """True where an element's chunk is chosen. -> bool (n,)"""
    return np.isin(np.arange(gradients[0].size) // chunk, chosen)


def unsent_is_lost(gradients, residuals, chosen, chunk):
    packed, _ = csc_step(gradients, residuals, chosen, chunk)
    return packed, [np.zeros_like(g) for g in gradients]


def residual_not_added(gradients, residuals, chosen, chunk):
    return csc_step(gradients, [np.zeros_like(h) for h in residuals], chosen, chunk)


def residual_replaced(gradients, residuals, chosen, chunk):
    packed, _ = csc_step(gradients, residuals, chosen, chunk)
    return packed, residual_not_added(gradients, residuals, chosen, chunk)[1]


def residual_not_cleared(gradients, residuals, chosen, chunk):
    packed, _ = csc_step(gradients, residuals, chosen, chunk)
    return packed, [h + g for h, g in zip(residuals, gradients)]


def residual_of_what_was_sent(gradients, residuals, chosen, chunk):
    packed, unsent = csc_step(gradients, residuals, chosen, chunk)
    return packed, [h + g - rest for h, g, rest in zip(residuals, gradients, unsent)]


def one_residual_for_all(gradients, residuals, chosen, chunk):
    packed, unsent = csc_step(gradients, residuals, chosen, chunk)
    return packed, [sum(unsent) for _ in unsent]


def mean_of_ranks(gradients, residuals, chosen, chunk):
    packed, unsent = csc_step(gradients, residuals, chosen, chunk)
    return packed / np.float32(len(gradients)), unsent


def elements_for_chunks(gradients, residuals, chosen, chunk):
    return csc_step(gradients, residuals, chosen, 1)


def not_packed(gradients, residuals, chosen, chunk):
    packed, unsent = csc_step(gradients, residuals, chosen, chunk)
    sums = np.zeros_like(gradients[0])
    sums[in_chunks(gradients, chosen, chunk)] = packed
    return sums, unsent


def last_chunk_padded(gradients, residuals, chosen, chunk):
    packed, unsent = csc_step(gradients, residuals, chosen, chunk)
    return np.pad(packed, (0, len(chosen) * chunk - packed.size)), unsent


def float64_arrays(gradients, residuals, chosen, chunk):
    packed, unsent = csc_step(gradients, residuals, chosen, chunk)
    return packed.astype(np.float64), [h.astype(np.float64) for h in unsent]


def steps(shapes, with_residuals):
    """Whole numbers, whose float32 sums are exact. shapes: (p, n, chosen, chunk) of each case."""

    def numbers(random, p, n):
        return [random.integers(1, 99, n).astype(np.float32) for _ in range(p)]

    def cases(random):
        return [
            (
                numbers(random, p, n),
                numbers(random, p, n) if with_residuals else [np.zeros(n, np.float32)] * p,
                chosen,
                chunk,
            )
            for p, n, chosen, chunk in shapes
        ]

    return cases


STEP = Exercise(
    "csc_step",
    csc_step,
    (
        Part(FIRST, 2, steps([(2, 4, [1], 2), (2, 10, [0, 2], 3)], False)),
        Part(LATER, 2, steps([(2, 4, [1], 2), (4, 20, [0, 2], 6)], True)),
        Part(LAST, 1, steps([(2, 5, [2], 2), (3, 17, [0, 3], 5)], False)),
        Part(EVERYTHING, 1, steps([(1, 5, [0, 1], 2), (2, 5, [0, 1, 2], 2)], True)),
    ),
    (
        Mistake(
            "what you do not send is lost: it is the residual of the next step",
            unsent_is_lost,
            (FIRST, LATER, LAST, EVERYTHING),
        ),
        Mistake(
            "you do not add the residual to the gradient, so it is never sent",
            residual_not_added,
            (LATER, EVERYTHING),
        ),
        Mistake(
            "in chunks that are not sent, your new residual is this step's gradient alone; wanted "
            "the old residual plus the gradient",
            residual_replaced,
            (LATER, EVERYTHING),
        ),
        Mistake(
            "you do not clear the residual of the chosen chunks: it would be sent a second time",
            residual_not_cleared,
            (FIRST, LATER, LAST, EVERYTHING),
        ),
        Mistake(
            "your residual is what was sent; wanted what was not",
            residual_of_what_was_sent,
            (FIRST, LATER, LAST, EVERYTHING),
        ),
        Mistake(
            "you give all ranks the sum of the residuals: each rank has its own, or it would be "
            "added once for each rank",
            one_residual_for_all,
            (FIRST, LATER, LAST),
        ),
        Mistake(
            "you send the mean over the ranks; wanted the sum",
            mean_of_ranks,
            (FIRST, LATER, LAST, EVERYTHING),
        ),
        Mistake(
            "you take the chosen numbers as elements: they are chunks",
            elements_for_chunks,
            (FIRST, LATER, LAST, EVERYTHING),
        ),
        Mistake(
            "you return all n elements with zeros between the chunks: only the chosen chunks are "
            "sent, packed",
            not_packed,
            (FIRST, LATER, LAST, EVERYTHING),
        ),
        Mistake(
            "you send the last chunk as long as the others: it has fewer elements",
            last_chunk_padded,
            (LAST, EVERYTHING),
        ),
        Mistake(
            "your arrays are float64: the gradients are float32, and float64 is twice the bytes",
            float64_arrays,
            (FIRST, LATER, LAST, EVERYTHING),
        ),
    ),
)
