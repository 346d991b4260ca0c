"""The time of top-k's messages: allgathers of k values and k indices; no rank adds on the way.

k of n elements per rank, p ranks; or m nodes of g ranks with k of each slice. itemsize: bytes of a
value. Choosing and adding are not included: they use memory, not links.
"""

from refgf.predict.cost import Link, ring_allgather_s, ring_reduce_scatter_s

INDEX_BYTES = 4


def gather_s(size: int, chosen: int, itemsize: int, link: Link) -> float:
    """Two allgathers around the ring: p-1 steps of k values, p-1 of k indices.

    The bytes grow with p; those of a ring allreduce do not.
    """
    values_s, indices_s = (link.message_s(nbytes * chosen) for nbytes in (itemsize, INDEX_BYTES))
    return (size - 1) * (values_s + indices_s)


def hitopk_s(
    nodes: int,
    ranks_per_node: int,
    elements: int,
    chosen: int,
    itemsize: int,
    inside: Link,
    between: Link,
) -> float:
    """Reduce-scatter in the node, g concurrent gathers between nodes, allgather in the node.

    chosen: elements that the owner of a slice sends. between: the link of a rank; if the g ranks of
    a node share one link, its beta is g times as large.
    """
    phases = ring_reduce_scatter_s, ring_allgather_s
    inside_s = sum(phase(ranks_per_node, elements, itemsize, inside) for phase in phases)
    return inside_s + gather_s(nodes, chosen, itemsize, between)


def hitopk_pairs_s(
    nodes: int,
    ranks_per_node: int,
    elements: int,
    chosen: int,
    itemsize: int,
    inside: Link,
    between: Link,
) -> float:
    """The same with pairs in the node: the last step gathers the pairs of all nodes.

    Faster than `hitopk_s` where nodes * chosen * (itemsize + 4) bytes and one more latency cost
    less than a dense slice.
    """
    reduce_s = ring_reduce_scatter_s(ranks_per_node, elements, itemsize, inside)
    gathers_s = gather_s(nodes, chosen, itemsize, between)
    return reduce_s + gathers_s + gather_s(ranks_per_node, nodes * chosen, itemsize, inside)
