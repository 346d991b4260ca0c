"""M1 to M5: momentum SGD and LARS on flat arrays.

Every multiplication and every addition is rounded by itself, in the type of the arrays: no fused multiply-add.
momentum, rate and decay are rounded to that type before they are used.
"""

import math

import numpy as np


def momentum_step(w, v, g, rate, momentum, decay=0.0, decayed=None):
    """M1: v <- m v + (g + decay w);  w <- w - rate v.  -> (w, v)"""
    m, rate = w.dtype.type(momentum), w.dtype.type(rate)
    v = m * v + decayed_gradient(w, g, decay, decayed)
    return w - rate * v, v


def decayed_gradient(w, g, decay, decayed=None):
    """M2: decay is added where `decayed` (bool (n,), None for everywhere) says so: not to biases and normalisation.

    Where it is not, g keeps its bits (adding 0 w would turn -0 into +0); likewise when decay is 0.
    """
    if decay == 0:
        return g
    with_decay = g + w.dtype.type(decay) * w
    return with_decay if decayed is None else np.where(decayed, with_decay, g)


def warmup_rate(step, warmup_steps, base_rate, batch_factor):
    """M3: linear scaling and gradual warm-up. -> learning rate of this step (counted from 0), float64

    Grows by the same amount each step: one such amount above base_rate in step 0, batch_factor * base_rate in step
    `warmup_steps` - 1.
    """
    target = base_rate * batch_factor
    if step + 1 >= warmup_steps:
        return target
    return base_rate + (target - base_rate) * (step + 1) / warmup_steps


def lars_ratio(w, g, trust, decay=0.0):
    """M4: trust |w| / (|g| + decay |w|), Euclidean norms, all in float64; 1.0 where |w| or the denominator is 0."""
    norm_w, norm_g = (math.sqrt(math.fsum(float(e) * float(e) for e in x)) for x in (w, g))
    below = norm_g + decay * norm_w
    return trust * norm_w / below if norm_w > 0 and below > 0 else 1.0


def lars_step(w, v, g, sizes, rate, momentum, trust, decay=0.0, decayed=None):
    """M5: per tensor, v <- m v + (rate ratio)(g + decay w);  w <- w - v.  -> (w, v)

    rate times ratio is formed in float64 and rounded once. Tensors without decay (decayed False: biases and
    normalisation) have ratio 1. sizes: elements of each tensor; decayed: one bool per tensor, None for all True.
    """
    w, v, stop = w.copy(), v.copy(), 0
    for i, size in enumerate(sizes):
        part, stop = slice(stop, stop + size), stop + size
        adapted = decayed is None or decayed[i]
        ratio = lars_ratio(w[part], g[part], trust, decay) if adapted else 1.0
        change = w.dtype.type(rate * ratio) * decayed_gradient(w[part], g[part], decay if adapted else 0.0)
        v[part] = w.dtype.type(momentum) * v[part] + change
        w[part] = w[part] - v[part]
    return w, v
