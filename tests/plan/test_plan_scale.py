"""docs/scale.md says what today's predictor computes."""

import re

import pytest
import scale


def test_the_page_is_not_stale():
    text = scale.PAGE.read_text()
    assert scale.page() == text, "next: python tests/scale.py"
    header = re.findall(r"^\| (\w+)[^\n]*\n\| ---", text, flags=re.M)
    assert len(header) == 5 and set(header) == {"predicted"}


def test_the_slowest_of_many_ranks(monkeypatch):
    """The mean maximum of 10,000 standard normal numbers is 3.852."""
    assert scale.slowest() == pytest.approx(1 + 3.852 * scale.SPREAD, rel=1e-3)
