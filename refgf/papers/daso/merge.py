"""A late sum is merged with the present parameters: the form `paper`, and that of Heat's code.

Both have the same weights and work in place, block by block. They round in another order.
"""

from refgf.device import Array, array_module
from refgf.nn.workspace import cut

BLOCK_ELEMENTS = 131_072  # a block stays in the cache


def merge(w: Array, total: Array, nodes: int, waited: int) -> None:
    """w <- (2S w + total) / (2S + m), in place; every operation is rounded.

    nodes: m. waited: S in batches; for S = 0 w weighs 1.
    """
    own = w.dtype.type(2 * waited if waited else 1)
    for block in cut(slice(0, w.size), BLOCK_ELEMENTS):
        part = w[block]
        part *= own
        array_module(part).add(part, total[block], out=part)
        part /= own + w.dtype.type(nodes)


def heat_merge(w: Array, total: Array, nodes: int, waited: int) -> None:
    """w <- w (2S / (2S + m)) + total / (2S + m), in place; the factor is formed in float64."""
    own = 2 * waited if waited else 1
    factor, weights = w.dtype.type(own / (own + nodes)), w.dtype.type(own + nodes)
    for block in cut(slice(0, w.size), BLOCK_ELEMENTS):
        part = w[block]
        part *= factor
        part += total[block] / weights
