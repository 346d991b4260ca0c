"""CUDA kernels, run on the CPU as C, against the loops and plain functions: the same bits.

Nothing here has run on a GPU.
"""

import inspect

import numpy as np
import pytest

from refgf import engine
from refgf.engine import fused
from refgf.engine.fused_gpu import KERNELS
from tests.support.fake_cuda_c import needs_a_compiler
from tests.support.fake_cupy import installed

pytestmark = needs_a_compiler

SIZES = [0, 1, 7, 100_003]
PLAIN = engine.PLAIN
LOOPS = (fused.momentum_sgd, fused.accumulate, fused.pack)
REFERENCES = PLAIN | {loop.__name__: loop for loop in LOOPS}
FLAT = ("momentum_sgd", "accumulate", "relu_gradient", "dropout", "normalize", "normalize_gradient")
WITH_SCRATCH = ("relu_gradient", "normalize_gradient")  # their last argument
TYPES = [np.float16, np.float32, np.float64]
# images, height, width, channels, kernel, stride
POOLS = [
    (0, 5, 5, 2, 3, 2),
    (2, 9, 7, 5, 3, 2),
    (1, 8, 8, 3, 2, 2),
    (3, 7, 9, 2, 2, 3),
    (1, 6, 6, 4, 5, 1),
]


