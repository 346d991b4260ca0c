"""E1 to E7: the time of a collective, counted round by round.

n         elements of the vector, of `itemsize` bytes each
p         ranks; on m nodes of k ranks where a function takes `nodes` and `ranks_per_node`
link      (alpha, beta, gamma): a message of m bytes takes alpha + beta m seconds, adding it gamma m
round     (elements of the longest message, elements that its receiver adds)
result    seconds until the slowest rank has finished, if all ranks start together

p = 4, n = 8          rounds
ring                  (2, 2) (2, 2) (2, 2) (2, 0) (2, 0) (2, 0)
tree                  (8, 8) (8, 8) (8, 0) (8, 0)
recursive doubling    (8, 8) (8, 8)
halving-doubling      (4, 4) (2, 2) (2, 0) (4, 0)
"""

from fractions import Fraction

from refgf.oracle.spec.ring import slice_bounds

Link = tuple[float, float, float]
Rounds = list[tuple[int | Fraction, int | Fraction]]


def rounds_s(rounds: Rounds, itemsize: int, link: Link) -> float:
    """E1: a round takes alpha + beta (bytes of its message) + gamma (bytes added).

    Rounds follow each other.
    """
    alpha, beta, gamma = link
    return sum(
        (
            alpha + beta * float(itemsize * sent) + gamma * float(itemsize * added)
            for sent, added in rounds
        ),
        start=0.0,
    )


def longest_slice(n: int, p: int) -> int:
    """Elements of the longest of p slices (R1). In each round of a ring some rank sends it."""
    return max(stop - start for start, stop in slice_bounds(n, p))


def reduce_scatter_rounds(n: int, p: int) -> Rounds:
    """E2: p - 1 rounds; each sends the longest slice and adds it."""
    return [(longest_slice(n, p), longest_slice(n, p))] * (p - 1)


def allgather_rounds(n: int, p: int) -> Rounds:
    """E2: p - 1 rounds; each sends the longest slice."""
    return [(longest_slice(n, p), 0)] * (p - 1)


def reduce_scatter_s(n: int, p: int, itemsize: int, link: Link) -> float:
    """E2: half of the ring."""
    return rounds_s(reduce_scatter_rounds(n, p), itemsize, link)


def allgather_s(n: int, p: int, itemsize: int, link: Link) -> float:
    """E2: the other half of the ring."""
    return rounds_s(allgather_rounds(n, p), itemsize, link)


def ring_s(n: int, p: int, itemsize: int, link: Link) -> float:
    """E2: reduce-scatter, then allgather."""
    return rounds_s(allreduce_rounds("ring", n, p), itemsize, link)


def direct_s(n: int, p: int, itemsize: int, link: Link) -> float:
    """E2: the rounds of the ring. All additions come after the last message of the first half."""
    length = longest_slice(n, p)
    rounds = 2 * allgather_rounds(n, p)
    return rounds_s(rounds, itemsize, link) + link[2] * itemsize * length * (p - 1)


def tree_rounds(n: int, p: int) -> Rounds:
    """E3: ceil(log2 p) rounds up and as many down, each of the whole vector."""
    height = (p - 1).bit_length()
    return [(n, n)] * height + [(n, 0)] * height


def recursive_doubling_rounds(n: int, p: int) -> Rounds:
    """E3: log2 q rounds of the whole vector, q the largest power of two up to p (H2).

    Where p > q, one more round before them and one after, which adds nothing.
    """
    return with_extras(n, p, [(n, n)] * (p.bit_length() - 1))


def with_extras(n: int, p: int, rounds: Rounds) -> Rounds:
    """E3: where p is no power of two, the p - q extra ranks send all first, and receive last."""
    is_power = p & (p - 1) == 0
    return rounds if is_power else [(n, n), *rounds, (n, 0)]


def tree_s(n: int, p: int, itemsize: int, link: Link) -> float:
    """E3: the tree of H1, and its reversal."""
    return rounds_s(allreduce_rounds("tree", n, p), itemsize, link)


def recursive_doubling_s(n: int, p: int, itemsize: int, link: Link) -> float:
    """E3: the exchanges of H2."""
    return rounds_s(allreduce_rounds("recursive_doubling", n, p), itemsize, link)


