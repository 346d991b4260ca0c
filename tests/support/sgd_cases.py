"""Tensors, gradients and a run of an optimiser for the tests of optimisers."""

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Spec:
    name: str
    shape: tuple
    decay: bool


SPECS = [
    Spec("fc.bias", (7,), False),
    Spec("fc.weight", (5, 7), True),
    Spec("beta", (3,), False),
    Spec("gamma", (3,), False),
    Spec("conv.weight", (2, 2, 3, 3), True),
    Spec("scalar", (), True),
]
RATES = (0.1, 0.03, 0.007)
N = sum(math.prod(spec.shape) for spec in SPECS)


def data(seed, dtype, steps=3):
    rng = np.random.default_rng(seed)
    scales = np.float64(10) ** rng.integers(-6, 3, N)  # many exponents: every rounding shows
    return (rng.standard_normal(N) * scales).astype(dtype), [
        (rng.standard_normal(N) * scales).astype(dtype) for _ in range(steps)
    ]


def run(optimiser_class, w, gradients, rates, slices=None, **options):
    """(parameters, velocity) after one step for each rate."""
    optimiser = optimiser_class(SPECS, w.copy(), **options)
    for g, rate in zip(gradients, rates):
        optimiser.step(g, rate, slices)
    return optimiser.parameters, optimiser.velocity


def same_bits(a, b):
    return all(x.dtype == y.dtype and x.tobytes() == y.tobytes() for x, y in zip(a, b))
