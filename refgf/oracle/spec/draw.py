"""What cases are drawn with: random numbers, shapes, sizes, nodes; bounds that are shares."""

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

TYPES = (  # of arrays, and on the wire
    *[("float32", None)] * 3,
    *(("float32", "float16"), ("float32", "bfloat16"), ("float64", None), ("float16", None)),
    *(("float64", "float32"), ("float64", "float16")),
)


def random_source(name: str, seed: int = 0) -> np.random.Generator:
    """The same numbers for the same case, whichever others are generated."""
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def pick(rng: np.random.Generator, *values: Any) -> Any:
    """One of these, of its own type."""
    return values[rng.integers(len(values))]


Drawn = tuple[dict[str, Any], dict[str, Any]]  # arguments; inputs without "in."


@dataclass(frozen=True)
class Draw:
    """What a function's fresh cases are drawn with: random numbers, and shapes of the kind."""

    rng: np.random.Generator
    p: int
    n: int

    def integer(self, low: int, high: int) -> int:
        """From low to high, both included."""
        return int(self.rng.integers(low, high + 1))

    def normal(self, *shape: int, dtype: str = "float32") -> np.ndarray:
        return self.rng.standard_normal(shape).astype(dtype)

    def floats(self, count: int) -> np.ndarray:
        """Any float32 but NaN near a tie of bfloat16, and numbers near a tie of float16."""
        bits = self.rng.integers(0, 1 << 32, count, np.uint32)
        bits = bits & 0xFFFF0000 | pick(self.rng, 0x8000, 0x8001, 0x7FFF)
        x = bits.view(np.float32)
        x = np.where(np.isnan(x), np.float32(1.5), x)
        halves = self.normal(count) * np.float32(2.0) ** self.rng.integers(-24, 15, count)
        bits = halves.astype(np.float32).view(np.uint32) & 0xFFFFE000
        bits |= np.uint32(pick(self.rng, 0x1000, 0x1001, 0x0FFF))
        return np.where(self.rng.random(count) < 0.5, x, bits.view(np.float32))


def shape(rng: np.random.Generator, kind: int) -> tuple[int, int]:
    """(p, n) of the kind."""
    if kind == 0:
        p = int(rng.integers(20, 40))
        return p, int(rng.integers(1001, 2000))
    if kind == 1:
        p = pick(rng, 1, 3, 5, 7)
        return p, pick(rng, 0, int(rng.integers(0, p)))
    p = int(rng.integers(2, 10))
    return p, p * int(rng.integers(1, 30)) + int(rng.integers(1, p))


def some_nodes(rng: np.random.Generator, p: int, equal: bool = False) -> list[list[int]]:
    """The p ranks on some nodes, dealt at random; equal: as many on each."""
    ranks = rng.permutation(p).tolist()
    if equal:
        size = pick(rng, *[k for k in range(1, p + 1) if p % k == 0])
        return [ranks[i : i + size] for i in range(0, p, size)]
    cuts = sorted({0, p, *rng.integers(1, p + 1, 3).tolist()})
    return [ranks[i:j] for i, j in zip(cuts, cuts[1:])]


def some_sizes(rng: np.random.Generator, n: int) -> np.ndarray:
    """Elements of a few tensors, n in all; some may be empty."""
    cuts = np.sort(rng.integers(0, n + 1, 5))
    return np.diff([0, *cuts, n])


def groups(rng: np.random.Generator, tensors: int) -> list[int]:
    """Tensors in each group of neighbours."""
    cuts = sorted({0, tensors, *rng.integers(1, tensors + 1, 2).tolist()})
    return [j - i for i, j in zip(cuts, cuts[1:])]


def relative(values: np.ndarray, share: float) -> np.ndarray:
    """A bound for results that depend on norms, whose order of summation is open."""
    return share * np.abs(values).max() * np.ones(values.shape)


def wide_integers(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """float32 whose squares and sums are exact in float64, in any order, but not in float32."""
    return rng.integers(-(2**16), 2**16, shape).astype(np.float32)
