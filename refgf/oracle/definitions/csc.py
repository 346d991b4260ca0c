"""C1 to C6: coarse-grained sparse communication, the pieces. The whole step is in csc_step.py.

The pool of n gradients is cut into chunks; only the chosen chunks travel. What the others would have carried is kept.

    form          kept per rank   a chunk would carry (a)   chosen: kept becomes   not chosen: kept becomes
    none          h               g + h                     h = 0                  h = g + h
    history       h               g + h                     h = 0                  h = m (g + h)
    dgc           u, v            v + (m u + g)             v = 0, u = m u + g     v = a, u = m u + g
    dgc_masked    u, v            v + (m u + g)             v = 0, u = 0           v = a, u = m u + g
"""

import math

import numpy as np

from refgf.oracle.definitions.sums import exact_sum

FORMS = ("dgc", "dgc_masked", "history", "none")


def chunk_bounds(n, chunk):
    """C1: chunks of `chunk` elements, the last one shorter where n is not divisible. -> [(start, stop)]"""
    return [(start, min(start + chunk, n)) for start in range(0, n, chunk)]


def nothing_kept(form, n, dtype=np.float32):
    """What a rank keeps before its first step: zeros. -> {"u", "v"} or {"h"}, arrays (n,)"""
    return {name: np.zeros(n, dtype) for name in ("uv" if form.startswith("dgc") else "h")}


def carried(form, kept, g, momentum):
    """C2: what each element would carry if its chunk travelled in this step, before anything is cleared. -> (n,)"""
    if form.startswith("dgc"):
        return kept["v"] + (g.dtype.type(momentum) * kept["u"] + g)
    return g + kept["h"]


def keep(form, kept, g, momentum, sent, dense=False):
    """C3: what is kept after the step. sent: bool (n,), True in chosen chunks; dense: a dense step. -> like kept

    Factor masking (dgc_masked) clears u on chosen chunks, but never in a dense step: there u is ordinary momentum.
    """
    m, a = g.dtype.type(momentum), carried(form, kept, g, momentum)
    zero = np.zeros_like(g)
    if form.startswith("dgc"):
        u = m * kept["u"] + g
        masked = form == "dgc_masked" and not dense
        return {"u": np.where(sent, zero, u) if masked else u, "v": np.where(sent, zero, a)}
    return {"h": np.where(sent, zero, m * a if form == "history" else a)}


def importance(per_rank, chunk):
    """C4: per chunk, the sum over ranks of the L1 norms, divided by the chunk's length. p arrays (n,) -> float64 (C,)

    Sums are exact and rounded once to float64, then divided. per_rank is what each rank would carry (C2), or, with
    the option `after`, what each rank keeps of it (v or h after C3).
    """
    bounds = chunk_bounds(len(per_rank[0]), chunk)
    norms = [exact_sum([np.abs(a[e : e + 1]) for a in per_rank for e in range(i, j)])[0] for i, j in bounds]
    return np.array([norm / (j - i) for norm, (i, j) in zip(norms, bounds)], np.float64)


def choose(values, percent):
    """C5: the max(1, ceil(C * percent / 100)) most important of C chunks, ties to the lower number. -> sorted list"""
    count = max(1, math.ceil(len(values) * percent / 100))
    return sorted(sorted(range(len(values)), key=lambda c: (-values[c], c))[:count])


def percent_of_step(step, steps_per_epoch, warmup_percents, percent):
    """C6: density of a step (counted from 0): one per warm-up epoch, then `percent`. -> (percent, dense)

    A step is dense (everything travels, nobody has chosen) when it is the first one, or a warm-up step at 100 %.
    """
    epoch = step // steps_per_epoch
    if epoch < len(warmup_percents):
        return warmup_percents[epoch], step == 0 or warmup_percents[epoch] == 100
    return percent, step == 0


def conserved(form, sent_sums, kept, g_sums, u_sums):
    """C7: nothing is lost. sent_sums, g_sums, u_sums: sums over all steps on one rank (n,); kept: what it keeps now.

    none: sent + kept = sum of g.  dgc: sent + v = sum of u.  dgc_masked: the same, u as it was before masking.
    history has only its recurrence (C3) and is not judged by this. On exact data the equality is bit for bit.
    """
    if form == "history":
        return True
    if form == "none":
        return bool((sent_sums + kept["h"] == g_sums).all())
    return bool((sent_sums + kept["v"] == u_sums).all())
