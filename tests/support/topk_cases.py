"""Data that the tests of top-k share, and the definition of the choice."""

import numpy as np

FAMILIES = {
    "normal": lambda random, n: random.standard_normal(n),
    "heavy tail": lambda random, n: random.standard_normal(n) ** 5,
    "many zeros": lambda random, n: random.standard_normal(n) * (random.random(n) < 0.2),
    "ties": lambda random, n: random.choice([-2.0, -1.0, 0.0, 1.0, 2.0], n),
    "constant": lambda random, n: np.full(n, -3.0),
    "zeros": lambda random, n: np.zeros(n),
    "one giant": lambda random, n: np.where(
        np.arange(n) == n // 2, 1e30, random.standard_normal(n)
    ),
}


def data(family, n, seed=0, dtype=np.float32):
    return FAMILIES[family](np.random.default_rng(seed), n).astype(dtype)