def halving_doubling_rounds(n: int, p: int) -> Rounds:
    """E4: n/2, n/4, ... n/q elements are sent and added, then sent back: n/q, ... n/4, n/2.

    Halves are exact fractions, also where q does not divide n. Extra ranks as in E3.
    """
    halves = [Fraction(n, 2**i) for i in range(1, p.bit_length())]
    there, back = [(half, half) for half in halves], [(half, 0) for half in reversed(halves)]
    return with_extras(n, p, there + back)


def halving_doubling_s(n: int, p: int, itemsize: int, link: Link) -> float:
    """E4: Rabenseifner's algorithm."""
    return rounds_s(allreduce_rounds("halving_doubling", n, p), itemsize, link)


def allreduce_rounds(algorithm: str, n: int, p: int) -> Rounds:
    """algorithm: ring, tree, recursive_doubling or halving_doubling."""
    if algorithm == "ring":
        return reduce_scatter_rounds(n, p) + allgather_rounds(n, p)
    if algorithm == "tree":
        return tree_rounds(n, p)
    if algorithm == "recursive_doubling":
        return recursive_doubling_rounds(n, p)
    return halving_doubling_rounds(n, p)


def allreduce_line(algorithm: str, p: int, link: Link) -> tuple[float, float]:
    """E5: (a, b) of T = a + b bytes, for slices of equal length.

    a is alpha for each round. b is what one byte of the vector costs in all rounds.
    """
    alpha, beta, gamma = link
    rounds = allreduce_rounds(algorithm, p, p)  # a vector of p: each slice is exactly 1 / p of it
    sent, added = (sum(Fraction(pair[i]) for pair in rounds) / p for i in (0, 1))
    return alpha * len(rounds), beta * float(sent) + gamma * float(added)


def three_phase_s(
    n: int, nodes: int, ranks_per_node: int, itemsize: int, inside: Link, between: Link
) -> float:
    """E6: the rounds of H4: in the node k - 1 each of reduce-scatter, gather, scatter, allgather.

    Between them the ring over the masters. Each slice counts as the longest.
    """
    there = reduce_scatter_rounds(n, ranks_per_node) + allgather_rounds(n, ranks_per_node)
    back = 2 * allgather_rounds(n, ranks_per_node)
    return rounds_s(there + back, itemsize, inside) + ring_s(n, nodes, itemsize, between)


def two_level_s(
    n: int, nodes: int, ranks_per_node: int, itemsize: int, inside: Link, between: Link
) -> float:
    """E6: the rounds of H5: reduce-scatter in the node, a ring between nodes, allgather.

    The k rings between nodes run at the same time, each over the links of its own ranks.
    """
    own = longest_slice(n, ranks_per_node)
    inside_s = ring_s(n, ranks_per_node, itemsize, inside)
    return inside_s + ring_s(own, nodes, itemsize, between)


def log_phases_s(
    n: int, nodes: int, ranks_per_node: int, itemsize: int, inside: Link, between: Link
) -> float:
    """E6: the rounds of H8: a tree in the node, halving-doubling over the masters, the tree back.

    p is no argument: only ceil(log2 k) and m count.
    """
    inside_s = tree_s(n, ranks_per_node, itemsize, inside)
    return inside_s + halving_doubling_s(n, nodes, itemsize, between)


def topk_s(p: int, chosen: int, itemsize: int, link: Link) -> float:
    """E7: two allgathers around the ring, of `chosen` values and of as many indices of 4 bytes."""
    values_s = rounds_s([(chosen, 0)] * (p - 1), itemsize, link)
    return values_s + rounds_s([(chosen, 0)] * (p - 1), 4, link)


def hitopk_s(
    n: int,
    nodes: int,
    ranks_per_node: int,
    chosen: int,
    itemsize: int,
    inside: Link,
    between: Link,
) -> float:
    """E7: the ring of the node, halved by the gathers of T6 between nodes.

    chosen: elements that the owner of a slice sends.
    """
    return ring_s(n, ranks_per_node, itemsize, inside) + topk_s(nodes, chosen, itemsize, between)


def hitopk_pairs_s(
    n: int,
    nodes: int,
    ranks_per_node: int,
    chosen: int,
    itemsize: int,
    inside: Link,
    between: Link,
) -> float:
    """E7: the form of T8: reduce-scatter, gathers between nodes, gathers of all nodes' pairs."""
    inside_s = reduce_scatter_s(n, ranks_per_node, itemsize, inside)
    pairs_s = topk_s(ranks_per_node, nodes * chosen, itemsize, inside)
    return inside_s + topk_s(nodes, chosen, itemsize, between) + pairs_s
