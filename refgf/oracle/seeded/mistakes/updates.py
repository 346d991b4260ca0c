"""Mistakes in precision, loss scaling, momentum SGD and LARS."""

import numpy as np

from refgf.oracle.definitions import (
    all_finite,
    bfloat16_bits,
    decayed_gradient,
    direct_allreduce,
    lars_ratio,
    momentum_step,
    next_scale,
    on_wire,
    scaled_allreduce,
    working_copy,
)
from refgf.oracle.seeded.mistakes.registry import mistake


@mistake("P1", "on_wire", "float16 overflow becomes the largest number")
def saturates(x, wire):
    y = on_wire(x, wire)
    overflow = np.isinf(y) & np.isfinite(x)
    return np.where(overflow, np.sign(x) * 65504, y).astype(x.dtype)


@mistake("P1", "on_wire", "denormal float16 numbers are flushed to zero")
def flushes(x, wire):
    y = on_wire(x, wire)
    if wire != "float16":
        return y
    return np.where(np.abs(y) < 2.0**-14, np.copysign(np.zeros_like(y), y), y)


@mistake("P1", "on_wire", "truncated instead of rounded to float16")
def truncates(x, wire):
    y = on_wire(x, wire)
    if wire != "float16":
        return y
    toward_zero = np.nextafter(y.astype(np.float16), np.float16(0)).astype(x.dtype)
    return np.where(np.abs(y) > np.abs(x), toward_zero, y)


@mistake("P1", "on_wire", "float64 becomes float16 by way of float32: rounded twice")
def rounds_twice(x, wire):
    with np.errstate(over="ignore", invalid="ignore"):
        through = x.astype(np.float32).astype(x.dtype)
    return on_wire(through if wire == "float16" else x, wire)


@mistake("P2", "on_wire", "float64 becomes bfloat16 in one rounding, not by way of float32")
def rounds_once(x, wire):
    if wire != "bfloat16" or x.dtype != np.float64:
        return on_wire(x, wire)
    mantissa, exponent = np.frexp(x)
    return on_wire(np.ldexp(np.rint(mantissa * 2.0**8), exponent - 8), wire)


def float32_bits(x):
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(x).astype(np.float32).view(np.uint32).astype(np.uint64)


@mistake("P2", "bfloat16_bits", "the upper bits of a NaN alone: some become infinite")
def nan_cut_off(x):
    return np.where(np.isnan(x), float32_bits(x) >> 16, bfloat16_bits(x)).astype(np.uint16)


@mistake("P2", "bfloat16_bits", "a NaN is rounded like a number: some become infinite or zero")
def nan_rounded(x):
    bits = float32_bits(x)
    return (bits + 0x7FFF + (bits >> 16 & 1) >> 16).astype(np.uint16)


