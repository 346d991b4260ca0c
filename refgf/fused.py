"""Loops over long arrays for which NumPy needs several passes over memory: one pass, with the same bits.

A loop below says what happens to one element. Python would take minutes for it; Numba (`pip install 'refgf[fast]'`) makes
machine code of it, which uses vector instructions and does not hold Python's lock. Without Numba, and for anything but long
float32 arrays on a CPU, the NumPy passes of the callers do the same: they stay the definition, this is only faster.

The bits are the same because each operation is rounded by itself, in the order in which it is written: without `fastmath`
Numba reorders nothing, and never makes one operation of a product and a sum. Only NumPy's warnings of overflow are missing.
"""

import threading

import numpy as np

# Numba takes 0.65 s to import, and 0.1 to 0.6 s to compile a loop; the machine code is kept, beside this file or in the user's
# cache. All ranks of a lesson do that at once on a few cores: its network is too small to earn it back. AlexNet's is not.
LONG = 1 << 20  # elements
_compiled, _lock = None, threading.Lock()


def compiled(loop, x):
    """One of LOOPS as machine code (made by the first call), for float32 arrays like x; None: take NumPy's passes.

    Numba is imported when a long array asks for the first time; from then on short ones are served, too.
    """
    if not isinstance(x, np.ndarray) or x.dtype != np.float32:
        return None
    if x.size >= LONG:
        _prepare()
    return _compiled[loop] if _compiled else None


def _prepare() -> None:
    global _compiled
    with _lock:  # ranks may be threads
        if _compiled is not None:
            return
        try:
            import numba
        except ImportError:  # not installed, or it does not go with this NumPy
            _compiled = {}
            return
        _compiled = {} if numba.config.DISABLE_JIT else {loop: _compile(numba, loop) for loop in LOOPS}


def _compile(numba, loop):
    try:
        return numba.njit(loop, nogil=True, cache=True)
    except RuntimeError:  # no folder where the machine code could be kept: each process makes it anew
        return numba.njit(loop, nogil=True)


def momentum_sgd(w, v, g, momentum, decay, rate, decays) -> None:
    """v <- momentum v + (g + decay w), or without decay; w <- w - rate v. All float32, but for `decays`, True or False."""
    for i in range(w.size):
        gradient = decay * w[i] + g[i] if decays else g[i]
        v[i] = momentum * v[i] + gradient
        w[i] = w[i] - rate * v[i]


LOOPS = (momentum_sgd,)
