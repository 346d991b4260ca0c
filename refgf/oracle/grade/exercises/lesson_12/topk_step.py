"""Exercise topk_step(gradients, residuals, k)."""

import numpy as np

from refgf.oracle.definitions import sparsify, top_k
from refgf.oracle.grade.exercises.before import Exercise, Mistake, Part

FIRST, LATER = "the first step: residuals are 0", "with residuals of earlier steps"
SAME, ALL = "two ranks send the same element", "one rank, k = n"


def topk_step(gradients, residuals, k):
    pairs = [sparsify(h, g, k) for h, g in zip(residuals, gradients)]
    return sum(sent for sent, _ in pairs), [unsent for _, unsent in pairs]


def with_indices(gradients, residuals, indices):
    """The step if rank r sends the elements indices[r]."""
    unsent, sums = [h + g for h, g in zip(residuals, gradients)], np.zeros_like(gradients[0])
    for mine, chosen in zip(unsent, indices):
        sums[chosen] += mine[chosen]
        mine[chosen] = 0
    return sums, unsent


def unsent_is_lost(gradients, residuals, k):
    return topk_step(gradients, residuals, k)[0], [np.zeros_like(g) for g in gradients]


def residual_not_added(gradients, residuals, k):
    return topk_step(gradients, [np.zeros_like(h) for h in residuals], k)


def residual_not_cleared(gradients, residuals, k):
    return topk_step(gradients, residuals, k)[0], [h + g for h, g in zip(residuals, gradients)]


def chosen_by_the_gradient(gradients, residuals, k):
    return with_indices(gradients, residuals, [top_k(g, k) for g in gradients])


def chosen_for_all_ranks(gradients, residuals, k):
    total = sum(h + g for h, g in zip(residuals, gradients))
    return with_indices(gradients, residuals, [top_k(total, k)] * len(gradients))


def overwrites(gradients, residuals, k):
    sums, unsent = topk_step(gradients, residuals, k)
    for g, h, rest in zip(gradients, residuals, unsent):
        sent = g + h - rest
        sums = np.where(sent != 0, sent, sums)
    return sums, unsent


def cleared_on_all_ranks(gradients, residuals, k):
    sums, unsent = topk_step(gradients, residuals, k)
    return sums, [np.where(sums != 0, np.float32(0), rest) for rest in unsent]


def mean_of_ranks(gradients, residuals, k):
    sums, unsent = topk_step(gradients, residuals, k)
    return sums / np.float32(len(gradients)), unsent


def float64_arrays(gradients, residuals, k):
    sums, unsent = topk_step(gradients, residuals, k)
    return sums.astype(np.float64), [rest.astype(np.float64) for rest in unsent]


def step(random, n, large, with_residuals):
    """A case: rank r sends the elements large[r]. Whole numbers, whose float32 sums are exact.

    Magnitudes are different, of the accumulated gradients and of the gradients. With residuals
    the gradient is smallest where the accumulated gradient is largest.
    """
    gradients, residuals, k = [], [], len(large[0])
    for chosen in large:
        signs, size = random.choice([-1, 1], n), random.permutation(n) + 1
        accumulated = size.copy()
        accumulated[chosen] += 10 * n
        gradient = size + k
        gradient[chosen] = np.arange(k) + 1
        g = signs * (gradient if with_residuals else accumulated)
        gradients.append(g.astype(np.float32))
        residuals.append((signs * accumulated - g).astype(np.float32))
    return gradients, residuals, k


def steps(shapes, with_residuals):
    return lambda random: [step(random, n, large, with_residuals) for n, large in shapes]


APART = [(4, [[1], [2]]), (12, [[1, 4], [0, 11], [5, 6]])]  # no element twice
TOGETHER = [(4, [[1, 2], [2, 3]]), (8, [[0, 2, 5], [2, 5, 7], [1, 4, 5]])]
ONE, EVERYTHING = (5, [[2, 4]]), (4, [list(range(4))] * 2)

STEP = Exercise(
    "topk_step",
    topk_step,
    (
        Part(FIRST, 2, steps(APART, False)),
        Part(LATER, 2, steps(APART, True)),
        Part(SAME, 1, steps(TOGETHER, False)),
        Part(
            ALL,
            1,
            lambda random: [step(random, *ONE, True), step(random, *EVERYTHING, True)],
        ),
    ),
    (
        Mistake(
            "what you do not send is lost: it is the residual of the next step",
            unsent_is_lost,
            (FIRST, LATER, SAME, ALL),
        ),
        Mistake(
            "you do not add the residual to the gradient: small gradients would never be sent",
            residual_not_added,
            (LATER, ALL),
        ),
        Mistake(
            "you do not clear what was sent: it would be sent a second time",
            residual_not_cleared,
            (FIRST, LATER, SAME, ALL),
        ),
        Mistake(
            "you choose by the gradient; wanted the largest of gradient + residual",
            chosen_by_the_gradient,
            (LATER, ALL),
        ),
        Mistake(
            "all your ranks send the same elements, the largest of the sum, which no rank knows "
            "yet: each rank chooses its own",
            chosen_for_all_ranks,
            (FIRST, LATER, SAME),
        ),
        Mistake(
            "you overwrite the sum where two ranks have sent the same element: add (+=)",
            overwrites,
            (SAME, ALL),
        ),
        Mistake(
            "you clear on all ranks what any rank has sent: a rank clears only what it has sent "
            "itself",
            cleared_on_all_ranks,
            (FIRST, LATER, SAME),
        ),
        Mistake(
            "you return the mean over the ranks; wanted the sum",
            mean_of_ranks,
            (FIRST, LATER, SAME, ALL),
        ),
        Mistake(
            "your arrays are float64: the gradients are float32",
            float64_arrays,
            (FIRST, LATER, SAME, ALL),
        ),
    ),
)
