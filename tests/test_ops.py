"""The door: every function of the engine has the bits of the plain one that it replaces."""

import contextlib
import inspect

import numpy as np
import pytest

import refgf.engine
from refgf import ops
from refgf.engine import fused
from refgf.oracle.judge.verify import verify_case
from tests.support.golden import CASES
from tests.support.project import Project

AWKWARD = [
    0,
    -0.0,
    1,
    65504,
    65519.99,
    65520,
    1e9,
    6.1e-5,
    5.96e-8,
    2.98e-8,
    2.99e-8,
    1e-20,
    1e-40,
    3e38,
]
ULP = [1 + 2**-11, 1 + 3 * 2**-11, 1 - 2**-12]  # ties of float16
SIZES = [0, 1, 7, 511, 513, 70_001]


def numbers(n, dtype, seed=0):
    """Awkward ones first, then of many exponents."""
    rng = np.random.default_rng(seed)
    with np.errstate(over="ignore"):
        spread = rng.standard_normal(n) * np.float64(10) ** rng.integers(-8, 4, n)
        awkward = np.array(AWKWARD + ULP)
        spread[: len(awkward)] = np.concatenate([awkward, -awkward])[: min(n, len(awkward))]
        return spread.astype(dtype)


def both(name, arguments):
    """Results of the plain function and the engine's, on copies of the same arguments."""
    found = []
    for function in (refgf.engine.PLAIN[name], refgf.engine.REPLACEMENTS[name]):
        own = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
        with np.errstate(all="ignore"):
            returned = function(*own)
        arrays = [a.tobytes() for a in own if isinstance(a, np.ndarray)]
        found.append((returned, arrays))
    return found


def cases(n):
    """{name: lists of arguments}. What is scratch is left out of the comparison by being equal."""
    f4, f8, f2 = (numbers(n, kind) for kind in (np.float32, np.float64, np.float16))
    other, third = numbers(n, np.float32, 1), numbers(n, np.float32, 2)
    casts = [
        [x, np.ones(n, kind)] for x in (f2, f4, f8) for kind in (np.float16, np.float32, np.float64)
    ]
    bad = f4.copy()
    bad[n // 2 : n // 2 + 1] = np.nan
    yield "cast", casts + [[bad, np.ones(n, np.float16)]]
    yield (
        "add",
        [[x, other.astype(kind)] for x in (f2, f4, f8) for kind in (np.float32, np.float64)],
    )
    yield "rounded", [[f4, np.float16, np.ones(n, np.float32)], [f8, np.float16, np.ones(n)]]
    yield "unscale", [[f4, 1], [f4, 0.25], [bad, 0.5], [f8, 2.0]]
    yield "plain_sgd", [[f4, other, 0.1], [f8, f8, 0.1]]
    yield (
        "momentum_sgd",
        [[f4, other, third, 0.9, d, 0.1] for d in (0.0, 0.01)] + [[f8, f8, f8, 0.9, 0.01, 0.1]],
    )


@pytest.fixture(params=[False, True], ids=["as it comes", "with Numba's loops"])
def loops(request, monkeypatch):
    """Numba's loops begin at long arrays; here they begin at one element."""
    if request.param:
        pytest.importorskip("numba")
        monkeypatch.setattr(fused, "LONG", 0)


@pytest.mark.parametrize("n", SIZES)
def test_flat_functions_have_the_same_bits(n, loops):
    for name, lists in cases(n):
        for arguments in lists:
            plain, engine = both(name, arguments)
            assert plain == engine, (name, [getattr(a, "dtype", a) for a in arguments])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_layers_functions_have_the_same_bits(dtype, loops):
    rng = np.random.default_rng(4)
    shape = (3, 9, 8, 5)
    x, dy, y = (rng.standard_normal(shape).astype(dtype) for _ in range(3))
    vectors = [rng.standard_normal(5).astype(dtype) for _ in range(4)]
    kept = rng.random(shape) > 0.5
    for name, arguments in {
        "relu_gradient": [dy, y, np.zeros(shape, bool)],
        "dropout": [x, kept, 2.0, y],
        "normalize": [x, *vectors[:3], y],
        "normalize_gradient": [x, *vectors, dy, np.zeros_like(x)],
    }.items():
        plain, engine = both(name, arguments)
        assert plain == engine, name
    ties = rng.integers(0, 3, shape).astype(dtype)
    for kernel, stride in ((3, 2), (2, 1), (1, 1)):
        rows, columns = ((side - kernel) // stride + 1 for side in shape[1:3])
        out = np.zeros((3, rows, columns, 5), dtype)
        winner = np.zeros(out.shape, np.uint8)
        plain, engine = both("largest_in_windows", [ties, out, winner, kernel, stride])
        assert plain == engine
        ops.largest_in_windows(ties, out, winner, kernel, stride)
        plain, engine = both("to_winners", [out, winner, np.zeros(shape, dtype), kernel, stride])
        assert plain == engine


def test_every_replacement_is_compared():
    """What is not arithmetic has tests of its own: communicators, and buffers."""
    compared = {name for name, _ in cases(1)}
    compared |= {"relu_gradient", "dropout", "normalize", "normalize_gradient"}
    compared |= {"largest_in_windows", "to_winners"}
    assert set(refgf.engine.REPLACEMENTS) == compared | {"background", "exact", "Buffers"}


def test_signatures_are_the_same():
    for name, function in refgf.engine.REPLACEMENTS.items():
        if inspect.isfunction(function):
            plain = inspect.signature(refgf.engine.PLAIN[name]).parameters
            assert list(plain) == list(inspect.signature(function).parameters), name


def test_off_and_on_again():
    assert ops.cast is refgf.engine.REPLACEMENTS["cast"]
    with refgf.engine.off():
        assert ops.cast is refgf.engine.PLAIN["cast"]
    assert ops.cast is refgf.engine.REPLACEMENTS["cast"]


def failures():
    """The golden cases that the project does not pass now."""
    judged = [case for case in CASES if Project().provides(case)]
    verdicts = {case.name: verify_case(case, Project()).failure for case in judged}
    assert len(verdicts) > 500
    return {name: str(failure) for name, failure in verdicts.items() if failure}


@pytest.mark.parametrize("state", ["plain", "Numba's loops"])
def test_the_golden_cases_pass_both_ways(state, monkeypatch):
    if "loops" in state:
        pytest.importorskip("numba")
        monkeypatch.setattr(fused, "LONG", 0)
    with refgf.engine.off() if state == "plain" else contextlib.nullcontext():
        assert failures() == {}
