"""Commands that a test runs in its own process do not read the golden cases again each time."""

import pytest

from tests.support.golden import cases_of


@pytest.fixture(autouse=True)
def golden_cases_from_memory(monkeypatch):
    monkeypatch.setattr("refgf.oracle.__main__.load_folder", cases_of)
