"""Learning rates against their formulas."""

import pytest

from refgf.training.rates import linear_scaling, polynomial_decay, warmup


def test_linear_scaling():
    assert linear_scaling(0.1, 256) == 0.1
    # Goyal et al.: 8192 images, rate 3.2
    assert linear_scaling(0.1, 8192) == pytest.approx(3.2, rel=1e-15)
    assert linear_scaling(0.5, 64, base_batch=32) == 1.0


def test_warmup_rises_by_equal_steps_and_ends_at_the_rate():
    rates = [warmup(3.2, step, 5, start_rate=0.2) for step in range(7)]
    assert rates == pytest.approx([0.8, 1.4, 2.0, 2.6, 3.2, 3.2, 3.2], rel=1e-15)
    assert [warmup(1.0, step, 4) for step in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert warmup(1.0, 0, 0) == 1.0
    for arguments in ((1.0, -1, 4), (1.0, 1, -4)):
        with pytest.raises(ValueError, match="warmup: got"):
            warmup(*arguments)


def test_polynomial_decay():
    assert [polynomial_decay(8.0, step, 4) for step in range(6)] == [8.0, 4.5, 2.0, 0.5, 0.0, 0.0]
    assert polynomial_decay(8.0, 1, 4, power=1) == 6.0
    for arguments in ((1.0, -1, 4), (1.0, 1, 0), (1.0, 1, 4, 0)):
        with pytest.raises(ValueError, match="polynomial_decay: got"):
            polynomial_decay(*arguments)
