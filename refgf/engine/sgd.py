"""The optimiser's updates, block by block or in one compiled loop."""

import threading

import numpy as np

from refgf.device import Array, array_module, is_device
from refgf.engine import fused
from refgf.engine.blocks import blocks

_thread = threading.local()  # each thread's own scratch


def momentum_sgd(w: Array, v: Array, g: Array, momentum: float, decay: float, rate: float) -> None:
    """v <- momentum v + (g + decay w);  w <- w - rate v."""
    if loop := fused.compiled(fused.momentum_sgd, w):
        loop(w, v, g, *map(w.dtype.type, (momentum, decay, rate)), decay != 0)
        return
    for block in blocks(w, 0, w.size):
        _update(w[block], v[block], g[block], momentum, decay, rate)


def _update(w, v, g, momentum: float, decay: float, rate: float) -> None:
    xp, t = array_module(w), scratch(w)
    if decay:
        xp.multiply(w, decay, out=t)
        t += g
        g = t
    v *= momentum
    v += g
    xp.multiply(v, rate, out=t)
    w -= t


def plain_sgd(w: Array, g: Array, rate: float) -> None:
    """w <- w - rate g."""
    for block in blocks(w, 0, w.size):
        part = w[block]
        part -= array_module(w).multiply(g[block], rate, out=scratch(part))


def unscale(x: Array, factor: float) -> bool:
    """x <- factor x. Returns whether every element of x is finite."""
    finite, xp = True, array_module(x)
    for block in blocks(x, 0, x.size):
        finite = finite and bool(xp.isfinite(x[block]).all())
        if factor != 1:
            x[block] *= factor
    return finite


def scratch(x: Array) -> Array:
    """Memory like x, a block; the next call in the same thread overwrites it."""
    if is_device(x):
        return array_module(x).empty_like(x)
    held = vars(_thread).setdefault("held", {})
    if x.dtype not in held or held[x.dtype].size < x.size:
        held[x.dtype] = np.empty(x.size, x.dtype)
    return held[x.dtype][: x.size]