@mistake("P2", "bfloat16_bits", "truncated instead of rounded to bfloat16")
def bfloat16_truncated(x):
    with np.errstate(over="ignore", invalid="ignore"):
        return (np.asarray(x).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


@mistake("P2", "bfloat16_bits", "ties go up instead of to even")
def bfloat16_half_up(x):
    half_up = (float32_bits(x) + 0x8000 >> 16).astype(np.uint16)
    return np.where(np.isnan(x), bfloat16_bits(x), half_up)


@mistake("P3", "underflow_share", "zeros count as underflow")
def zeros_count(x, wire):
    return float((on_wire(x, wire) == 0).mean())


@mistake("P4", "scaled_allreduce", "the scale is applied after the cast")
def scaled_too_late(gs, scale, wire="float16", allreduce=direct_allreduce):
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = [on_wire(g, wire) * np.float32(scale) for g in gs]
        return [total / np.float32(scale) for total in allreduce(scaled, wire)]


@mistake("P4", "scaled_allreduce", "never divided by the scale")
def never_unscaled(gs, scale, wire="float16", allreduce=direct_allreduce):
    with np.errstate(over="ignore", invalid="ignore"):
        return allreduce([g * np.float32(scale) for g in gs], wire)


@mistake(
    "P4", "scaled_allreduce", "divided by the scale before the exchange: small gradients underflow"
)
def unscaled_too_early(gs, scale, wire="float16", allreduce=direct_allreduce):
    return allreduce(gs, wire)


@mistake("P4", "scaled_allreduce", "divided by p as well")
def averaged_as_well(gs, scale, wire="float16", allreduce=direct_allreduce):
    return [total / np.float32(len(gs)) for total in scaled_allreduce(gs, scale, wire, allreduce)]


@mistake("P5", "all_finite", "only infinities are checked, not NaN")
def only_infinities(arrays):
    return not any(bool(np.isinf(x).any()) for x in arrays)


@mistake("P5", "all_finite", "only rank 0 is checked")
def only_rank_0(arrays):
    return all_finite(arrays[:1])


@mistake("P5", "all_finite", "no step is ever skipped")
def never_skipped(arrays):
    return True


@mistake("P6", "next_scale", "the count of good steps is not reset by a skipped one")
def count_goes_on(
    scale, good_steps, finite, interval=2000, factor=2.0, smallest=1.0, largest=2.0**24
):
    after = next_scale(scale, good_steps, finite, interval, factor, smallest, largest)
    return after if finite else (after[0], good_steps)


@mistake("P6", "next_scale", "the scale never grows again")
def never_grows(
    scale, good_steps, finite, interval=2000, factor=2.0, smallest=1.0, largest=2.0**24
):
    return (scale, good_steps + 1) if finite else (max(scale / factor, smallest), 0)


@mistake("P6", "next_scale", "the scale has no limits")
def no_limits(scale, good_steps, finite, interval=2000, factor=2.0, smallest=1.0, largest=2.0**24):
    return next_scale(scale, good_steps, finite, interval, factor, 0.0, float("inf"))


@mistake("P7", "working_copy", "the working copy is the master itself")
def master_itself(master, wire="float16"):
    return master


@mistake("P8", "scaled_run", "a skipped step still applies the old momentum")
def skipped_step_moves(w, gs, rate, momentum, scale, interval=2000, wire="float16"):
    v, good_steps, reports = np.zeros_like(w), 0, []
    for step_gs in gs:
        total = scaled_allreduce(step_gs, scale, wire)[0]
        finite = all_finite([*step_gs, total])
        w, v = momentum_step(w, v, total if finite else np.zeros_like(w), rate, momentum)
        scale, good_steps = next_scale(scale, good_steps, finite, interval)
        reports.append({"w": w, "v": v, "scale": scale, "finite": finite})
    return reports


@mistake("P8", "scaled_run", "the working copy is updated, not the master")
def updates_the_copy(w, gs, rate, momentum, scale, interval=2000, wire="float16"):
    v, good_steps, reports = np.zeros_like(w), 0, []
    for step_gs in gs:
        total = scaled_allreduce(step_gs, scale, wire)[0]
        finite = all_finite([*step_gs, total])
        if finite:
            w, v = momentum_step(working_copy(w, wire), v, total, rate, momentum)
        scale, good_steps = next_scale(scale, good_steps, finite, interval)
        reports.append({"w": w, "v": v, "scale": scale, "finite": finite})
    return reports


@mistake("M1", "momentum_step", "fused multiply-add: one rounding for m v + g, one for w - rate v")
def fused(w, v, g, rate, momentum, decay=0.0, decayed=None):
    wide, m, rate = np.float64, w.dtype.type(momentum), w.dtype.type(rate)
    g = decayed_gradient(w, g, decay, decayed)
    v = (wide(m) * v.astype(wide) + g).astype(w.dtype)
    return (w.astype(wide) - wide(rate) * v.astype(wide)).astype(w.dtype), v


@mistake("M1", "momentum_step", "the rate inside the velocity")
def rate_inside(w, v, g, rate, momentum, decay=0.0, decayed=None):
    v = w.dtype.type(momentum) * v + w.dtype.type(rate) * decayed_gradient(w, g, decay, decayed)
    return w - v, v


@mistake("M1", "momentum_step", "Nesterov momentum")
def nesterov(w, v, g, rate, momentum, decay=0.0, decayed=None):
    m, g = w.dtype.type(momentum), decayed_gradient(w, g, decay, decayed)
    v = m * v + g
    return w - w.dtype.type(rate) * (g + m * v), v


@mistake("M1", "momentum_step", "the weights are updated with the old velocity")
def old_velocity(w, v, g, rate, momentum, decay=0.0, decayed=None):
    return w - w.dtype.type(rate) * v, momentum_step(w, v, g, rate, momentum, decay, decayed)[1]


@mistake("M2", "decayed_gradient", "decay everywhere, biases and normalisation included")
def decay_everywhere(w, g, decay, decayed=None):
    return decayed_gradient(w, g, decay)


@mistake("M2", "decayed_gradient", "decay forgotten")
def decay_forgotten(w, g, decay, decayed=None):
    return g


@mistake("M2", "decayed_gradient", "0 w is added without decay: -0 becomes +0")
def decay_of_zero(w, g, decay, decayed=None):
    factors = decay if decayed is None else np.where(decayed, decay, 0.0)
    return g + np.asarray(factors, w.dtype) * w


@mistake("M3", "warmup_rate", "one step late: the first step is at the base rate")
def warmup_late(step, warmup_steps, base_rate, batch_factor):
    share = min(1.0, step / warmup_steps)
    return base_rate + (base_rate * batch_factor - base_rate) * share


@mistake("M3", "warmup_rate", "warms up from 0 instead of from the base rate")
def warmup_from_zero(step, warmup_steps, base_rate, batch_factor):
    return base_rate * batch_factor * min(1.0, (step + 1) / warmup_steps)


@mistake("M4", "lars_ratio", "the denominator lacks the decay")
def ratio_without_decay(w, g, trust, decay=0.0):
    return lars_ratio(w, g, trust)


@mistake("M4", "lars_ratio", "ratio 0 for weights of zero: they never move")
def ratio_zero(w, g, trust, decay=0.0):
    return lars_ratio(w, g, trust, decay) if np.any(w) else 0.0


@mistake("M4", "lars_ratio", "the ratio is clipped at 1")
def ratio_clipped(w, g, trust, decay=0.0):
    return min(1.0, lars_ratio(w, g, trust, decay))


@mistake("M4", "lars_ratio", "norms are summed in float32")
def norms_in_float32(w, g, trust, decay=0.0):
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        norm_w, norm_g = (float(np.sqrt(np.square(np.float32(x)).sum())) for x in (w, g))
        denominator = norm_g + decay * norm_w
        return trust * norm_w / denominator if norm_w > 0 and denominator > 0 else 1.0


@mistake("M5", "lars_step", "the ratio of the whole network for every tensor")
def one_ratio(w, v, g, s):
    change = decayed_gradient(w, g, s.decay, decayed_elements(s))
    rate = w.dtype.type(s.rate * lars_ratio(w, g, s.trust, s.decay))
    v = w.dtype.type(s.momentum) * v + rate * change
    return w - v, v


@mistake("M5", "lars_step", "the rate outside the velocity")
def rate_outside(w, v, g, s):
    w, v, stop = w.copy(), v.copy(), 0
    for i, size in enumerate(s.sizes):
        tensor, stop = slice(stop, stop + size), stop + size
        adapted = s.decayed is None or s.decayed[i]
        ratio = lars_ratio(w[tensor], g[tensor], s.trust, s.decay) if adapted else 1.0
        decayed = decayed_gradient(w[tensor], g[tensor], s.decay if adapted else 0.0)
        v[tensor] = w.dtype.type(s.momentum) * v[tensor] + w.dtype.type(ratio) * decayed
        w[tensor] = w[tensor] - w.dtype.type(s.rate) * v[tensor]
    return w, v


@mistake("M5", "lars_step", "no ratio: momentum SGD with the rate inside the velocity")
def no_ratio_at_all(w, v, g, s):
    return rate_inside(w, v, g, s.rate, s.momentum, s.decay, decayed_elements(s))


def decayed_elements(s):
    """LARSSettings.decayed per element instead of per tensor."""
    decayed = [True] * len(s.sizes) if s.decayed is None else np.asarray(s.decayed, bool)
    return np.repeat(decayed, s.sizes)
