import numpy as np
import pytest

from refgf.nn.local_response import LocalResponseNorm
from tests.support.differences import assert_layer, workspace

SHAPE = (5, 4, 3, 7)  # images, height, width, channels
SPLITS = [(None, 1), (1, 1), (3, 1), (None, 2), (2, 3)]  # images_per_block, threads


def images(n=SHAPE[0]):
    """Mean 3, another deviation for each channel."""
    return 3 + np.random.default_rng(0).standard_normal((n, *SHAPE[1:])) * np.arange(1, 8)


def local_norm(split=(None, 1), **options):
    return LocalResponseNorm("norm", SHAPE[1:], workspace(*split), **options)


LOCAL = [
    dict(size=5, k=2.0, alpha=1e-4, beta=0.75),
    dict(size=3, k=1.0, alpha=0.3, beta=0.6),
    dict(size=1, k=1.0, alpha=0.5, beta=1.5),
    dict(size=99, k=2.0, alpha=0.2, beta=0.75),
]


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("options", LOCAL)
def test_local_response_norm_gradients(options, split):
    assert_layer(local_norm(split, **options), images())


def test_local_response_norm_of_nothing():
    assert_layer(local_norm(), images(0))


def test_an_even_window_has_no_middle():
    with pytest.raises(ValueError, match="odd"):
        local_norm(size=4)
