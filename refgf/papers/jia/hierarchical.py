"""Allreduce in two levels: fast links inside a node, slow links between nodes.

`nodes` lists the ranks of each node, [[0, 1], [2, 3], ...], as `topology.nodes(comm)` and `blocks`
return it; every rank is in it once. p ranks, m nodes, k ranks on each:

Three phases (Jia et al. 2018), 2 nodes of 4 ranks; the first rank of a node is its master (M):

    rank                0     1     2     3     4     5     6     7
    1a reduce-scatter   |__ ring over k __|     |__ ring over k __|     k-1 steps
    1b gather           M <--- slices ----|     M <--- slices ----|     k-1 steps
    2  ring, masters    M <=================>   M                       2(m-1) steps, all elements
    3a scatter          M ---- slices --->|     M ---- slices --->|     k-1 steps
    3b allgather        |__ ring over k __|     |__ ring over k __|     k-1 steps

4(k-1) + 2(m-1) steps where a flat ring takes 2(p-1), and only 2(m-1) of them use slow links. The
paper's text is not at hand. A public review (github.com/stella-y/TIL, paper_review) describes the
three phases: reduce to a master, ring over the masters, broadcast. The number of steps is
unverified. That "reduce" and "broadcast" are
the four ring-like phases above is inferred from that number. Nodes may differ in size. Elements
sent, with s_j the slices of n over k and t_i those of n over m, empty messages counted:

    local rank j > 0    2k - 1 messages             2n - |s_j|
    master of node i    3(k-1) + 2(m-1) messages    k > 1: 3n - 2|s_1| - |s_0|
                                                    m > 1: and 2n - |t_i+1| - |t_i+2|

Log phases: the same three phases, each in the fewest steps.

    rank                0     1     2     3     4     5     6     7
    1  tree             M <-- all   . <-- all   M <-- all   . <-- all   ceil(log2 k) steps
                        M <-------- all         M <-------- all
    2  halving-doubling M <=================>   M                       2R steps, R = floor(log2 m)
    3  tree, reversed   M --------> all         M --------> all         ceil(log2 k) steps

2 ceil(log2 k) + 2R steps, 2R of them on slow links. These carry as few elements as before, unless
m is not a power of two: then 2 more steps of all elements. Every step in the node carries all n, so
log phases are for short vectors. c_j is the number of children of local rank j in the tree, the
powers of two d below j's lowest set bit with j + d < k; c_0 = ceil(log2 k).

    local rank j > 0    1 + c_j messages            (1 + c_j) n
    master of node i    c_0 messages                c_0 n, and the cost in `doubling` of rank i of m

Two-level ring: reduce-scatter in the node, then k rings at the same time, each between the ranks
that own the same slice, then allgather in the node. No rank idles, and a node's link carries each
element once. Needs nodes of equal size; u are the slices of s_j+1 over m:

    every rank          2(k-1) + 2(m-1) messages    k > 1: 2n - |s_j+1| - |s_j+2| in the node
                                                    m > 1: 2|s_j+1| - |u_i+1| - |u_i+2| between

Every slice is summed as a left fold in ring order, first over a node's ranks, then over the nodes.
Log phases add in the order of `tree` in the node, whose master rounds the sum to the wire type,
then in that of `doubling` over the masters. All ranks end with the same bits. The flat ring and the
hierarchies end with different bits, because they add in different orders.
"""

from collections.abc import Callable, Sequence

from refgf.arguments import checked
from refgf.comm import ring, tree
from refgf.comm.compose import on_ranks, receive, reversed_schedule, send
from refgf.comm.schedule import Algorithm, Schedule
from refgf.comm.slices import slices
from refgf.papers.jia import doubling

Nodes = Sequence[Sequence[int]]


@checked
def consecutive_nodes(size: int, ranks_per_node: int) -> list[list[int]]:
    """Ranks 0, 1, ... in nodes of `ranks_per_node`; the last node may have fewer.

    consecutive_nodes(5, 2) = [[0, 1], [2, 3], [4]]
    """
    if size < 1 or ranks_per_node < 1:
        raise ValueError(
            f"consecutive_nodes: got {size} ranks in nodes of {ranks_per_node}; "
            "wanted at least 1 of both; next: pass comm.Get_size() and the ranks of a node"
        )
    return [list(range(size))[i : i + ranks_per_node] for i in range(0, size, ranks_per_node)]


