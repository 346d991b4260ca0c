"""Theta as lesson 03 takes it: bytes, or with the unit that its tables print."""

import argparse
import math

import pytest

from kit.words import threshold
from lab.lazy.steps import theta_bytes


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
