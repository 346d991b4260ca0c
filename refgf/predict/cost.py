"""What one collective costs: closed forms in alpha, beta and gamma, and nccl-tests' two bandwidths.

    alpha   s a message         beta   s a byte on the link         gamma   s a byte added up

Every form is the time until the slowest rank is done when all start together, every link carries both directions at
full speed, and no two messages share a link. Forms that take `elements` are exact for uneven slices, and equal
`from_schedules` of the schedules they describe. `LINES` holds the papers' forms a + b * bytes (even slices).
"""

from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor, inf, log2

from refgf.machine.units import Link as Link
from refgf.papers.scaling.simulate import from_schedules as from_schedules


@dataclass(frozen=True)
class Line:
    """T(bytes) = a_s + b_s_per_byte * bytes: a whole collective as MG-WFBP fits it."""

    a_s: float
    b_s_per_byte: float

    def __call__(self, nbytes):
        return self.a_s + self.b_s_per_byte * nbytes


@dataclass(frozen=True)
class Curve:
    """T(bytes) through measured points ((bytes, seconds), ...): straight from one to the next.

    Below the first as long as the first, beyond the last as steep as between the last two (never falling). For real calls,
    which no line describes: an algorithm that changes with the size, a cache that ends, a cast that pays from some size on.
    """

    points: tuple

    def __post_init__(self):
        sizes = [nbytes for nbytes, _ in self.points]
        if len(sizes) < 2 or not all(a < b for a, b in pairwise(sizes)) or not all(0 <= s < inf for _, s in self.points):
            raise ValueError(
                f"Curve: got points {self.points}, wanted at least two, rising in bytes, each with seconds >= 0: measure again"
            )

    def __call__(self, nbytes):
        if nbytes <= self.points[0][0]:
            return self.points[0][1]
        (low, low_s), (high, high_s) = next((p for p in pairwise(self.points) if nbytes <= p[1][0]), self.points[-2:])
        slope = (high_s - low_s) / (high - low)
        return low_s + slope * (nbytes - low) if nbytes <= high else high_s + max(0.0, slope) * (nbytes - high)


