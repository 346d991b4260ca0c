"""Which parameters of a test are enough at first."""

from collections.abc import Iterable
from typing import Any

import pytest


def long_but(values: Iterable[Any], *short: Any) -> list:
    """For parametrize: all but these run in the long tests only."""
    return [
        pytest.param(value, marks=() if value in short else pytest.mark.long) for value in values
    ]
