"""Rates and times as text."""

import pytest

from refgf.machine.units import format_rate, format_time, parse_rate, parse_time

RATES = {  # text: bits per second
    "1gbit": 10**9,
    "2.5gbit": 2_500_000_000,
    "200mbit": 200_000_000,
    "100 Mbit": 10**8,
    "1gbit/s": 10**9,
    "1e3kbit": 10**6,
    "8bit": 8,
    ".5gbit": 500_000_000,
}
TIMES = {"50us": 5e-5, "1.5ms": 1.5e-3, "0s": 0.0, "2 S": 2.0, "700ns": 7e-7}
NO_RATES = [
    "fast",
    "",
    "1",
    "gbit",
    "-1gbit",
    "0gbit",
    "1gb",
    "1gbps",
    "1us",
    "inf",
    "nan",
    "1e999gbit",
    "1,5gbit",
    "0.5bit",
    "1e300gbit",
    "1e9999999999gbit",
]
NO_TIMES = ["soon", "", "50", "us", "-1us", "1gbit", "5usec", "nans", "infs"]
NO_TIMES += ["3601s", "1e300s", "1e-9999999999s", "1e99999999999999999999s", "9" * 5000 + "s"]


@pytest.mark.parametrize("text", RATES)
def test_rate(text):
    assert parse_rate(text) * 8 == pytest.approx(RATES[text], rel=1e-15)


@pytest.mark.parametrize("text", TIMES)
def test_time(text):
    assert parse_time(text) == pytest.approx(TIMES[text], rel=1e-15)


@pytest.mark.parametrize("text", NO_RATES)
def test_what_is_no_rate_is_refused_with_an_example(text):
    with pytest.raises(ValueError, match=r"rate: got .*; wanted .*gbit.*; next: try 1gbit"):
        parse_rate(text)


@pytest.mark.parametrize("text", NO_TIMES)
def test_what_is_no_time_is_refused_with_an_example(text):
    with pytest.raises(ValueError, match=r"time: got .*; wanted .*us.*; next: try 50us"):
        parse_time(text)


def test_formats_survive_the_way_back():
    for bits in (1, 999, 1000, 123_456_000, 999_999_999, 10**9, 56 * 10**9, 10**14):
        # four digits are printed
        assert parse_rate(format_rate(bits / 8)) * 8 == pytest.approx(bits, rel=1e-3)
    for seconds in (1e-9, 9.99e-7, 1e-6, 0.02, 1.0, 90.0):
        assert parse_time(format_time(seconds)) == pytest.approx(seconds, rel=1e-3)
