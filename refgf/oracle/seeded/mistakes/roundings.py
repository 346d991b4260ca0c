"""Mistakes that parameters which are powers of two hide: a factor that is rounded elsewhere."""

import numpy as np

from refgf.oracle.definitions import (
    all_finite,
    daso_phases,
    decayed_gradient,
    direct_allreduce,
    dropout,
    heat_phases,
    lars_ratio,
    momentum_step,
    next_scale,
    on_wire,
    polynomial_rate,
    scaled_allreduce,
)
from refgf.oracle.seeded.mistakes.registry import mistake


def float32(value):
    return float(np.float32(value))


@mistake("P4", "scaled_allreduce", "multiplied by the scale's reciprocal, not divided by the scale")
def times_the_reciprocal(gs, scale, wire="float16", allreduce=direct_allreduce):
    s = np.float32(scale)
    with np.errstate(over="ignore", invalid="ignore"):
        return [total * (np.float32(1) / s) for total in allreduce([g * s for g in gs], wire)]


@mistake("P6", "next_scale", "the scale is halved below 1")
def halved_below_one(
    scale, good_steps, finite, interval=2000, factor=2.0, smallest=1.0, largest=2.0**24
):
    if not finite and scale > smallest:
        return scale / factor, 0
    return next_scale(scale, good_steps, finite, interval, factor, smallest, largest)


@mistake("P6", "next_scale", "the scale does not grow where its double is above 2^24")
def stays_below_the_largest(
    scale, good_steps, finite, interval=2000, factor=2.0, smallest=1.0, largest=2.0**24
):
    if finite and good_steps + 1 >= interval and scale * factor > largest:
        return scale, 0
    return next_scale(scale, good_steps, finite, interval, factor, smallest, largest)


@mistake("P5", "scaled_run", "the ranks' gradients are checked, but not their sum")
def sum_is_not_checked(w, gs, rate, momentum, scale, interval=2000, wire="float16"):
    v, good_steps, reports = np.zeros_like(w), 0, []
    for step_gs in gs:
        total = scaled_allreduce(step_gs, scale, wire)[0]
        factor = w.dtype.type(scale)
        finite = all_finite([on_wire(g * factor, wire) for g in step_gs])
        if finite:
            w, v = momentum_step(w, v, total, rate, momentum)
        scale, good_steps = next_scale(scale, good_steps, finite, interval)
        reports.append({"w": w, "v": v, "scale": scale, "finite": finite})
    return reports


@mistake("M2", "decayed_gradient", "0 w is added where the decay is 0: -0 becomes +0, infinity NaN")
def zero_times_w(w, g, decay, decayed=None):
    with_decay = g + w.dtype.type(decay) * w
    return with_decay if decayed is None else np.where(decayed, with_decay, g)


@mistake("M2", "decayed_gradient", "denormal products of decay and w are flushed to zero")
def denormal_decay(w, g, decay, decayed=None):
    product = w.dtype.type(decay) * w
    product = np.where(np.abs(product) < np.finfo(w.dtype).tiny, w.dtype.type(0), product)
    return (
        decayed_gradient(w, g, decay, decayed)
        if decay == 0
        else np.where(True if decayed is None else decayed, g + product, g)
    )


@mistake("M1", "momentum_step", "the rate times v is subtracted in float64")
def update_in_float64(w, v, g, rate, momentum, decay=0.0, decayed=None):
    _, v = momentum_step(w, v, g, rate, momentum, decay, decayed)
    return (w - np.float64(rate) * v).astype(w.dtype), v


@mistake("M4", "lars_ratio", "trust and decay are rounded to float32")
def ratio_of_rounded(w, g, trust, decay=0.0):
    return lars_ratio(w, g, float32(trust), float32(decay))


@mistake("M5", "lars_step", "rate and ratio are rounded before their product")
def factors_rounded_first(w, v, g, s):
    w, v, stop, t = w.copy(), v.copy(), 0, w.dtype.type
    for i, size in enumerate(s.sizes):
        tensor, stop = slice(stop, stop + size), stop + size
        adapted = s.decayed is None or s.decayed[i]
        ratio = lars_ratio(w[tensor], g[tensor], s.trust, s.decay) if adapted else 1.0
        change = decayed_gradient(w[tensor], g[tensor], s.decay if adapted else 0.0)
        v[tensor] = t(s.momentum) * v[tensor] + t(s.rate) * t(ratio) * change
        w[tensor] = w[tensor] - v[tensor]
    return w, v


@mistake("M6", "polynomial_rate", "the power is cut to a whole number")
def whole_power(step, steps, rate, power=2.0):
    return polynomial_rate(step, steps, rate, int(power))


@mistake("N7", "dropout", "the rate is rounded to float32")
def dropout_rounded(x, kept, rate):
    return dropout(x, kept, float32(rate))


def rounded_up(largest):
    """The next power of two: what halves of it are, a bit shift would take."""
    return 1 << (largest - 1).bit_length() if largest > 0 else largest


@mistake("A9", "daso_phases", "the largest B becomes a power of two")
def daso_power_of_two(losses, epochs, warmup, cooldown, largest=8, threshold=0.05, patience=2):
    return daso_phases(losses, epochs, warmup, cooldown, rounded_up(largest), threshold, patience)


@mistake("A19", "heat_phases", "the largest B becomes a power of two")
def heat_power_of_two(losses, epochs, warmup, cooldown, largest=8, threshold=0.05, patience=2):
    return heat_phases(losses, epochs, warmup, cooldown, rounded_up(largest), threshold, patience)
