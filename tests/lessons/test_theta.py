"""Theta as lesson 03 takes it: bytes, or with the unit that its tables print."""

import argparse
import math

import pytest

from kit.words import threshold
from lab.lazy.picture import place
from lab.lazy.steps import FINE, theta_bytes


@pytest.mark.parametrize(
    "text, wanted",
    [("0", 0), ("1e6", 1e6), ("inf", math.inf), ("16MiB", 2**24), ("64 KiB", 2**16)],
)
def test_bytes_with_and_without_a_unit(text, wanted):
    assert theta_bytes(text) == wanted


@pytest.mark.parametrize("text", ["16MB", "MiB", "-1KiB", ""])
def test_other_units_are_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="wanted bytes >= 0"):
        theta_bytes(text)


@pytest.mark.parametrize(
    "theta, wanted",
    [
        (0, "0 B"),
        (2**16, "64 KiB"),
        (2**16 + 1, "65,537 bytes"),
        (1536, "1.5 KiB"),
        (math.inf, "inf"),
    ],
)
def test_thetas_a_byte_apart_have_different_names(theta, wanted):
    assert threshold(theta) == wanted


@pytest.mark.parametrize(
    "theta, between",
    [(0, (0, 0)), (4000, (0, 1)), (2**14, (1, 1)), (20_000, (1, 2)), (math.inf, (-1, -1))],
)
def test_a_theta_of_the_user_lies_between_its_ticks(theta, between):
    low, high = (i % len(FINE) for i in between)
    x = place(theta, list(FINE))
    assert x == low == high or low < x < high
    assert len(FINE) - 2 < place(2 * FINE[-2], list(FINE)) < len(FINE) - 1
