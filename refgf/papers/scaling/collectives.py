"""The times of allreduces other than the ring (refgf/predict/cost.py), in closed form.

Each form is exact for the schedules of refgf.papers.jia and refgf.comm.tree, with the reservations
in its docstring. All of them but `hierarchical_s` are linear in the elements, so `line` turns them
into T(bytes) = a + b bytes.
"""

from collections.abc import Callable
from functools import partial
from math import ceil, floor, log2

from refgf.predict.cost import (
    Line,
    Link,
    largest_slice,
    ring_allgather_s,
    ring_allreduce_s,
    ring_line,
)


def least_between_s(nodes: int, elements: int, itemsize: int, between: Link) -> float:
    """Lower bound where only ranks sum, over m nodes: the bytes of one node's link, 2 (m-1)/m n.

    m-1 partial sums and m-1 copies of the sum cross m links (proof: Patarasuk & Yuan 2009).
    """
    return 2 * (nodes - 1) / nodes * between.beta_s_per_byte * itemsize * elements


def in_network_s(
    ranks_per_node: int, elements: int, itemsize: int, inside: Link, between: Link
) -> float:
    """Switches sum (SHARP, SwitchML): a node sends n bytes once and receives the sum once.

        k ranks: reduce-scatter in the node -> n up, each switch of a tree adds, n down -> allgather

    Reduction streams at 95 % of the link's rate (Graham et al. 2020, their abstract); here at all
    of it. The way up and down the tree takes one alpha, as it does for a message between nodes
    (inferred). So the time does not depend on the number of nodes. The bytes that leave a node are
    fewer than `least_between_s` wants of ranks that sum: n, not 2 (m-1)/m n.
    """
    inside_s = ring_allreduce_s(ranks_per_node, elements, itemsize, inside)
    return inside_s + between.message_s(itemsize * elements)


def recursive_doubling_s(size: int, elements: int, itemsize: int, link: Link) -> float:
    """floor(log2 p) exchanges of the whole vector.

    If p is not a power of two, two more messages, one of them added. (verified for powers of two:
    comments in the MPICH and SimGrid sources; the rest is computed)
    """
    rounds, nbytes = floor(log2(size)), itemsize * elements
    extra = size - 2**rounds > 0
    return (rounds + 2 * extra) * link.message_s(nbytes) + (rounds + extra) * link.sum_s(nbytes)


def halving_doubling_s(size: int, elements: int, itemsize: int, link: Link) -> float:
    """Rabenseifner: reduce-scatter by recursive halving, allgather by recursive doubling.

    2 lg q alpha + 2 n (q-1)/q beta + n (q-1)/q gamma on q = 2**floor(log2 p) ranks; unless p = q,
    2 alpha + 2 n beta + n gamma more. MPICH's comment (verified) writes p for q in the fractions.
    Halves count as exact fractions: if q does not divide the elements, the messages of a phase are
    at most q - 1 elements longer in total.
    """
    rounds, nbytes = floor(log2(size)), itemsize * elements
    share, extra = 1 - 1 / 2**rounds, size - 2**rounds > 0
    sent_s = 2 * rounds * link.alpha_s + 2 * share * link.beta_s_per_byte * nbytes
    extra_s = extra * (2 * link.message_s(nbytes) + link.sum_s(nbytes))
    return sent_s + share * link.sum_s(nbytes) + extra_s


def tree_s(size: int, elements: int, itemsize: int, link: Link) -> float:
    """Reduction up and broadcast down a binomial tree: 2 ceil(log2 p) messages of the whole vector.

    Besch & Pohl's distributed logarithmic tree has this order of growth (inferred, from the
    abstract alone).
    """
    rounds, nbytes = ceil(log2(size)), itemsize * elements
    return rounds * (2 * link.message_s(nbytes) + link.sum_s(nbytes))


def hierarchical_s(
    nodes: int, ranks_per_node: int, elements: int, itemsize: int, inside: Link, between: Link
) -> float:
    """Jia et al.: reduce to one master per node, ring over the masters, broadcast in the node.

    4 (k-1) + 2 (p/k-1) steps (unverified; 186 instead of 2046 for p = 1024, k = 16). The 2 (k-1)
    steps of a reduction are read as reduce-scatter and gather of slices, those of a broadcast as
    scatter and allgather (inferred).
    """
    k = ranks_per_node
    steps_s = 2 * ring_allgather_s(k, elements, itemsize, inside)
    added_s = (k - 1) * inside.sum_s(itemsize * largest_slice(elements, k))
    return 2 * steps_s + added_s + ring_allreduce_s(nodes, elements, itemsize, between)


def line(form: Callable[[int, int, int, Link], float], size: int, link: Link) -> Line:
    """A form that is linear in the elements as a + b bytes."""
    no_latency = Link(0.0, link.beta_s_per_byte, link.gamma_s_per_byte)
    return Line(form(size, 0, 1, link), form(size, 1, 1, no_latency))


LINES: dict[str, Callable[[int, Link], Line]] = {
    "ring": ring_line,
    "recursive doubling": partial(line, recursive_doubling_s),
    "halving-doubling": partial(line, halving_doubling_s),
    "tree": partial(line, tree_s),
}
