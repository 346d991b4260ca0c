"""Groups of consecutive gradients from the number of gradients in each."""

from collections.abc import Sequence
from itertools import accumulate


def groups_of(counts: Sequence[int]) -> list[range]:
    """[2, 1] -> [range(0, 2), range(2, 3)]"""
    return [range(end - count, end) for count, end in zip(counts, accumulate(counts))]
