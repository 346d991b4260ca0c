"""The one-pass loops against NumPy's passes: the same bits, as Python and as machine code."""

import inspect
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from refgf import engine
from refgf.engine import fused, fused_gpu

AWKWARD = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-40, 3e38, -3e38, 6e-8, 65520, 1e-30], np.float32
)
PLAIN = engine.PLAIN  # ops's functions as they were before the engine replaced them


def numbers(seed, n):
    """(n,) float32: ordinary ones of many sizes, any bits at all, and the awkward ones."""
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal(n) * 10.0 ** rng.integers(-9, 6, n)).astype(np.float32)
    anything = rng.integers(0, 1 << 32, n, dtype=np.uint32).view(np.float32)
    rare = np.where(rng.random(n) < 0.5, anything, rng.choice(AWKWARD, n))
    return np.choose(rng.integers(0, 8, n) // 6, [x, rare])


def constants(*values):
    return [np.float32(value) for value in values]


# ---- one function a loop: what it leaves, and what NumPy's passes leave ----


def momentum_sgd(loop, n):
    got, wanted = [numbers(s, n) for s in (1, 2, 3)], [numbers(s, n) for s in (1, 2, 3)]
    for decay in (5e-4, 0.0):
        loop(*got, *constants(0.9, decay, 0.1), decay != 0)
        PLAIN["momentum_sgd"](*wanted, *constants(0.9, decay, 0.1))
    return got, wanted


def narrow(loop, n):
    x = np.where(np.isnan(numbers(1, n)), np.float32(1), numbers(1, n))
    out = np.empty(n, np.uint16)
    largest = loop(x.view(np.int32), out)
    return [out, np.int32(largest)], [
        x.astype(np.float16).view(np.uint16),
        np.abs(x).max(initial=0).view(np.int32),
    ]


def widen(loop, n):
    """Every float16 there is, if n is not too short for it; a cast and a sum."""
    halves = np.resize(np.arange(1 << 16, dtype=np.uint16), n).view(np.float16)
    out, total = np.empty(n, np.float32), numbers(2, n)
    loop(halves.view(np.int16), out, False)
    loop(halves.view(np.int16), total, True)
    return [out, total], [halves.astype(np.float32), numbers(2, n) + halves]


def accumulate(loop, n):
    got, wanted = [], []
    for decays, adds_u in ((True, True), (False, True), (True, False)):
        g, u, v, w, after, out = (numbers(s, n) for s in range(6))
        unscale, decay, momentum = factors = tuple(constants(0.25, 0.1, 0.9))
        gradient = unscale * g + decay * w if decays else unscale * g
        expected_v = v + u if adds_u else v.copy()
        expected = gradient + momentum * u
        wanted += [expected_v, expected, np.abs(expected_v + expected)]
        loop(g, u, v, w, after, out, factors, (decays, adds_u))
        got += [v, after, out]
    return got, wanted


def pack(loop, n):
    """Every other chunk, the last one shorter."""
    v, g, chunk = numbers(1, n), numbers(2, n), max(1, n // 7 - 1)
    chosen = np.arange(-(-n // chunk))[::-2][::-1].copy()
    wanted = np.concatenate(
        [np.float32(3) * (v + g)[i * chunk : (i + 1) * chunk] for i in chosen] or [v]
    )
    out = np.empty(wanted.size, np.float32)
    loop(v, g, chosen, chunk, np.float32(3), out)
    return [out], [wanted]


def windows(n):
    """Windows that overlap and windows that leave out pixels; many equal values, no -0.0."""
    for kernel, stride in ((3, 2), (2, 3)):
        x = numbers(1, -(-n // 210) * 210).reshape(-1, 7, 6, 5)
        x = np.where(np.abs(x) < 1, np.float32(0), x)
        y = np.empty(
            (len(x), (7 - kernel) // stride + 1, (6 - kernel) // stride + 1, 5), np.float32
        )
        winner = np.empty(y.shape, np.uint8)
        PLAIN["largest_in_windows"](x, y, winner, kernel, stride)
        yield x, y, winner, kernel, stride


def largest_in_windows(loop, n):
    got, wanted = [], []
    for x, y, winner, kernel, stride in windows(n):
        out = [np.empty_like(y), np.empty_like(winner)]
        loop(x, *out, kernel, stride)
        got, wanted = got + out, wanted + [y, winner]
    return got, wanted


def to_winners(loop, n):
    got, wanted = [], []
    for x, y, winner, kernel, stride in windows(n):
        dy = numbers(2, y.size).reshape(y.shape)
        for function, found in ((loop, got), (PLAIN["to_winners"], wanted)):
            dx = np.full_like(x, np.nan)
            function(dy, winner, dx, kernel, stride)
            found.append(dx)
    return got, wanted


WORK = {
    function.__name__: function
    for function in (momentum_sgd, narrow, widen, accumulate, pack, largest_in_windows, to_winners)
}


def require_same_bits(loop, made, n):
    with np.errstate(all="ignore"):
        got, wanted = WORK[loop.__name__](made, n)
    for one, other in zip(got, wanted, strict=True):
        assert one.dtype == other.dtype
        if one.dtype.kind == "f":  # the compiler chooses one of two NaNs, in NumPy too
            both_nan = np.isnan(one) & np.isnan(other)
            one, other = np.where(both_nan, 0, one), np.where(both_nan, 0, other)
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("n", [0, 1, 7, 300])
@pytest.mark.parametrize("loop", fused.LOOPS, ids=lambda loop: loop.__name__)
def test_as_python(loop, n):
    require_same_bits(loop, loop, n)


@pytest.mark.parametrize("loop", fused.LOOPS, ids=lambda loop: loop.__name__)
def test_as_machine_code(loop):
    numba = pytest.importorskip("numba", reason="needs the extra `fast`")
    made = numba.njit(loop, nogil=True)
    for n in (0, 1, 7, 131_071, 2**20 + 3):
        require_same_bits(loop, made, n)


# ---- which function does the work ----


@pytest.mark.parametrize("name", fused.REPLACEMENTS)
def test_loops_and_kernels_take_the_arguments_of_the_plain_function(name):
    wanted = [*inspect.signature(PLAIN[name]).parameters]
    assert [*inspect.signature(fused.REPLACEMENTS[name]).parameters] == wanted
    kernel = fused_gpu.KERNELS[name]
    assert [*inspect.signature(kernel).parameters] == wanted
    for loop in fused.LOOPS:
        if loop.__name__ == name:
            assert [*inspect.signature(loop).parameters] == wanted


@pytest.mark.parametrize("dtype, images, calls", [("f4", 4000, 1), ("f4", 1, 0), ("f8", 4000, 0)])
def test_long_float32_blocks_take_the_loop(monkeypatch, dtype, images, calls):
    counted = []
    monkeypatch.setattr(fused, "_compiled", None)
    made = {fused.largest_in_windows: lambda *arguments: counted.append(arguments)}
    monkeypatch.setattr(fused, "_prepare", lambda: monkeypatch.setattr(fused, "_compiled", made))
    x, y = np.ones((images, 9, 9, 1), dtype), np.zeros((images, 4, 4, 1), dtype)
    fused.REPLACEMENTS["largest_in_windows"](x, y, np.zeros(y.shape, np.uint8), 3, 2)
    assert len(counted) == calls
    assert (y == 1).all() != bool(calls)


@pytest.mark.parametrize("switch, compiles", [("1", False), ("0", True), ("", True)])
def test_numba_is_not_imported_where_its_switch_is_off(monkeypatch, switch, compiles):
    config = SimpleNamespace(DISABLE_JIT=0)
    numba = SimpleNamespace(njit=lambda loop, nogil: loop, config=config)
    monkeypatch.setattr(fused, "_compiled", None)
    monkeypatch.setitem(sys.modules, "numba", numba)
    monkeypatch.setenv("NUMBA_DISABLE_JIT", switch)
    x = np.zeros(fused.LONG, np.float32)
    assert (fused.compiled(fused.momentum_sgd, x) is not None) == compiles


def output_of(program):
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.split()


ASK = """
import sys, numpy
from refgf.engine.fused import LONG, LOOPS, compiled
import refgf.engine.half, refgf.training.gradientflow
def no(n, dtype=numpy.float32):
    return compiled(LOOPS[0], numpy.zeros(n, dtype)) is None
print("numba" in sys.modules, no(LONG - 1), "numba" in sys.modules)
print(no(LONG, float), no(LONG))
"""


def test_short_arrays_import_no_numba():
    pytest.importorskip("numba", reason="needs the extra `fast`")
    assert output_of(ASK) == ["False", "True", "False", "True", "False"]


def test_without_numba_the_plain_functions_work():
    missing = "import sys; sys.modules['numba'] = None\n" + ASK
    assert output_of(missing.replace('"numba" in sys.modules', "False"))[-2:] == ["True", "True"]


def test_a_broken_numba_is_as_good_as_none():
    """llvmlite raises OSError if its library does not load."""
    broken = """
import builtins, numpy
real = builtins.__import__
def broken(name, *rest):
    if name == "numba":
        raise OSError("Could not find/load shared object file")
    return real(name, *rest)
builtins.__import__ = broken
from refgf.engine.fused import LONG, LOOPS, compiled
print(compiled(LOOPS[0], numpy.zeros(LONG, numpy.float32)))
"""
    assert output_of(broken) == ["None"]
