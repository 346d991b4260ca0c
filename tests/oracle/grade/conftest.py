"""Fixtures for the tests of marks."""

from functools import partial

import pytest

from refgf.oracle.grade import marking, sandbox


@pytest.fixture
def impatient(monkeypatch):
    """A request ends after 3 s, not 5, whatever else computes."""
    monkeypatch.setattr(sandbox, "busy", lambda: 1.0)
    monkeypatch.setattr(marking, "Sandbox", partial(sandbox.Sandbox, seconds=3.0))
