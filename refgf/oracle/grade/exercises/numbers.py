"""Numbers of so few digits that a sentence shows all of them."""

import numpy as np


def tenths(random: np.random.Generator, *shape: int, dtype: type = np.float32) -> np.ndarray:
    """Numbers of one decimal, from 0.1 to 1.9, of either sign. -> (*shape)"""
    return (_signed(random, 20, shape) / 10).astype(dtype)


def quarters(random: np.random.Generator, *shape: int) -> np.ndarray:
    """Quarters from 0.25 to 4.75, of either sign. -> (*shape), float64

    Their sums and products have no rounding: they are the same in any order, 0 included.
    """
    return _signed(random, 20, shape) / 4


def _signed(random: np.random.Generator, stop: int, shape: tuple[int, ...]) -> np.ndarray:
    """Whole numbers from 1 to stop - 1, of either sign."""
    return random.integers(1, stop, shape) * random.choice([-1, 1], shape)
