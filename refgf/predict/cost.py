"""The time of one collective in closed form.

    alpha   seconds per message     beta   seconds per byte sent     gamma   seconds per byte added

Each form is the time at which the slowest rank finishes when all ranks start together. Every link
carries both directions at full speed, and no two messages share a link. Forms that take `elements`
are exact for slices of unequal length: they equal the time of the schedules in refgf.comm.
"""

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True)
class Link:
    """A message of m bytes takes alpha_s + beta_s_per_byte m; adding m bytes gamma_s_per_byte m."""

    alpha_s: float
    beta_s_per_byte: float
    gamma_s_per_byte: float = 0.0

    def __post_init__(self) -> None:
        if not all(0 <= value < inf for value in vars(self).values()):
            wanted = "wanted a finite number of seconds >= 0; next: measure again"
            raise ValueError(f"Link: got {self}; {wanted}")

    def message_s(self, nbytes: float) -> float:
        return self.alpha_s + self.beta_s_per_byte * nbytes

    def sum_s(self, nbytes: float) -> float:
        return self.gamma_s_per_byte * nbytes


@dataclass(frozen=True)
class Line:
    """T(bytes) = a_s + b_s_per_byte bytes: a whole collective."""

    a_s: float
    b_s_per_byte: float

    def __call__(self, nbytes: float) -> float:
        return self.a_s + self.b_s_per_byte * nbytes


def largest_slice(elements: int, size: int) -> int:
    """Elements of the longest of `size` slices."""
    return -(-elements // size)


def ring_allgather_s(size: int, elements: int, itemsize: int, link: Link) -> float:
    """p - 1 steps. In each step the largest slice is sent somewhere, and the ring waits for it."""
    return (size - 1) * link.message_s(itemsize * largest_slice(elements, size))


def ring_reduce_scatter_s(size: int, elements: int, itemsize: int, link: Link) -> float:
    """As `ring_allgather_s`, and every step adds the slice that it has received."""
    added_s = (size - 1) * link.sum_s(itemsize * largest_slice(elements, size))
    return ring_allgather_s(size, elements, itemsize, link) + added_s


def ring_allreduce_s(size: int, elements: int, itemsize: int, link: Link) -> float:
    """2 (p-1) (alpha + beta m) + (p-1) gamma m, m bytes in the largest slice; direct: the same."""
    reduce_scatter_s = ring_reduce_scatter_s(size, elements, itemsize, link)
    return reduce_scatter_s + ring_allgather_s(size, elements, itemsize, link)


def ring_line(size: int, link: Link) -> Line:
    """`ring_allreduce_s` as a + b bytes, for slices of equal length."""
    slope = (size - 1) / size * (2 * link.beta_s_per_byte + link.gamma_s_per_byte)
    return Line(2 * (size - 1) * link.alpha_s, slope)
