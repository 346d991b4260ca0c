"""The pieces of p ranks put together, and the stages of a step compared with the reference."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from refgf.oracle.spec.sums import UNIT_ROUNDOFF

BUFFER_ROUNDINGS = 64
Arrays = dict[str, np.ndarray]
LEFT = 0.2  # a cause leaves at most this share of a difference unexplained
Pieces = list[tuple[list[int], np.ndarray] | None]  # one per rank


@dataclass
class Whole:
    """A tensor of p ranks. copies: one per rank, or the one that their shards make up."""

    copies: list[np.ndarray]
    shards: list[tuple[slice, ...]]  # where each rank's piece lies; one that is all: a copy

    @property
    def sharded(self) -> bool:
        return len(self.copies) < len(self.shards)

    @property
    def agree(self) -> bool:
        first = self.copies[0]
        return all(np.array_equal(first, other, equal_nan=True) for other in self.copies[1:])

    @property
    def value(self) -> np.ndarray:
        return self.copies[0]


def whole(pieces: Pieces, shape: list[int]) -> Whole:
    """A rank without a gradient has zeros."""
    zero = [0] * len(shape), np.zeros(shape, np.float32)
    found = [piece or zero for piece in pieces]
    places = [
        tuple(slice(start, start + length) for start, length in zip(offset, array.shape))
        for offset, array in found
    ]
    arrays = [np.asarray(array, np.float64) for _, array in found]
    if all(list(array.shape) == shape for array in arrays):
        return Whole(arrays, places)
    total = np.zeros(shape)
    for place, array in zip(places, arrays):
        total[place] = array
    return Whole([total], places)


def stage(ranks: list[dict], step: int, name: str) -> dict[str, Whole]:
    """{tensor: Whole} of one stage of one step, for the tensors that any rank has in it."""
    held = [rank["steps"][step][name] or {} for rank in ranks]
    if name == "clip" and any(held):  # a rank that does not clip: what its optimizer gets
        held = [own or rank["steps"][step]["used"] for own, rank in zip(held, ranks)]
    if name == "used":  # a tensor that other ranks' optimizers have: what its owner gets
        held = [
            own | _of_owners(held, rank["steps"][step]["optimized"], own)
            for own, rank in zip(held, ranks)
        ]
    names = [tensor for tensor in ranks[0]["shapes"] if any(tensor in own for own in held)]
    shapes = ranks[0]["shapes"]
    return {tensor: whole([own.get(tensor) for own in held], shapes[tensor]) for tensor in names}


def _of_owners(held: list[dict], optimized: list[str], own: dict) -> dict:
    return {
        tensor: piece
        for other in held
        for tensor, piece in other.items()
        if tensor not in own and tensor not in optimized
    }


@dataclass
class JudgedStep:
    """One step: what p ranks had and what it is judged by. All arrays are float64."""

    number: int
    size: int
    stages: dict[str, dict[str, Whole]]
    exact: Arrays  # the gradient of the global batch
    bounds: dict[str, float]  # how far rounding may move each element of it
    factors: dict[str, float]  # how far from 1 rounding may move its factor
    replay: dict[str, Arrays]  # stages on one rank, from p ranks' numbers
    local: list[Arrays]  # own gradients of each rank, and of each backward
    labels: list[str]  # what the entries of local are
    unit: float
    settings: dict = field(default_factory=dict)  # scale, max_norm, optimizer, counts, calls, one
    previous: "JudgedStep | None" = None
    samples: Callable[[list[str]], dict] | None = None  # gradients of each sample of these tensors
    free: Callable[[], list[Arrays]] | None = None  # parameters after it, of one rank's gradients

    def of_one(self, tensor: str) -> np.ndarray | None:
        """What one rank's optimizer gets, or its clipping where p ranks clip, too."""
        used = self.replay["used"].get(tensor)
        return self.replay["clip"].get(tensor, used) if tensor in self.stages["clip"] else used

    def setting(self, tensor: str, key: str) -> float:
        """Of the optimizer that has the tensor on p ranks; 0 where it has none."""
        return self.settings["optimizer"].get(tensor, {}).get(key) or 0.0

    def is_exact(self, tensor: str, got: np.ndarray) -> bool:
        """Within the bounds of its elements and of its factor."""
        exact = self.exact[tensor]
        if not close(got, exact, self.bounds[tensor]):
            return False
        square = float((exact * exact).sum())
        return not square or abs(float((got * exact).sum()) / square - 1) <= self.factors[tensor]


def alike(one: np.ndarray, other: np.ndarray) -> bool:
    """Buffers of two ranks: the same but for roundings of float32; integers exactly."""
    if one.shape != other.shape or one.dtype.kind != "f":
        return one.shape == other.shape and np.array_equal(one, other)
    largest = np.abs(one[np.isfinite(one)]).max(initial=0.0)
    with np.errstate(invalid="ignore"):
        near = np.abs(one - other) <= BUFFER_ROUNDINGS * UNIT_ROUNDOFF["float32"] * largest
    return bool((near | (one == other) | (np.isnan(one) & np.isnan(other))).all())


def close(got: np.ndarray, wanted: np.ndarray, bound: np.ndarray | float) -> bool:
    """Within the bound at every element. NaN and infinity are not."""
    with np.errstate(invalid="ignore"):
        return bool((np.abs(got - wanted) <= bound).all())


def same(got: np.ndarray, wanted: np.ndarray, bound: np.ndarray) -> bool:
    """Within the bound at every element, or the same infinity, or both NaN."""
    equal = (got == wanted) | (np.isnan(got) & np.isnan(wanted))
    return close(*(np.where(equal, 0.0, array) for array in (got, wanted, bound)))


def explains(got: np.ndarray, wanted: np.ndarray, right: np.ndarray) -> bool:
    """Of the difference between got and right, `wanted` leaves only a small share."""
    return bool(np.linalg.norm(got - wanted) <= LEFT * np.linalg.norm(got - right))


def multiple(got: np.ndarray, of: np.ndarray, bound: float) -> float | None:
    """k if got is k times `of`, within the bound, which grows with k."""
    square = float((of * of).sum())
    if not np.isfinite(got).all() or square == 0:
        return None
    k = float((got * of).sum()) / square
    near = close(got, k * of, bound * max(1.0, abs(k)))
    return k if near and explains(got, k * of, 0 * of) else None
