"""Fits of made-up measurements whose alpha and beta are known."""

import random
from math import inf

import numpy as np
import pytest

from refgf.predict.fit import fit_line

SIZES = [2**k for k in range(10, 27)]


def test_exact_points():
    fit = fit_line([(n, 5e-6 + 1e-10 * n) for n in SIZES])
    assert fit.a_s == pytest.approx(5e-6, rel=1e-9) and fit.b_s_per_byte == pytest.approx(
        1e-10, rel=1e-9
    )
    assert fit.largest_error < 1e-12 and fit.a_error_s < 1e-15
    assert fit.line(1000) == fit.link.message_s(1000) == pytest.approx(5.1e-6)


def noisy(rng, noise):
    return [(n, (5e-6 + 1e-10 * n) * (1 + rng.gauss(0, noise))) for n in SIZES for _ in range(3)]


def test_uncertainties_are_honest():
    """Of 200 fits of noisy points about 95 % must lie within two standard errors.

    88 % is six sigma below.
    """
    rng = random.Random(1)
    inside_a = inside_b = 0
    for _ in range(200):
        fit = fit_line(noisy(rng, 0.05))
        inside_a += abs(fit.a_s - 5e-6) <= 2 * fit.a_error_s
        inside_b += abs(fit.b_s_per_byte - 1e-10) <= 2 * fit.b_error_s_per_byte
    assert inside_a >= 176 and inside_b >= 176


def test_errors_of_three_points():
    """The covariance of the weighted least squares, with one degree of freedom."""
    points = [(0, 1.0), (10, 2.0), (20, 3.3)]
    rows = np.array([[1 / t, m / t] for m, t in points])
    _, (square,), _, _ = np.linalg.lstsq(rows, np.ones(3), rcond=None)
    wanted = np.sqrt(np.diag(square * np.linalg.inv(rows.T @ rows)))
    fit = fit_line(points)
    assert (fit.a_error_s, fit.b_error_s_per_byte) == pytest.approx(wanted, rel=1e-9)


def test_two_points_have_no_uncertainty_to_show():
    fit = fit_line([(0, 1.0), (10, 2.0)])
    assert (fit.a_s, fit.b_s_per_byte) == pytest.approx((1.0, 0.1))
    assert fit.a_error_s == inf


def test_coefficients_are_never_negative():
    assert fit_line([(100, 1.0), (1000, 12.0)]).a_s == 0
    assert fit_line([(1, 2.0), (1000, 1.0)]).b_s_per_byte == 0


@pytest.mark.parametrize(
    "points, reason",
    [
        ([], "got 0 points"),
        ([(8, 1.0)], "got 1 points"),
        ([(8, 1.0), (8, 1.1), (8, 0.9)], "two different message sizes"),
        ([(8, 1.0), (16, 0.0)], "a time > 0"),
        ([(8, 1.0), (16, float("nan"))], "finite"),
        ([(-8, 1.0), (16, 1.0)], "bytes >= 0"),
    ],
)
def test_nonsense_is_refused(points, reason):
    with pytest.raises(ValueError, match=reason):
        fit_line(points)


def test_text():
    assert str(fit_line([(n, 5e-6 + 1e-10 * n) for n in SIZES])).startswith(
        "5.00 +- 0.00 us, 0.1000 +- 0.0000 ns/byte"
    )