def numbers(rng, shape, dtype):
    """Ordinary ones, many equal ones, and some awkward ones."""
    x = rng.standard_normal(shape).astype(dtype)
    few = rng.integers(-2, 3, shape).astype(dtype)
    awkward = rng.choice(np.array([np.inf, -np.inf, np.nan, -0.0, 6e-8, -65504.0], dtype), shape)
    return np.choose(rng.integers(0, 24, shape) // 11, [x, few, awkward])


def flat(name, n, dtype):
    """Arguments of the loops over flat arrays."""
    rng = np.random.default_rng([n, len(name)])
    x = [numbers(rng, n, dtype) for _ in range(6)]
    a, b, c = (dtype(value) for value in (0.9, 0.1, 0.3))
    mask = rng.random(n) < 0.5
    each = {
        "momentum_sgd": [(*x[:3], a, b, c, decays) for decays in (True, False)],
        "accumulate": [
            (*x, (a, b, c), (decays, adds_u))
            for decays in (True, False)
            for adds_u in (True, False)
        ],
        "relu_gradient": [(x[0], x[1], mask)],
        "dropout": [(x[0], mask, 1 / (1 - 0.3), x[1])],
        "normalize": [tuple(x[:5])],
        "normalize_gradient": [(*x, np.zeros(n, dtype))],
    }
    return each[name]


def packed(n, dtype):
    """Every other chunk, the last one shorter; none at all of no elements."""
    rng, chunk = np.random.default_rng(n), max(1, n // 7 - 1)
    chosen = np.arange(-(-n // chunk))[::-2][::-1]
    size = sum(min(n, (number + 1) * chunk) - number * chunk for number in chosen)
    return (
        numbers(rng, n, dtype),
        numbers(rng, n, dtype),
        chosen,
        chunk,
        dtype(3),
        np.zeros(size, dtype),
    )


def pooled(case, dtype):
    """Arguments of both directions; windows that tie, with NaNs; zeros of one sign only."""
    n, height, width, channels, kernel, stride = case
    rng = np.random.default_rng(case)
    x = numbers(rng, (n, height, width, channels), dtype) + dtype(0)
    y = np.zeros(
        (n, (height - kernel) // stride + 1, (width - kernel) // stride + 1, channels), dtype
    )
    forward = x, y, np.zeros(y.shape, np.uint8), kernel, stride
    PLAIN["largest_in_windows"](*forward)
    winner = forward[2].copy()
    dy = rng.standard_normal(y.shape).astype(dtype)
    dy = np.where(rng.random(y.shape) < 0.1, numbers(rng, y.shape, dtype), dy)
    y[...], forward[2][...] = 0, 0
    return forward, (dy, winner, np.ones_like(x), kernel, stride)


def arguments():
    for dtype in TYPES:
        for name in FLAT:
            for n in SIZES:
                yield from ((name, given) for given in flat(name, n, dtype))
        for n in SIZES:
            yield "pack", packed(n, dtype)
        for case in POOLS:
            yield from zip(("largest_in_windows", "to_winners"), pooled(case, dtype))


def by_numpy(name, given):
    """What the loop or the plain function leaves in its arguments, without scratch memory.

    NumPy rounds a Python float to the arrays' type.
    """
    given = [
        x.copy()
        if isinstance(x, np.ndarray)
        else given[0].dtype.type(x)
        if isinstance(x, float)
        else x
        for x in given
    ]
    with np.errstate(all="ignore"):
        REFERENCES[name](*given)
    return given[: -1 if name in WITH_SCRATCH else None]


def by_the_kernel(cupy, name, given):
    host = [name == "pack" and number == 2 for number in range(len(given))]  # the chunks' numbers
    on_device = [
        cupy.asarray(x) if isinstance(x, np.ndarray) and not h else x for x, h in zip(given, host)
    ]
    assert fused.compiled(REFERENCES[name], on_device[0]) is KERNELS[name]
    KERNELS[name](*on_device)
    found = [x.get() if hasattr(x, "get") else x for x in on_device]
    return found[: -1 if name in WITH_SCRATCH else None]


def same(ones, others):
    """Bit for bit, but for which NaN a NaN is."""
    for one, other in zip(ones, others, strict=True):
        if isinstance(one, np.ndarray):
            both_nan = np.isnan(one) & np.isnan(other)
            if (
                one.dtype != other.dtype
                or np.where(both_nan, 0, one).tobytes() != np.where(both_nan, 0, other).tobytes()
            ):
                return False
    return True


@pytest.fixture(scope="module")
def expected():
    """The loops take seconds: they run once. {name: [(arguments, what they are afterwards)]}"""
    found = {}
    for name, given in arguments():
        found.setdefault(name, []).append((given, by_numpy(name, given)))
    return found


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_has_the_bits_of_its_loop(name, expected):
    with installed() as cupy:
        for given, wanted in expected[name]:
            assert same(by_the_kernel(cupy, name, given), wanted), [
                getattr(x, "shape", x) for x in given
            ]


def test_vectors_are_repeated_and_blocks_are_views():
    """As BatchNorm calls them: (C,) beside (n, H, C), and a part of a batch."""
    rng = np.random.default_rng(0)
    x, (mean, scale, beta) = rng.standard_normal((5, 3, 4)), rng.standard_normal((3, 4))
    with installed() as cupy:
        y = cupy.asarray(np.zeros_like(x))
        KERNELS["normalize"](*(cupy.asarray(a) for a in (x[1:3], mean, scale, beta)), y[1:3])
        wanted = np.zeros_like(x)
        wanted[1:3] = (x[1:3] - mean) * scale + beta
        assert same([y.get()], [wanted])


def test_what_cupy_refuses_is_refused():
    with installed() as cupy:
        x, half = (cupy.asarray(np.ones(3, kind)) for kind in (np.float32, np.float16))
        for wrong in ((x, half), (x, np.ones(3, np.float32)), (x[:2], x), (1.0, x)):
            with pytest.raises((TypeError, ValueError)):
                KERNELS["relu_gradient"](*wrong, None)
        with pytest.raises(ValueError, match="no fused roundings"):
            cupy.ElementwiseKernel("T x", "T y", "y = x", "copy")


def test_a_kernel_is_called_as_its_loop_is():
    for loop in LOOPS:
        wanted = [*inspect.signature(loop).parameters]
        assert [*inspect.signature(KERNELS[loop.__name__]).parameters] == wanted
    assert set(KERNELS) == {loop.__name__ for loop in LOOPS} | set(fused.REPLACEMENTS)


@pytest.mark.parametrize("name", ["relu_gradient", "dropout", "normalize", "normalize_gradient"])
def test_the_cpu_keeps_its_passes(name):
    assert fused.compiled(KERNELS[name], np.zeros(fused.LONG, np.float32)) is None
