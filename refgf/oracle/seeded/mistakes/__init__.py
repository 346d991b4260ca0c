"""Seeded mistakes, of the kind seen in practice: each is a wrong variant of one definition.

`verify` names those that give exactly the bits of a wrong result. A test proves that a golden case
catches every one. A variant has the signature of the definition that it replaces.
"""

import refgf.oracle.definitions  # noqa: F401  makes all records
from refgf.oracle.spec.statement import MISTAKES, Mistake

__all__ = ["MISTAKES", "Mistake"]
