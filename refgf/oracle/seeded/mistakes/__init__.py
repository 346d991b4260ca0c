"""Mistakes of the kind seen in the wild, each a wrong variant of one definition.

`verify` names those that give exactly the bits of a wrong result; a test proves that every one of them is caught.
"""

from refgf.oracle.seeded.mistakes import (
           cache,
           daso,
           hierarchy,
           large_batch,
           lazy,
           network,
           resnet50,
           sparse,
           sums,
           topk,
           updates,
)
from refgf.oracle.seeded.mistakes.registry import MISTAKES, Mistake

__all__ = ["MISTAKES", "Mistake", "cache", "daso", "hierarchy", "large_batch", "lazy", "network", "resnet50",
           "sparse", "sums", "topk", "updates"]  # fmt: skip
