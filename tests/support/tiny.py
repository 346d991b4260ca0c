"""A stand-in for a network: gradients that a test prescribes, in tensors of awkward sizes."""

from collections import namedtuple

import numpy as np

from refgf.nn.workspace import Workspace

Spec = namedtuple("Spec", "name shape decay size")
SHAPES = [
    ("b3", (3,), False),
    ("w3", (5, 4), True),
    ("empty", (0,), True),
    ("b2", (1,), False),
    ("w2", (7, 6), True),
    ("gamma", (2,), False),
    ("w1", (13,), True),
]
SPECS = [Spec(name, shape, decay, int(np.prod(shape))) for name, shape, decay in SHAPES]
N = sum(spec.size for spec in SPECS)  # 81
BATCH = 8


class Prescribed:
    """Images (N, n) are the samples' gradients: backward writes their sum / global_batch.

    Bits do not depend on who has which sample when all numbers are dyadic and the batch is a power
    of two.
    """

    def __init__(self, dtype=np.float32, initial=None):
        self.tensors, self.dtype, self.xp = SPECS, np.dtype(dtype), np
        self.workspace = Workspace()
        self.initial = np.zeros(N, dtype) if initial is None else initial
        self.running, self.accepted, self.dropout_rng = [np.zeros(3)], 0, np.random.default_rng(0)

    def bind(self, parameters, gradients):
        self.parameters, self.gradients = parameters, gradients

    def initialize(self, seed):
        scatter(self.initial, self.parameters)

    def loss(self, images, labels, global_batch):
        self.statistics = images[:, :3].sum(axis=0)
        mean = images.sum(axis=0) / global_batch  # (N, n) -> (n,)
        self.logits_gradient = mean.astype(self.dtype)
        return 0.0

    def backward(self, on_ready):
        start = 0
        for i, array in enumerate(self.gradients):
            array[...] = self.logits_gradient[start : start + array.size].reshape(array.shape)
            start += array.size
            on_ready(i)

    def accept(self):
        self.accepted += 1
        self.running[0] += self.statistics


def scatter(flat, arrays):
    start = 0
    for array in arrays:
        array[...] = flat[start : start + array.size].reshape(array.shape)
        start += array.size


def samples(step, dyadic=True):
    """The gradients of a whole batch, (BATCH, n): of few bits, so sums are exact, or not."""
    rng = np.random.default_rng([11, step])
    if dyadic:
        return rng.integers(-8, 9, (BATCH, N)).astype(np.float32)
    return (rng.standard_normal((BATCH, N)) * rng.choice([1, 300.0], (BATCH, N))).astype(np.float32)
