"""Fast casts: the bits of NumPy's, for every float16 and for float32 where rounding is hardest."""

import functools

import numpy as np
import pytest

from refgf.engine import fused, half
from refgf.engine.half import BLOCK_ELEMENTS, FEW, FEW_HALVES, add, cast, rounded


@functools.cache
def compiled():
    """{loop: its machine code}: the compiler works at the first call of each."""
    import numba

    return {loop: numba.njit(loop, nogil=True) for loop in fused.LOOPS}


@pytest.fixture(autouse=True, params=["passes", "loops"])
def way(request, monkeypatch):
    """All of this by NumPy's passes and by machine code."""
    made = {}
    if request.param == "loops":
        pytest.importorskip("numba", reason="needs the extra `fast`")
        made = compiled()
    monkeypatch.setattr(fused, "_compiled", made)


EVERY_HALF = np.arange(1 << 16, dtype=np.uint16).view(np.float16)


def require_bits_of_numpy(x, wanted_type):
    got = np.empty(x.size, wanted_type)
    with np.errstate(all="ignore"):
        cast(x, got)
        wanted = x.astype(wanted_type)
    assert got.tobytes() == wanted.tobytes()


def test_every_float16_becomes_its_float32():
    finite = EVERY_HALF[np.isfinite(EVERY_HALF)]
    require_bits_of_numpy(finite, np.float32)
    require_bits_of_numpy(EVERY_HALF, np.float32)


def test_float32_around_every_float16_and_every_tie():
    """Each float16, the tie to the next one, and their neighbours in float32, up to infinity."""
    halves = EVERY_HALF[:0x7C00].astype(np.float32)
    ties = (halves + np.append(halves[1:], np.float32(65536))) / np.float32(2)
    points = np.concatenate([halves, ties])
    near = [np.nextafter(points, np.float32(0)), points, np.nextafter(points, np.float32(np.inf))]
    for x in near:
        require_bits_of_numpy(x, np.float16)
        require_bits_of_numpy(-x, np.float16)


@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan, -0.0, 3e38, 1e-45])
@pytest.mark.parametrize(
    "n", [0, 1, FEW - 1, FEW, FEW + 1, FEW_HALVES, BLOCK_ELEMENTS, 2 * BLOCK_ELEMENTS + 7]
)
def test_any_bits_and_lengths(n, special):
    rng = np.random.default_rng(n)
    x = rng.integers(0, 1 << 32, n, dtype=np.uint32).view(np.float32)
    require_bits_of_numpy(x, np.float16)
    y = rng.standard_normal(n).astype(np.float32)
    y[n // 2 : n // 2 + 1] = special
    require_bits_of_numpy(y, np.float16)
    require_bits_of_numpy(y.astype(np.float64), np.float16)
    with np.errstate(all="ignore"):
        require_bits_of_numpy(y.astype(np.float16), np.float32)


def test_an_array_with_gaps():
    x = np.linspace(-1, 1, 4 * FEW, dtype=np.float32)
    require_bits_of_numpy(x[::2], np.float16)


KINDS = [
    ("float16", "float32"),
    ("float16", "float64"),
    ("float32", "float64"),
    ("float16", "float16"),
]


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("n", [0, 1, FEW + 1, FEW_HALVES, 2 * BLOCK_ELEMENTS + 7])
def test_additions_are_those_of_numpy(n, kinds):
    rng = np.random.default_rng(n)
    # half of them below 2**-14
    x, got = ((1e-5 * rng.standard_normal(n)).astype(kind) for kind in kinds)
    wanted = got + x
    add(x, got)
    assert got.tobytes() == wanted.tobytes() and got.dtype == wanted.dtype


@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
@pytest.mark.parametrize("n", [0, 1, FEW + 1, FEW_HALVES, 2 * BLOCK_ELEMENTS + 7])
def test_rounding_in_place_and_elsewhere(n, kind):
    x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    wanted, out = x.astype(kind).astype(np.float32), np.empty_like(x)
    rounded(x, kind, out)
    rounded(x, kind, x)
    assert out.tobytes() == x.tobytes() == wanted.tobytes()


def test_a_few_numbers_are_rounded_by_numpy(monkeypatch):
    """CSC rounds each chosen chunk by itself, and small chunks are many."""
    monkeypatch.setattr(half, "cast", None)
    x = np.linspace(0, 1, FEW - 1, dtype=np.float32)
    rounded(x, "float16", x)
    assert x.tobytes() == x.astype("float16").astype(np.float32).tobytes()


@pytest.mark.parametrize(
    "wide, narrow", [(">f4", "float16"), ("float32", ">f2"), (">f2", "float32")]
)
def test_the_other_byte_order_is_left_to_numpy(wide, narrow):
    """The fast ways read bits in this machine's order; `char` does not tell it."""
    x = np.linspace(-3, 3, 20_001).astype(wide)
    out = np.empty(x.size, narrow)
    cast(x, out)
    assert out.tobytes() == x.astype(narrow).tobytes()
