"""Alpha and beta from measured times, with their uncertainties.

Times of messages span five decades, and their noise grows with them. So every fit here minimises the squares of the
*relative* errors: points of 1 KiB say what alpha is, points of 64 MiB what beta is, and neither drowns the other.

    fit_line     T = a + b bytes                     ping-pong (a = alpha, b = beta), or one allreduce at one p
    fit_ring     T = 2(p-1) alpha + 2(p-1)/p bytes beta (+ gamma, known)       ring allreduces at several p

Errors are one standard deviation, from the scatter of the points around the fit. They know nothing of what the model
leaves out (a switch from eager to rendezvous messages, a cache that ends), so look at `worst` too.
"""

from dataclasses import dataclass
from math import inf, isfinite, sqrt

from refgf.predict.cost import Line, Link


@dataclass(frozen=True)
class Fit:
    """first and second coefficient of a fit, their standard errors, and the largest relative miss of a point."""

    a_s: float
    b_s_per_byte: float
    a_error_s: float
    b_error_s_per_byte: float
    worst: float
    points: int

    @property
    def line(self):
        return Line(self.a_s, self.b_s_per_byte)

    @property
    def link(self):
        return Link(self.a_s, self.b_s_per_byte)

    def __str__(self):
        return (
            f"{1e6 * self.a_s:.2f} +- {1e6 * self.a_error_s:.2f} us, "
            f"{1e9 * self.b_s_per_byte:.4f} +- {1e9 * self.b_error_s_per_byte:.4f} ns/byte "
            f"({self.points} points, worst {100 * self.worst:.0f} %)"
        )


def fit_line(points):
    """Fit of T(bytes) = a + b bytes to [(bytes, seconds)]: ping-pong times one way, or allreduces at one p."""
    return solve([(1.0, nbytes, seconds) for nbytes, seconds in points], "fit_line", "message sizes")


def fit_ring(points, gamma_s_per_byte=0.0):
    """alpha and beta of the slowest link from ring allreduces [(size, bytes, seconds)], even slices.

    A ring at one p cannot tell gamma from beta: with gamma left at 0 the beta found is beta + gamma / 2.
    """
    rows = []
    for size, nbytes, seconds in points:
        if size < 2:
            raise ValueError(f"fit_ring: got size {size}, wanted runs on 2 ranks or more: one rank sends nothing")
        share = (size - 1) / size * nbytes
        rows.append((2.0 * (size - 1), 2 * share, seconds - gamma_s_per_byte * share))
    return solve(rows, "fit_ring", "pairs of size and bytes")


def solve(rows, operation, different):
    """Least squares of relative errors for t = a x + b y over [(x, y, t)], a and b not negative."""
    for row in rows:
        if not all(isfinite(value) for value in row) or row[2] <= 0 or row[1] < 0:
            raise ValueError(f"{operation}: got {row}, wanted finite numbers, a time > 0 and bytes >= 0: measure again")
    scaled = [(x / t, y / t) for x, y, t in rows]  # each equation divided by its time: x/t a + y/t b = 1
    xx, xy, yy = [sum(p[i] * p[j] for p in scaled) for i, j in [(0, 0), (0, 1), (1, 1)]]
    x1, y1 = sum(x for x, _ in scaled), sum(y for _, y in scaled)
    determinant = xx * yy - xy * xy
    if len(rows) < 2 or determinant <= 1e-12 * xx * yy:
        raise ValueError(
            f"{operation}: got {len(rows)} points that do not tell the start-up from the bytes, wanted at least two "
            f"different {different}, small and large"
        )
    a, b = (x1 * yy - y1 * xy) / determinant, (y1 * xx - x1 * xy) / determinant
    if a < 0:
        a, b = 0.0, y1 / yy
    elif b < 0:
        a, b = x1 / xx, 0.0
    misses = [abs(x * a + y * b - 1) for x, y in scaled]
    freedom = len(rows) - 2
    variance = sum(miss**2 for miss in misses) / freedom if freedom else inf
    return Fit(a, b, sqrt(variance * yy / determinant), sqrt(variance * xx / determinant), max(misses), len(rows))
