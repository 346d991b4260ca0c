import math

import numpy as np
import pytest

from refgf.nn.loss import softmax_cross_entropy


def test_no_images():
    loss, gradient = softmax_cross_entropy(np.empty((0, 7)), np.empty(0, int), 5)
    assert isinstance(loss, float)
    assert loss == 0 and gradient.shape == (0, 7)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_of_very_different_size(dtype):
    """A maximum taken over the whole batch would make the small row's sum zero."""
    logits = np.array([[0, 1, 2], [5000, 5001, 5002], [-5000, -5001, -5002]], dtype)
    loss, gradient = softmax_cross_entropy(logits, np.array([2, 2, 0]), 3)
    assert gradient.dtype == dtype
    assert abs(loss - math.log(1 + math.exp(-1) + math.exp(-2))) < 4 * np.finfo(dtype).eps
    np.testing.assert_allclose(gradient.sum(axis=1), 0, atol=3 * np.finfo(dtype).eps)
