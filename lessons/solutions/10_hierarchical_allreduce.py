"""Solutions of lesson 10, each checked by the code below it.

python lessons/solutions/10_hierarchical_allreduce.py
"""

from refgf.comm import ring, tree
from refgf.papers.jia import doubling
from refgf.papers.jia import hierarchical
from refgf.comm.compose import on_ranks
from refgf.comm.slices import length
from refgf.predict.cost import Link
from refgf.papers.scaling.simulate import from_schedules
from refgf.papers.jia.wires import Wires


def steps(k: int, p: int) -> int:
    return 4 * (k - 1) + 2 * (p // k - 1)


def the_shortest_k() -> None:
    """1. 16 and 32 both take 186 steps, and nothing takes fewer.

    4(k-1) + 2(p/k-1) is smallest where its derivative 4 - 2p/k^2 is 0: k = sqrt(p/2) = 22.6,
    between the two. But a step inside a node is faster than one between nodes, so the best k in
    seconds is larger than in steps.
    """
    counts = {k: steps(k, 1024) for k in range(1, 1025) if 1024 % k == 0}
    assert counts[16] == counts[32] == 186 == min(counts.values())


def predicted_s(algorithm, p: int, k: int, n: int) -> float:
    """Predicted seconds on links like those of an emulated cluster of 1 Gbit/s, float32."""
    wires = Wires([rank // k for rank in range(p)], Link(26e-6, 0.3e-9, 0.04e-9), Link(27e-6, 8e-9))
    return from_schedules([algorithm(rank, p, n) for rank in range(p)], 4, wires)


def paying_up_to(better, other, p: int, k: int) -> int:
    """Elements, doubled from 8 on, up to which `better` is predicted to be faster."""
    return max(
        8 << i
        for i in range(22)
        if predicted_s(better, p, k, 8 << i) < predicted_s(other, p, k, 8 << i)
    )


def inside_and_between() -> None:
    """2. A tree takes 2 log2 k = 6 instead of 4(k-1) = 28 steps for k = 8. But each step sends all
    n bytes: 6 n in a row on the master instead of 4 (k-1)/k n = 3.5 n. That saves 22 steps and
    costs 2.5 n. With 26 us and 0.3 ns per byte the tree pays up to about 700 KiB. Recursive
    doubling takes R exchanges of n instead of 2R that add up to 2 (m-1)/m n. For m = 4 it saves 2
    steps and sends n/2 more. This pays up to 4 alpha / beta = 13 KiB at 1 Gbit/s, and 10 times as
    far at 10 Gbit/s."""
    k, n, found = 8, 840, {}
    nodes = hierarchical.consecutive_nodes(16, k)
    by_trees = hierarchical.three_phase(nodes, inside=tree.reduce)
    for name, algorithm in (("trees", by_trees), ("slices", hierarchical.three_phase(nodes))):
        mine = [
            s
            for s in algorithm(0, 16, n)
            if 8 not in (s.send_to, s.receive_from) and s.op != "finish"
        ]
        found[name] = len(mine), sum(max(length(s.send), length(s.receive)) for s in mine) / n
    assert found == {"trees": (6, 6.0), "slices": (28, 3.5)}
    assert paying_up_to(by_trees, hierarchical.three_phase(nodes), 16, k) * 4 == 512 << 10
    nodes = hierarchical.consecutive_nodes(8, 2)
    recursive = hierarchical.three_phase(nodes, tree.reduce, doubling.recursive_doubling)
    assert paying_up_to(recursive, hierarchical.log_phases(nodes), 8, 2) * 4 == 8 << 10


def slow_messages(algorithm, where, n: int) -> int:
    sends = [
        (r, s.send_to)
        for r in range(len(where))
        for s in algorithm(r, len(where), n)
        if s.send_to is not None
    ]
    return sum(where[source] != where[dest] for source, dest in sends)


def round_robin() -> None:
    """3. Every step of every rank is sent between nodes, 112 messages instead of 56. So twice the
    bytes cross each node's link: twice the time for long vectors. Let the ring visit the ranks node
    by node instead (`on_ranks`)."""
    p, n = 8, 8_000_000
    nodes = [[0, 4], [1, 5], [2, 6], [3, 7]]
    where, order = [r % 4 for r in range(p)], [rank for node in nodes for rank in node]

    def node_by_node(rank: int, size: int, n: int):
        return on_ranks(order, ring.allreduce(order.index(rank), size, n))

    assert slow_messages(ring.allreduce, where, n) == 112
    assert slow_messages(node_by_node, where, n) == 56
    inside, between = Link(2e-6, 0.1e-9), Link(50e-6, 8e-9)
    times = [
        from_schedules([f(r, p, n) for r in range(p)], 4, Wires(where, inside, between))
        for f in (ring.allreduce, node_by_node)
    ]
    assert 1.9 < times[0] / times[1] < 2.1


if __name__ == "__main__":
    for exercise in (the_shortest_k, inside_and_between, round_robin):
        exercise()
        print(exercise.__doc__.strip() + "\n")
