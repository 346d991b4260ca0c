"""Mistakes in polynomial decay, accumulation, and LARS in parallel and under float16 training."""

import math

import numpy as np

from refgf.oracle.definitions import (
    accumulated,
    all_finite,
    decayed_gradient,
    lars_partial_squares,
    lars_ratio,
    lars_step,
    next_scale,
    polynomial_rate,
    scaled_allreduce,
    working_copy,
)
from refgf.oracle.seeded.mistakes.registry import mistake


@mistake("M6", "polynomial_rate", "the power is ignored: linear decay")
def linear_decay(step, steps, rate, power=2.0):
    return polynomial_rate(step, steps, rate, 1.0)


@mistake("M6", "polynomial_rate", "one step early: the last step has rate 0")
def one_step_early(step, steps, rate, power=2.0):
    return polynomial_rate(step, steps - 1, rate, power)


@mistake(
    "M7",
    "accumulated",
    "the mean over micro-batches: divided twice, because each loss is divided by the global batch",
)
def mean_of_micro_batches(gs):
    return accumulated(gs) / np.float32(len(gs))


@mistake("M7", "accumulated", "only the last micro-batch counts: backward overwrites")
def last_micro_batch(gs):
    return gs[-1].copy()


@mistake("M7", "accumulated", "added in float64")
def added_wide(gs):
    return np.sum(np.asarray(gs, np.float64), axis=0).astype(gs[0].dtype)


@mistake("M8", "lars_partial_squares", "norms in place of their squares: they do not add up")
def norms_not_squares(w, g, sizes, rank, p, by="slices", decayed=None):
    return np.sqrt(lars_partial_squares(w, g, sizes, rank, p, by, decayed))


@mistake("M8", "lars_partial_squares", "the remainder of n / p elements (L / p tensors) is lost")
def rest_is_lost(w, g, sizes, rank, p, by="slices", decayed=None):
    starts = np.cumsum([0, *sizes])
    adapted = [i for i in range(len(sizes)) if decayed is None or decayed[i]]
    squares, at = np.zeros((2, len(adapted))), 0
    each = (sum(sizes[i] for i in adapted) if by == "slices" else len(adapted)) // p
    for row, i in enumerate(adapted):
        for j in range(starts[i], starts[i + 1]):
            number = at if by == "slices" else row
            if each * rank <= number < each * (rank + 1):
                squares[:, row] += float(w[j]) ** 2, float(g[j]) ** 2
            at += 1
    return squares


@mistake("M8", "lars_partial_squares", "squares are summed in float32")
def squares_in_float32(w, g, sizes, rank, p, by="slices", decayed=None):
    with np.errstate(over="ignore", under="ignore"):
        return np.float64(np.float32(lars_partial_squares(w, g, sizes, rank, p, by, decayed)))


@mistake("M8", "lars_partial_squares", "layers are assigned round robin")
def round_robin(w, g, sizes, rank, p, by="slices", decayed=None):
    if by == "slices":
        return lars_partial_squares(w, g, sizes, rank, p, by, decayed)
    squares = lars_partial_squares(w, g, sizes, 0, 1, by, decayed)
    squares[:, [row for row in range(squares.shape[1]) if row % p != rank]] = 0
    return squares


def with_ratio(ratio):
    """M5 with another function for the ratio."""

    def step(w, v, g, s):
        w, v, stop = w.copy(), v.copy(), 0
        for i, size in enumerate(s.sizes):
            tensor, stop = slice(stop, stop + size), stop + size
            adapted = s.decayed is None or s.decayed[i]
            factor = ratio(w[tensor], g[tensor], s.trust, s.decay) if adapted else 1.0
            decayed = decayed_gradient(w[tensor], g[tensor], s.decay if adapted else 0.0)
            change = w.dtype.type(s.rate * factor) * decayed
            v[tensor] = w.dtype.type(s.momentum) * v[tensor] + change
            w[tensor] = w[tensor] - v[tensor]
        return w, v

    return step


def ratio_of_working_copy(w, g, trust, decay):
    return lars_ratio(working_copy(w), g, trust, decay)


def ratio_in_float16(w, g, trust, decay):
    with np.errstate(over="ignore", under="ignore"):
        norm_w, norm_g = (math.sqrt(float((x.astype(np.float16) ** 2).sum())) for x in (w, g))
    denominator = norm_g + decay * norm_w
    usable = 0 < norm_w < math.inf and denominator > 0
    return trust * norm_w / denominator if usable else 1.0


for name, ratio in (
    ("the ratio is that of the working copy", ratio_of_working_copy),
    ("squares in float16: norms are infinite or zero, and the ratio is 1", ratio_in_float16),
):
    mistake("M9", "lars_step", name)(with_ratio(ratio))


@mistake("M9", "scaled_lars_run", "the ratio is that of gradients not yet divided by the scale")
def ratio_of_scaled(w, gs, s):
    def step(w, v, total, scale):
        ratio = with_ratio(
            lambda w, g, trust, decay: lars_ratio(w, g * np.float32(scale), trust, decay)
        )
        return ratio(w, v, total, s)

    return run_with(step, w, gs, s)


@mistake("M9", "scaled_lars_run", "the working copy is updated, not the master")
def updates_the_copy(w, gs, s):
    return run_with(
        lambda w, v, total, scale: lars_step(working_copy(w, s.wire), v, total, s), w, gs, s
    )


def run_with(step, w, gs, s):
    """M9 with another update: step(w, v, total, scale) -> (w, v)."""
    v, scale, good_steps, reports = np.zeros_like(w), s.scale, 0, []
    for step_gs in gs:
        total = scaled_allreduce(step_gs, scale, s.wire)[0]
        finite = all_finite([*step_gs, total])
        if finite:
            w, v = step(w, v, total, scale)
        scale, good_steps = next_scale(scale, good_steps, finite, s.interval)
        reports.append({"w": w, "scale": scale, "finite": finite})
    return reports
