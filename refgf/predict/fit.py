"""What measured times say: alpha and beta with uncertainties, curves, shared cores.

Message times span five decades, and their noise grows with them. The fit therefore minimises the
squares of the *relative* errors: points of 1 KiB determine alpha, points of 64 MiB determine beta.
Uncertainties are one standard deviation, from the scatter of the points. They do not cover what the
model leaves out (caches, rendezvous messages), so look at `largest_error` too.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, isfinite, sqrt

from refgf.predict.cost import Line, Link


@dataclass(frozen=True)
class Fit:
    """Coefficients, their standard errors, and the largest relative error of a point."""

    a_s: float
    b_s_per_byte: float
    a_error_s: float
    b_error_s_per_byte: float
    largest_error: float
    points: int

    @property
    def line(self) -> Line:
        return Line(self.a_s, self.b_s_per_byte)

    @property
    def link(self) -> Link:
        return Link(self.a_s, self.b_s_per_byte)

    def __str__(self) -> str:
        return (
            f"{1e6 * self.a_s:.2f} +- {1e6 * self.a_error_s:.2f} us, "
            f"{1e9 * self.b_s_per_byte:.4f} +- {1e9 * self.b_error_s_per_byte:.4f} ns/byte "
            f"({self.points} points, largest error {100 * self.largest_error:.0f} %)"
        )


def fit_line(points: Iterable[tuple[float, float]]) -> Fit:
    """T = a + b bytes through [(bytes, seconds)]; neither a nor b is negative.

    The points are one-way ping-pong times (a = alpha, b = beta), or allreduces at one p.
    """
    points = list(points)
    for nbytes, seconds in points:
        if not (isfinite(nbytes) and isfinite(seconds) and seconds > 0 and nbytes >= 0):
            raise ValueError(
                f"fit_line: got {seconds} s for {nbytes} bytes; wanted finite numbers, a time > 0 "
                "and bytes >= 0; next: measure again"
            )
    scaled = [(1 / t, m / t) for m, t in points]  # each equation divided by its time: x a + y b = 1
    xx, xy, yy = [sum(p[i] * p[j] for p in scaled) for i, j in [(0, 0), (0, 1), (1, 1)]]
    x1, y1 = sum(x for x, _ in scaled), sum(y for _, y in scaled)
    determinant = xx * yy - xy * xy
    if len(points) < 2 or determinant <= 1e-12 * xx * yy:
        raise ValueError(
            f"fit_line: got {len(points)} points that do not separate latency from bytes; wanted "
            "at least two different message sizes; next: measure small and large messages"
        )
    a, b = (x1 * yy - y1 * xy) / determinant, (y1 * xx - x1 * xy) / determinant
    if a < 0:
        a, b = 0.0, y1 / yy
    elif b < 0:
        a, b = x1 / xx, 0.0
    errors = [abs(x * a + y * b - 1) for x, y in scaled]
    variance = sum(e**2 for e in errors) / (len(points) - 2) if len(points) > 2 else inf
    a_error_s, b_error_s = sqrt(variance * yy / determinant), sqrt(variance * xx / determinant)
    return Fit(a, b, a_error_s, b_error_s, max(errors), len(points))


@dataclass(frozen=True)
class Curve:
    """T(bytes) through measured points ((bytes, seconds), ...), linear between two points.

    Below the first point T is constant. Beyond the last it keeps the last slope, but never falls.
    """

    points: Sequence[tuple[float, float]]

    def __post_init__(self) -> None:
        rising = all(a < b for (a, _), (b, _) in pairwise(self.points))
        if len(self.points) < 2 or not rising or not all(0 <= s < inf for _, s in self.points):
            wanted = "wanted at least two, rising in bytes, each with seconds >= 0"
            raise ValueError(f"Curve: got points {self.points}; {wanted}; next: measure again")

    def __call__(self, nbytes: float) -> float:
        if nbytes <= self.points[0][0]:
            return self.points[0][1]
        segments = (pair for pair in pairwise(self.points) if nbytes <= pair[1][0])
        (low, low_s), (high, high_s) = next(segments, self.points[-2:])
        slope = (high_s - low_s) / (high - low)
        if nbytes > high:
            return high_s + max(0.0, slope) * (nbytes - high)
        return low_s + slope * (nbytes - low)


def kept_share(compute_s: float, call_s: float, both_s: float) -> float:
    """`overlap` of `predict` from three measured times: 1 - (both_s - compute_s) / call_s.

    compute_s and call_s: measured separately; both_s: from their common start to the later end.
    """
    if not 0 < call_s <= compute_s:
        wanted = "wanted a computation at least as long as the call; next: measure a longer one"
        raise ValueError(f"kept_share: got {compute_s} s, and a call of {call_s} s; {wanted}")
    return min(1.0, max(0.0, 1 - (both_s - compute_s) / call_s))


def bus_bandwidth(size: int, nbytes: float, seconds: float) -> float:
    """Bytes per second on every link of a ring allreduce (nccl-tests' busbw): 2 (p-1)/p n / T."""
    return 2 * (size - 1) / size * nbytes / seconds
