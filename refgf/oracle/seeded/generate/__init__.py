"""Generators of the golden cases. Each asserts that its case exercises what `why` claims."""

import refgf.oracle.definitions  # noqa: F401  makes all records
from refgf.oracle.spec.statement import golden_cases

__all__ = ["golden_cases"]
