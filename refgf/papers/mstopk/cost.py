"""What top-k's messages cost: allgathers of k values and k indices, which no rank can add up on the way.

k of n elements a rank, p ranks, or m nodes of g ranks with k of each slice; itemsize: bytes of a value. Choosing and adding up
are not in it: they are memory's time, not the links'.
"""

from refgf.predict.cost import ring_allgather_s, ring_reduce_scatter_s

INDEX_BYTES = 4


def gather_s(size, chosen, itemsize, link):
    """Two allgathers around the ring: p-1 steps of k values, p-1 of k indices. Grows with p, where a ring's sum does not."""
    return (size - 1) * (link.message_s(itemsize * chosen) + link.message_s(INDEX_BYTES * chosen))


def hitopk_s(nodes, ranks_per_node, elements, chosen, itemsize, inside, between):
    """Reduce-scatter in the node, g gathers between nodes at once, allgather in the node.

    chosen: elements that the owner of a slice sends. `between` is the link of a rank; where a node's ranks share one, its
    beta is g times as large.
    """
    within = ring_reduce_scatter_s, ring_allgather_s
    inside_s = sum(phase(ranks_per_node, elements, itemsize, inside) for phase in within)
    return inside_s + gather_s(nodes, chosen, itemsize, between)


def ranks_to_dense(percent, itemsize):
    """From so many ranks on top-k sends more bytes than the dense ring: (p-1) k (w+4) = 2 (p-1)/p n w, w bytes a value."""
    return 2 * itemsize / (itemsize + INDEX_BYTES) * 100 / percent
