"""Seeded mistakes, of the kind seen in practice: each is a wrong variant of one definition.

`verify` names those that give exactly the bits of a wrong result. A test proves that a golden case
catches every one. A variant has the signature of the definition that it replaces.
"""

from refgf.oracle.seeded.mistakes import (
    daso,
    daso_heat,
    edges,
    network,
    resnet50,
    roundings,
    topk,
)
from refgf.oracle.spec.statement import MISTAKES, Mistake

__all__ = [
    "MISTAKES",
    "Mistake",
    "daso",
    "daso_heat",
    "edges",
    "network",
    "resnet50",
    "roundings",
    "topk",
]
