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


@mistake("M6", "polynomial_rate", "the power is forgotten: decay along a line")
def along_a_line(step, steps, rate, power=2.0):
    return polynomial_rate(step, steps, rate, 1.0)


@mistake("M6", "polynomial_rate", "one step early: the last step does not move")
def one_step_early(step, steps, rate, power=2.0):
    return polynomial_rate(step, steps - 1, rate, power)


@mistake("M7", "accumulated", "the mean over the parts: divided twice, as each loss is divided by the global batch")
def mean_of_parts(parts):
    return accumulated(parts) / np.float32(len(parts))


@mistake("M7", "accumulated", "only the last part counts: backward overwrites")
def last_part(parts):
    return parts[-1].copy()


@mistake("M7", "accumulated", "added in float64")
def added_wide(parts):
    return np.sum(np.asarray(parts, np.float64), axis=0).astype(parts[0].dtype)


@mistake("M8", "lars_partial_squares", "norms in place of their squares: they do not add up")
def norms_not_squares(w, g, sizes, rank, p, by="slices", decayed=None):
    return np.sqrt(lars_partial_squares(w, g, sizes, rank, p, by, decayed))


@mistake("M8", "lars_partial_squares", "the rest of n / p elements (L / p tensors) is lost")
def rest_is_lost(w, g, sizes, rank, p, by="slices", decayed=None):
    starts, kept = np.cumsum([0, *sizes]), [i for i in range(len(sizes)) if decayed is None or decayed[i]]
    squares, at = np.zeros((2, len(kept))), 0
    each = (sum(sizes[i] for i in kept) if by == "slices" else len(kept)) // p
    for row, i in enumerate(kept):
        for j in range(starts[i], starts[i + 1]):
            number = at if by == "slices" else row
            if each * rank <= number < each * (rank + 1):
                squares[:, row] += float(w[j]) ** 2, float(g[j]) ** 2
            at += 1
    return squares


@mistake("M8", "lars_partial_squares", "layers are dealt out one by one")
def dealt_out(w, g, sizes, rank, p, by="slices", decayed=None):
    if by == "slices":
        return lars_partial_squares(w, g, sizes, rank, p, by, decayed)
    squares = lars_partial_squares(w, g, sizes, 0, 1, by, decayed)
    squares[:, [row for row in range(squares.shape[1]) if row % p != rank]] = 0
    return squares


def with_ratio(ratio):
    """M5 with another way to the ratio."""

    def step(w, v, g, sizes, rate, momentum, trust, decay=0.0, decayed=None):
        w, v, stop = w.copy(), v.copy(), 0
        for i, size in enumerate(sizes):
            part, stop = slice(stop, stop + size), stop + size
            adapted = decayed is None or decayed[i]
            factor = ratio(w[part], g[part], trust, decay) if adapted else 1.0
            change = w.dtype.type(rate * factor) * decayed_gradient(w[part], g[part], decay if adapted else 0.0)
            v[part] = w.dtype.type(momentum) * v[part] + change
            w[part] = w[part] - v[part]
        return w, v

    return step


def ratio_of_working_copy(w, g, trust, decay):
    return lars_ratio(working_copy(w), g, trust, decay)


def ratio_in_float16(w, g, trust, decay):
    with np.errstate(over="ignore", under="ignore"):
        norm_w, norm_g = (math.sqrt(float((x.astype(np.float16) ** 2).sum())) for x in (w, g))
    below = norm_g + decay * norm_w
    return trust * norm_w / below if 0 < norm_w < math.inf and below > 0 else 1.0


mistake("M9", "lars_step", "the ratio is that of the working copy")(with_ratio(ratio_of_working_copy))
mistake("M9", "lars_step", "squares in float16: norms are infinite or zero, and the ratio is 1")(with_ratio(ratio_in_float16))


@mistake("M9", "scaled_lars_run", "the ratio is that of gradients not yet divided by the scale")
def ratio_of_scaled(w, gs, sizes, rate, momentum, trust, scale, interval=2000, decay=0.0, decayed=None, wire="float16"):
    v, good_steps, reports = np.zeros_like(w), 0, []
    for step_gs in gs:
        total = scaled_allreduce(step_gs, scale, wire)[0]
        finite = all_finite([*step_gs, total])
        if finite:
            step = with_ratio(lambda w, g, trust, decay, s=scale: lars_ratio(w, g * np.float32(s), trust, decay))
            w, v = step(w, v, total, sizes, rate, momentum, trust, decay, decayed)
        scale, good_steps = next_scale(scale, good_steps, finite, interval)
        reports.append({"w": w, "scale": scale, "finite": finite})
    return reports


@mistake("M9", "scaled_lars_run", "the update is to the working copy, not to the master")
def updates_the_copy(w, gs, sizes, rate, momentum, trust, scale, interval=2000, decay=0.0, decayed=None, wire="float16"):
    v, good_steps, reports = np.zeros_like(w), 0, []
    for step_gs in gs:
        total = scaled_allreduce(step_gs, scale, wire)[0]
        finite = all_finite([*step_gs, total])
        if finite:
            w, v = lars_step(working_copy(w, wire), v, total, sizes, rate, momentum, trust, decay, decayed)
        scale, good_steps = next_scale(scale, good_steps, finite, interval)
        reports.append({"w": w, "scale": scale, "finite": finite})
    return reports
