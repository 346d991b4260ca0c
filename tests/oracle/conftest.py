"""What many tests of the oracle share, because it takes seconds: golden cases, ranks of a step."""

import pytest

from refgf.oracle.step.ranks import Ranks
from tests.support.golden import cases_of


@pytest.fixture(autouse=True)
def golden_cases_from_memory(monkeypatch):
    """Commands that a test runs in its own process do not read them again."""
    monkeypatch.setattr("refgf.oracle.__main__.load_folder", cases_of)


@pytest.fixture(scope="session")
def two():
    """Two ranks and one alone, which train the steps of all tests one after the other."""
    with Ranks(2, 120.0) as running:
        yield running
