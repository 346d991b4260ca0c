"""A plan's table of ranks takes most of its time. All of it: tests/approval."""

import pytest

from refgf.plan import report


@pytest.fixture
def short_table(monkeypatch):
    """One rank and two nodes."""
    monkeypatch.setattr(report, "sizes", lambda ranks_per_node: [1, 2 * ranks_per_node])