def ring_to_master(j: int, k: int, n: int) -> Schedule:
    """Sum on local rank 0: reduce-scatter, then each rank sends the slice it owns. 2(k-1) steps."""
    parts = slices(n, k)
    if j > 0:
        return ring.reduce_scatter(j, k, n) + [send(parts[(j + 1) % k], 0)]
    return ring.reduce_scatter(0, k, n) + [
        receive(parts[(i + 1) % k], i, "copy") for i in range(1, k)
    ]


def three_phase(
    nodes: Nodes, inside: Algorithm = ring_to_master, between: Algorithm = ring.allreduce
) -> Algorithm:
    """Reduce in the node, allreduce over the masters, broadcast in the node.

    inside    sums on local rank 0: `ring_to_master`, `tree.reduce`; the broadcast is its reversal
    between   any allreduce over the masters without the operation `reduce`: `ring.allreduce`,
              `doubling.halving_doubling`

    The defaults stand for Jia et al.'s hierarchical all-reduce, as far as it is known (above).
    """
    masters = [node[0] for node in nodes]

    def three_phase_allreduce(rank: int, size: int, n: int) -> Schedule:
        _require_all_ranks(nodes, size, "three_phase")
        i, j = _place(nodes, rank)
        up = on_ranks(nodes[i], inside(j, len(nodes[i]), n))
        over = on_ranks(masters, between(i, len(nodes), n)) if j == 0 else []
        return up + over + reversed_schedule(up)

    return three_phase_allreduce


def log_phases(nodes: Nodes, between: Algorithm = doubling.halving_doubling) -> Algorithm:
    """Three phases for short vectors: fewest steps rather than fewest bytes in the node.

    For the shortest vectors pass `doubling.recursive_doubling`: R steps between nodes instead of
    2R, each of all n elements.
    """
    return three_phase(nodes, tree.reduce, between)


def two_level_ring(nodes: Nodes) -> Algorithm:
    """Reduce-scatter in the node, a ring between nodes for each slice, allgather in the node."""
    if len({len(node) for node in nodes}) > 1:
        raise ValueError(
            f"two_level_ring: got nodes of {', '.join(str(len(node)) for node in nodes)} ranks; "
            "wanted the same number on each, because the owners of a slice form a ring with one "
            "rank of every node; next: start as many ranks on each node, or use three_phase"
        )

    def two_level_ring_allreduce(rank: int, size: int, n: int) -> Schedule:
        _require_all_ranks(nodes, size, "two_level_ring")
        i, j = _place(nodes, rank)
        node, k = nodes[i], len(nodes[i])
        own = slices(n, k)[(j + 1) % k]
        between = ring.allreduce(i, len(nodes), own.stop - own.start)
        owners = [other[j] for other in nodes]
        return (
            on_ranks(node, ring.reduce_scatter(j, k, n))
            + on_ranks(owners, between, own.start)
            + on_ranks(node, ring.allgather(j, k, n))
        )

    return two_level_ring_allreduce


def hybrid(
    nodes: Nodes, threshold_elements: float, short: Callable[[Nodes], Algorithm] = three_phase
) -> Algorithm:
    """`short` for fewer than `threshold_elements` elements, otherwise the flat ring.

    The default is Jia et al.'s hybrid all-reduce, as the review (above) describes it.
    `short=log_phases` is faster over slow links (lesson 10). The threshold is the length for which
    `short` and the ring take the same time.
    """
    hierarchy = short(nodes)

    def hybrid_allreduce(rank: int, size: int, n: int) -> Schedule:
        return (hierarchy if n < threshold_elements else ring.allreduce)(rank, size, n)

    return hybrid_allreduce


def _place(nodes: Nodes, rank: int) -> tuple[int, int]:
    """(number of the rank's node, rank's number in it)."""
    return next((i, list(node).index(rank)) for i, node in enumerate(nodes) if rank in node)


def _require_all_ranks(nodes: Nodes, size: int, operation: str) -> None:
    if sorted(rank for node in nodes for rank in node) != list(range(size)):
        raise ValueError(
            f"{operation}: got nodes {[list(node) for node in nodes]} for {size} ranks; wanted "
            f"every rank 0 to {size - 1} once; next: pass topology.nodes(comm), or "
            "consecutive_nodes(size, ranks_per_node)"
        )