def largest_slice(elements, size):
    """Elements of the longest of `size` slices: the first elements mod size slices have one more than the rest."""
    return -(-elements // size)


def ring_phase_s(size, elements, itemsize, link):
    """Reduce-scatter without its additions, or allgather: size - 1 steps.

    In every step each slice is somewhere on the ring, the largest one included, and a slice moves on only when it has
    arrived. So uneven slices cost exactly size - 1 transfers of the largest.
    """
    return (size - 1) * link.message_s(itemsize * largest_slice(elements, size))


def ring_reduce_scatter_s(size, elements, itemsize, link):
    added = (size - 1) * link.sum_s(itemsize * largest_slice(elements, size))
    return ring_phase_s(size, elements, itemsize, link) + added


def ring_allgather_s(size, elements, itemsize, link):
    return ring_phase_s(size, elements, itemsize, link)


def ring_allreduce_s(size, elements, itemsize, link):
    """2 (p-1) steps of the largest slice; (p-1) additions of it. Ring allreduce of the GradientFlow paper (stated)."""
    return ring_reduce_scatter_s(size, elements, itemsize, link) + ring_allgather_s(size, elements, itemsize, link)


def recursive_doubling_s(size, elements, itemsize, link):
    """floor(log2 p) exchanges of everything; for other p than powers of two two messages more, one of them added.

    (verified for powers of two: comments in the MPICH and SimGrid sources; the remainder is computed)
    """
    rounds, nbytes = floor(log2(size)), itemsize * elements
    extra = size - 2**rounds > 0
    return (rounds + 2 * extra) * link.message_s(nbytes) + (rounds + extra) * link.sum_s(nbytes)


def halving_doubling_s(size, elements, itemsize, link):
    """Rabenseifner: reduce-scatter by recursive halving, allgather by recursive doubling, q = 2**floor(log2 p) ranks.

    2 lg q alpha + 2 n (q-1)/q beta + n (q-1)/q gamma; unless p = q, 2 alpha + 2 n beta + n gamma more. MPICH's
    comment (verified) writes p for q in the fractions. Halves are taken as exact fractions: for elements that q does
    not divide, the messages of a phase together are at most q - 1 elements longer.
    """
    rounds, nbytes = floor(log2(size)), itemsize * elements
    fraction, extra = 1 - 1 / 2**rounds, size - 2**rounds > 0
    sent_s = 2 * rounds * link.alpha_s + 2 * fraction * link.beta_s_per_byte * nbytes + fraction * link.sum_s(nbytes)
    return sent_s + extra * (2 * link.message_s(nbytes) + link.sum_s(nbytes))


def tree_s(size, elements, itemsize, link):
    """Reduction up and broadcast down a binomial tree, everything in each message: 2 ceil(log2 p) steps.

    Besch & Pohl's distributed logarithmic tree has this order of growth (inferred, from the abstract alone).
    """
    rounds, nbytes = ceil(log2(size)), itemsize * elements
    return rounds * (2 * link.message_s(nbytes) + link.sum_s(nbytes))


def hierarchical_s(nodes, ranks_per_node, elements, itemsize, inside, between):
    """Jia et al.: reduce to a master in each node, ring over the masters, broadcast in the node.

    4 (k-1) + 2 (p/k-1) steps (unverified; 186 instead of 2046 for p = 1024, k = 16). The 2 (k-1) steps of a reduction
    are read as reduce-scatter plus gather of slices, those of a broadcast as scatter plus allgather (inferred).
    """
    steps = 2 * ring_phase_s(ranks_per_node, elements, itemsize, inside)
    added = (ranks_per_node - 1) * inside.sum_s(itemsize * largest_slice(elements, ranks_per_node))
    return 2 * steps + added + ring_allreduce_s(nodes, elements, itemsize, between)


def log_phases_s(nodes, ranks_per_node, elements, itemsize, inside, between):
    """Three phases in few steps: up a tree in the node, halving-doubling over the masters, down the tree (chosen)."""
    halving_s = halving_doubling_s(nodes, elements, itemsize, between)
    return tree_s(ranks_per_node, elements, itemsize, inside) + halving_s


def least_between_s(nodes, elements, itemsize, between):
    """What no allreduce can go below: the bytes alone of the busiest node's link, 2 (m-1)/m n.

    Counted over all nodes, m-1 partial vectors have to leave their node before a sum can be whole, and m-1 sums have to
    come back: 2 (m-1) n elements out of m nodes (Patarasuk & Yuan 2009 prove it for ranks).
    """
    return 2 * (nodes - 1) / nodes * between.beta_s_per_byte * itemsize * elements


def two_level_ring_s(nodes, ranks_per_node, elements, itemsize, inside, between):
    """Reduce-scatter in the node, k rings between nodes that share each node's link, allgather in the node.

    The k rings run at once, each on about 1/k of the elements, so the shared link carries all elements once.
    """
    k, slice_elements = ranks_per_node, largest_slice(elements, ranks_per_node)
    shared = Link(between.alpha_s, k * between.beta_s_per_byte, between.gamma_s_per_byte)
    ring_s = ring_allreduce_s(nodes, slice_elements, itemsize, shared)
    inside_s = ring_reduce_scatter_s(k, elements, itemsize, inside) + ring_allgather_s(k, elements, itemsize, inside)
    return inside_s + ring_s


def ring_line(size, link):
    """Ring allreduce as a + b * bytes, even slices (verified: nccl-tests' bound and the MG-WFBP scripts)."""
    share = (size - 1) / size
    return Line(2 * (size - 1) * link.alpha_s, share * (2 * link.beta_s_per_byte + link.gamma_s_per_byte))


def recursive_doubling_line(size, link):
    return Line(log2(size) * link.alpha_s, log2(size) * (link.beta_s_per_byte + link.gamma_s_per_byte))


def halving_doubling_line(size, link):
    """The slope is the ring's: 2 beta - (2 beta + gamma)/N + gamma = (N-1)/N (2 beta + gamma) (computed)."""
    return Line(2 * log2(size) * link.alpha_s, ring_line(size, link).b_s_per_byte)


def tree_line(size, link):
    return Line(2 * log2(size) * link.alpha_s, log2(size) * (2 * link.beta_s_per_byte + link.gamma_s_per_byte))


def double_tree_line(size, link):
    """Double binary trees, pipelined over many small pieces, their filling neglected (unverified)."""
    return Line(2 * log2(size) * link.alpha_s, link.beta_s_per_byte + link.gamma_s_per_byte)


LINES = {
    "ring": ring_line,
    "recursive doubling": recursive_doubling_line,
    "halving-doubling": halving_doubling_line,
    "tree": tree_line,
    "double tree": double_tree_line,
}

BUS_FACTORS = {
    "allreduce": lambda size: 2 * (size - 1) / size,
    "reduce_scatter": lambda size: (size - 1) / size,
    "allgather": lambda size: (size - 1) / size,
    "alltoall": lambda size: (size - 1) / size,
    "broadcast": lambda size: 1.0,
    "reduce": lambda size: 1.0,
    "sendrecv": lambda size: 1.0,
}


def algorithm_bandwidth(nbytes, seconds):
    """Bytes of the whole buffer per second: what the caller sees (nccl-tests' algbw, in B/s)."""
    return nbytes / seconds


def bus_bandwidth(collective, size, nbytes, seconds):
    """What every link carried (nccl-tests' busbw, in B/s): comparable between p's, at most the link's own bandwidth.

    `nbytes` is the whole buffer: for allgather and reduce_scatter that of all ranks together.
    """
    if collective not in BUS_FACTORS:
        raise ValueError(f"bus_bandwidth: got collective {collective!r}, wanted one of {sorted(BUS_FACTORS)}")
    return BUS_FACTORS[collective](size) * algorithm_bandwidth(nbytes, seconds)
