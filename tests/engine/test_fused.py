"""The one-pass loops against the NumPy passes that they replace: the same bits, as Python and as Numba's machine code."""

import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest

from refgf.engine import fused
from refgf.engine import half
from refgf.exchange.chunk_choice import Density
from refgf.exchange.csc import CSC
from refgf.exchange.pool import Pool
from refgf.exchange.precision import LossScale
from refgf.nn.pooling import MaxPool
from refgf.nn.workspace import Workspace
from refgf.training.sgd import MomentumSGD

AWKWARD = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-40, 3e38, -3e38, 6e-8, 65520, 1e-30], np.float32)


def numbers(seed, n):
    """(n,) float32: ordinary ones of many sizes, any bits at all, and the awkward ones."""
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal(n) * 10.0 ** rng.integers(-9, 6, n)).astype(np.float32)
    anything = rng.integers(0, 1 << 32, n, dtype=np.uint32).view(np.float32)
    return np.choose(rng.integers(0, 8, n) // 6, [x, np.where(rng.random(n) < 0.5, anything, rng.choice(AWKWARD, n))])


@dataclass(frozen=True)
class Spec:
    shape: tuple
    decay: bool
    name: str = "x"


def momentum_sgd(n):
    """Three steps, the last one of a part."""
    specs = [Spec((n // 3,), False), Spec((n - n // 3,), True)]
    optimizer = MomentumSGD(specs, numbers(1, n), 0.9, 5e-4)
    optimizer.velocity[...] = numbers(2, n)
    for seed, part in (3, slice(0, n)), (4, slice(0, n)), (5, slice(n // 5, n // 2)):
        optimizer.step(numbers(seed, n), 0.1, [part])
    return optimizer.parameters, optimizer.velocity


def narrow(n):
    """With NaNs, and without any."""
    x = numbers(1, n)
    return casted(x, np.float16), casted(np.where(np.isnan(x), 1, x), np.float16)


def widen(n):
    """A cast of every float16 there is, if n is not too short for it, and a sum."""
    halves = np.resize(np.arange(1 << 16, dtype=np.uint16), n).view(np.float16)
    total = numbers(2, n)
    half.add(halves, total)
    return casted(halves, np.float32), total


def casted(x, kind):
    """As whole numbers: NaNs must be the same ones, too."""
    out = np.empty(x.size, kind)
    half.cast(x, out)
    return out.view(f"u{out.itemsize}")


def csc(n):
    """Steps of each form with momentum of its own: dense, sparse, one not accepted, one after a look at what is kept."""
    return [x for form in ("dgc", "dgc_masked") if n for x in csc_steps(n, form)]


def csc_steps(n, form):
    pool, found = Pool([Spec((n // 3,), False), Spec((n - n // 3,), True)], np.float32), []
    parameters, scale = finite(9, n), LossScale(4.0)
    exchange = CSC(pool, parameters, found.append, found.append, 2, Density(40), chunk=-(-n // 7), form=form,
                   momentum=0.9, weight_decay=0.1, loss_scale=scale)  # fmt: skip
    for step in range(6):
        pool.flat[:] = finite(step, n)
        if step == 3:
            pool.flat[n // 2] = np.inf
        exchange.ready(0)
        exchange.ready(1)
        assert exchange.finish() == (step != 3)
        found += [pool.flat[part] for part in exchange.sent] + [exchange.store.norms]
        found += list(exchange.kept.values()) if step != 4 else []
        found = [x.copy() for x in found]
        scale.scale *= 2
    return found


def finite(seed, n):
    x = numbers(seed, n)
    return np.where(np.abs(x) < 1e6, x, np.float32(-0.0))


def max_pool(n):
    """Windows that overlap and windows that leave out pixels; many equal values, and the awkward ones but for -0.0."""
    return [array for kernel, stride in ((3, 2), (2, 3)) for array in pooled(n, kernel, stride)]


def pooled(n, kernel, stride):
    shape = 7, 6, 5
    layer = MaxPool("pool", shape, kernel, stride, Workspace(threads=2))
    x = numbers(1, -(-n // 210) * 210).reshape(-1, *shape)
    x = np.where(np.abs(x) < 1, 0, x)
    y = layer.forward(x, True)
    return y, layer.winner, layer.backward(finite(2, y.size).reshape(y.shape), None)


WORK = {fused.momentum_sgd: momentum_sgd, fused.narrow: narrow, fused.widen: widen, fused.carry: csc, fused.pack: csc,
        fused.largest_in_windows: max_pool, fused.to_winners: max_pool}  # fmt: skip


def require_the_bits_of_passes(monkeypatch, loop, made, n):
    """made: what takes the loops' places; calls are counted, so that it is known that there are some."""
    calls = []

    def counted(*args):
        calls.append(args)
        return made[loop](*args)

    monkeypatch.setattr(half, "FEW_HALVES", 0)
    monkeypatch.setattr(half, "CONVERSIONS", {kinds: (convert, 0) for kinds, (convert, _) in half.CONVERSIONS.items()})
    with np.errstate(all="ignore"):
        monkeypatch.setattr(fused, "_compiled", {})
        wanted = WORK[loop](n)
        monkeypatch.setattr(fused, "_compiled", made | {loop: counted})
        got = WORK[loop](n)
    assert calls or not n
    for one, other in zip(got, wanted, strict=True):
        assert one.dtype == other.dtype
        both_nan = np.isnan(one) & np.isnan(other)  # which NaN comes of two is the compiler's choice, also in NumPy
        assert np.where(both_nan, 0, one).tobytes() == np.where(both_nan, 0, other).tobytes()


@pytest.mark.parametrize("n", [0, 1, 7, 300])
@pytest.mark.parametrize("loop", fused.LOOPS, ids=lambda loop: loop.__name__)
def test_as_python(loop, n, monkeypatch):
    require_the_bits_of_passes(monkeypatch, loop, {each: each for each in fused.LOOPS}, n)


@pytest.mark.parametrize("n", [0, 1, 7, 131_071, 2**20 + 3])
@pytest.mark.parametrize("loop", fused.LOOPS, ids=lambda loop: loop.__name__)
def test_as_machine_code(loop, n, monkeypatch):
    numba = pytest.importorskip("numba", reason="needs the extra `fast`")
    require_the_bits_of_passes(monkeypatch, loop, {each: numba.njit(each, nogil=True) for each in fused.LOOPS}, n)


def said(program):
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.split()


ASK = """
import sys, numpy
from refgf.engine.fused import LONG, LOOPS, compiled
import refgf.engine.half, refgf.training.gradientflow
print("numba" in sys.modules, compiled(LOOPS[0], numpy.zeros(LONG - 1, numpy.float32)) is None, "numba" in sys.modules)
print(compiled(LOOPS[0], numpy.zeros(LONG)) is None, compiled(LOOPS[0], numpy.zeros(LONG, numpy.float32)) is None)
"""


def test_short_arrays_import_no_numba():
    try:
        import numba  # noqa: F401
    except ImportError:
        pytest.skip("needs the extra `fast`")
    assert said(ASK) == ["False", "True", "False", "True", "False"]


def test_without_numba_passes_are_taken():
    assert said("import sys; sys.modules['numba'] = None\n" + ASK.replace('"numba" in sys.modules', "False")) == [
        "False", "True", "False", "True", "True"]  # fmt: skip


def test_a_broken_numba_is_as_good_as_none():
    """llvmlite whose library does not load raises OSError."""
    assert said("""
import builtins, numpy
real = builtins.__import__
def broken(name, *rest):
    if name == "numba":
        raise OSError("Could not find/load shared object file")
    return real(name, *rest)
builtins.__import__ = broken
from refgf.engine.fused import LONG, LOOPS, compiled
print(compiled(LOOPS[0], numpy.zeros(LONG, numpy.float32)))
""") == ["None"]
