"""Solutions of lesson 10, each checked by the code below it: python lessons/solutions/10_hierarchical_allreduce.py"""

import numpy as np

from refgf.comm import hierarchical, ring, tree
from refgf.comm.schedule import among, check, replay, way_back
from refgf.comm.slices import length
from refgf.predict.cost import Link
from refgf.predict.simulate import from_schedules
from refgf.predict.wires import Wires


def steps(k: int, p: int) -> int:
    return 4 * (k - 1) + 2 * (p // k - 1)


def the_shortest_k() -> None:
    """1. 16 and 32 both take 186 steps, and nothing takes fewer.

    4(k-1) + 2(p/k-1) is smallest where its derivative 4 - 2p/k^2 is 0: k = sqrt(p/2) = 22.6, between the two. But a step
    inside a node is cheaper than one between nodes, so the best k in seconds is larger than in steps.
    """
    counts = {k: steps(k, 1024) for k in range(1, 1025) if 1024 % k == 0}
    assert counts[16] == counts[32] == 186 == min(counts.values())


def three_phases_by_trees(nodes):
    """Up a tree in the node, ring over masters, down the tree."""

    def algorithm(rank: int, size: int, n: int):
        i, node = next((i, node) for i, node in enumerate(nodes) if rank in node)
        up = among(node, tree.reduce(node.index(rank), len(node), n))
        between = among([node[0] for node in nodes], ring.allreduce(i, len(nodes), n)) if rank == node[0] else []
        return up + between + way_back(up)

    return algorithm


def trees_in_the_node() -> None:
    """2. 2 log2 k = 6 instead of 4(k-1) = 28 for k = 8: far fewer. But each carries all n elements, 6 n in a row on the master
    instead of 4 (k-1)/k n = 3.5 n: good for short vectors, bad for long ones."""
    p, k, n = 16, 8, 840
    nodes = hierarchical.blocks(p, k)
    by_trees, by_slices = three_phases_by_trees(nodes), hierarchical.three_phase(nodes)
    check([by_trees(r, p, n) for r in range(p)])
    xs = [np.random.default_rng(r).integers(-9, 9, n).astype(np.float32) for r in range(p)]  # sums are exact
    assert (replay([by_trees(r, p, n) for r in range(p)], xs)[5] == np.sum(xs, axis=0)).all()
    inside = {}
    for name, algorithm in (("trees", by_trees), ("slices", by_slices)):
        mine = [s for s in algorithm(0, p, n) if 8 not in (s.send_to, s.receive_from) and s.op != "finish"]
        inside[name] = len(mine), sum(max(length(s.send), length(s.receive)) for s in mine) / n
    assert inside == {"trees": (6, 6.0), "slices": (28, 3.5)}


def slow_messages(algorithm, where, n: int) -> int:
    sends = [(r, s.send_to) for r in range(len(where)) for s in algorithm(r, len(where), n) if s.send_to is not None]
    return sum(where[source] != where[dest] for source, dest in sends)


def round_robin() -> None:
    """3. Every step of every rank crosses between nodes, 112 messages instead of 56, so each node's link carries twice the
    bytes: twice the time for long vectors. Let the ring visit the ranks node by node instead (`among`)."""
    p, n = 8, 8_000_000
    nodes = [[0, 4], [1, 5], [2, 6], [3, 7]]
    where, order = [r % 4 for r in range(p)], [rank for node in nodes for rank in node]

    def mended(rank: int, size: int, n: int):
        return among(order, ring.allreduce(order.index(rank), size, n))

    assert (slow_messages(ring.allreduce, where, n), slow_messages(mended, where, n)) == (112, 56)
    inside, between = Link(2e-6, 0.1e-9), Link(50e-6, 8e-9)
    times = [from_schedules([f(r, p, n) for r in range(p)], 4, Wires(where, inside, between)) for f in (ring.allreduce, mended)]
    assert 1.9 < times[0] / times[1] < 2.1


if __name__ == "__main__":
    for exercise in (the_shortest_k, trees_in_the_node, round_robin):
        exercise()
        print(exercise.__doc__.strip() + "\n")
