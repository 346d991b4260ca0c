"""Lesson 05's idea against the definition of a scaled float16 allreduce, bit for bit."""

import numpy as np
import pytest

from docs.tools import gains
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
