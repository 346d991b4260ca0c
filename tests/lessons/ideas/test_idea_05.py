"""Lesson 05's idea against the definition of a scaled float16 allreduce, bit for bit."""

import numpy as np
import pytest

from docs.tools import gains
from lab.precision import blocks
from refgf.oracle import definitions
from refgf.oracle.definitions import same_bits, scaled_allreduce

LESSON = gains.module_of(gains.ROOT / "lessons" / "05_mixed_precision.py")
DEFINITIONS = {True: definitions.ring_allreduce, False: definitions.direct_allreduce}


@pytest.mark.parametrize("every_hop", DEFINITIONS)
@pytest.mark.parametrize("p", [1, 2, 3, 5])
@pytest.mark.parametrize("n", [0, 2, 1000])
@pytest.mark.parametrize("scale", [1.0, 2.0**12])
def test_bits_are_as_defined(every_hop, p, n, scale):
    """From far below float16's smallest number to above its largest."""
    random = np.random.default_rng([p, n])
    exponents = random.uniform(-32, 15, (p, n))
    signs = random.choice([-1, 1], (p, n))
    gradients = list((signs * 2.0**exponents).astype(np.float32))
    wanted = scaled_allreduce(gradients, scale, allreduce=DEFINITIONS[every_hop])[0]
    with np.errstate(invalid="ignore"):  # infinity minus infinity
        assert same_bits(LESSON.half_sum(gradients, scale, every_hop), wanted)


def test_a_loss_scale_saves_small_gradients():
    small = [np.full(3, 2.0**-30, np.float32)] * 2
    assert not LESSON.half_sum(small, 1.0, True).any()
    assert (LESSON.half_sum(small, 2.0**12, True) == 2.0**-29).all()


def test_eight_bits_are_those_of_ml_dtypes():
    """All magnitudes up to the largest, ties and numbers below the smallest."""
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="E4M3 of NumPy arrays needs ml_dtypes")
    x = np.exp2(np.random.default_rng(0).uniform(-14, np.log2(blocks.LARGEST), 10_000))
    x = np.concatenate([x, -x, np.arange(-448 * 8, 448 * 8 + 1) / 8, np.arange(99) * 2.0**-11])
    x = x.astype(np.float32)
    wanted = x.astype(ml_dtypes.float8_e4m3fn).astype(np.float64)
    assert np.array_equal(blocks.e4m3(x.astype(np.float64)), wanted)


@pytest.mark.parametrize("n", [0, 1, 31, 32, 33, 65])
def test_a_block_has_the_least_power_of_two_with_which_it_fits(n):
    x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    found = blocks.rounded(x)
    assert found.dtype == np.float32 and found.shape == (n,)
    for start in range(0, n, blocks.BLOCK):
        part, scale = x[start : start + blocks.BLOCK].astype(np.float64), 2.0**-40
        while np.abs(part).max() > blocks.LARGEST * scale:
            scale *= 2
        got = found[start : start + blocks.BLOCK]
        assert np.array_equal(got, blocks.e4m3(part / scale) * scale)


def test_blocks_by_hand():
    assert blocks.rounded(np.float32([449, 1, 1e-3])).tolist() == [448, 1, 0]
    apart = np.float32([448] + 31 * [0] + [1e-4])  # the last one has a block of its own
    assert blocks.rounded(apart)[-1] == pytest.approx(1e-4, rel=2**-4)
    assert blocks.rounded(apart, 0)[-1] == 0
    assert not blocks.rounded(np.zeros(40, np.float32)).any()


@pytest.mark.parametrize("how", blocks.GROWTH)
@pytest.mark.parametrize("p", [1, 2, 3, 7, 64])
def test_errors_of_eight_bits_are_predicted(how, p):
    """A sum of one is rounded once by each; direct rounds again what is rounded already."""
    predicted = blocks.one_rounding() * (blocks.GROWTH[how](p) if p > 1 else 1)
    assert 0.85 < blocks.error(p, how) / predicted < 1.15
