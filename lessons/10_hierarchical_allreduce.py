r"""Lesson 10: hierarchical allreduce - fast links inside a node, slow links between nodes.

    python -m refgf.cluster run --like v100-56gbit --ranks-per-node 2 -- \
        python lessons/10_hierarchical_allreduce.py
    mpiexec -n 8 python lessons/10_hierarchical_allreduce.py       every rank is a node of its own
    options: --predict "3 x, 1 x", -v (all tables), --inside RATE, --ranks-per-node K, --quick, ...

QUESTION    A flat ring takes 2(p-1) steps, and every step is as slow as its slowest link. Ranks of
            one node can communicate faster. Does it pay to treat them differently, and up to which
            size?
IDEA        Sum inside each node first. Let one rank of each node, its master, sum over the nodes.
            Then broadcast the result inside the nodes (Jia et al. 2018): `hierarchical_sums` below,
            for real in refgf/papers/jia/hierarchical.py (drawing: lessons/drawings/10.svg).

                node 0   0 <- 1         0 <---+         0 -> 1
                node 1   2 <- 3         2 <---+         2 -> 3
                         1 reduce       2 masters       3 broadcast

            Besch & Pohl (1995) use a tree. Others pair ranks that differ in one bit. "Log phases"
            are three phases in the fewest steps: a tree in the node, halving-doubling between
            masters. (refgf/comm/tree.py, refgf/papers/jia/doubling.py)
PREDICTION  p ranks on m nodes with k ranks each (powers of two). Every rank has a vector of n
            bytes. A slow step sends a message between nodes.

                                    slow steps    bytes that leave a node    steps inside
                flat ring           2(p-1)        2(p-1)/p n                 none more
                three phases        2(m-1)        2(m-1)/m n                 4(k-1) of n/k
                two-level ring      2(m-1)        2(m-1)/m n                 2(k-1) of n/k
                log phases          2 log2 m      2(m-1)/m n                 2 log2 k of n
                tree                2 log2 m      log2 m n                   2 log2 k of n
                recursive doubling  log2 m        k log2 m n                 log2 k of n
                halving-doubling    2 log2 m      2(m-1)/m n                 2 log2 k, n/2 ... n/k
                any sum by ranks                  at least 2(m-1)/m n
                in the switch       1             n                          2(k-1) of n/k

            Naive is one flat ring through all ranks. By hand, 8 nodes of 4 ranks and a vector so
            short that only latency counts, 50 us between nodes and 5 us inside: 62 slow steps take
            3.1 ms. Three phases take 14 slow steps and 12 inside: 0.76 ms.

            A message of b bytes takes alpha + beta b of its link, and ranks of a node share one
            link to the others. The link sends while its rank goes on to the next latency
            (lessons/lab/hierarchy/buffered_sends.py). Left out: ranks share this machine's cores.
            Switches that sum (SHARP, SwitchML) are predicted only: each node sends n bytes once and
            receives the sum once (`in_network_s` in refgf/papers/scaling/collectives.py).

            With few ranks a node three phases gain over the flat ring for short vectors, and others
            gain more. How many ranks to treat as a node is measured, too: the appendix, figure
            `_nodes`.

Before you run it, write down: with 4 nodes of 2 ranks, how many times as fast as the flat ring is
the sum of 1 KiB in three phases? And of 16 MiB? From which size on is the flat ring faster?

This is weak scaling: each rank brings a vector of n bytes, whatever p is. A bus inside a node is
slowed down like the links between nodes (`--inside`): its rate is emulated, not its latency. After
this lesson you can count slow steps and bytes that leave a node, and estimate where one algorithm
overtakes another.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/10_hierarchical_allreduce.py)
    1. For p = 1024, which k makes three phases shortest, counted in steps? Is it 16, as in Jia et
       al. (unverified)?
    2. Four hierarchies come from `three_phase(nodes, inside, between)`: ring_to_master or
       tree.reduce, ring or halving-doubling. How many steps in the node does the tree save for
       k = 8, what does it cost, and up to which size does it pay? And is recursive doubling between
       the masters ever better?
    3. A launcher assigns ranks round robin: 0, 4 on node 0, 1, 5 on node 1, ... What does the flat
       ring lose? Repair it.

A COLLEAGUE SAYS the following, and is wrong. Show it. (answers: lessons/teaching/10.md)
    a. "A hierarchy is always better than a flat ring." -v: "Where the flat ring overtakes".
    b. "The fewest steps win." -v: recursive doubling, shortest and longest vector.
    c. "It pays because of the slow link; the bus does not matter." --inside 32gbit -v (default:
       PCIe 3.0).
"""

import refgf.launch  # noqa: F401  before MPI starts

from collections.abc import Iterator
import numpy as np

import kit
from kit import placement
from lab.hierarchy import node_links, oracle, steps, times
from lab.hierarchy.claims import REVEAL
from lab.hierarchy.picture import draw
from lab.hierarchy.times import RING, SPLITS
from refgf.comm import ring, tree
from refgf.papers.jia import doubling

# ---- the idea, for all ranks in one process ----


def ring_sum(vectors: list[np.ndarray]) -> np.ndarray:
    """Slice s is summed around the ring, from rank s on. (n,) of each of p ranks -> (n,)"""
    p = len(vectors)
    slices = [np.array_split(x, p) for x in vectors]  # slices[rank][s]
    sums = []
    for s in range(p):
        total = slices[s][s]
        for hop in range(1, p):
            total = slices[(s + hop) % p][s] + total
        sums.append(total)
    return np.concatenate(sums)


def hierarchical_sums(gradients: list[np.ndarray], nodes: list[list[int]]) -> list[np.ndarray]:
    """gradients[rank] (n,), nodes: the ranks of each node -> the sum that each rank holds, (n,)"""
    masters = [ring_sum([gradients[rank] for rank in node]) for node in nodes]  # 1 fast links
    total = ring_sum(masters)  # 2 slow links: one rank of each node
    held = [None] * len(gradients)
    for node in nodes:
        for rank in node:
            held[rank] = total.copy()  # 3 fast links
    return held


# ---- one step: each algorithm is a schedule, a list of messages for each rank ----


def candidates(nodes: list[list[int]]) -> dict:
    """All algorithms that can run on these nodes."""
    equal = len({len(node) for node in nodes}) == 1
    split = {name: make(nodes) for name, make in SPLITS.items() if equal or "level" not in name}
    pairs = {
        "tree": tree.allreduce,
        "recursive doubling": doubling.recursive_doubling,
        "halving-doubling": doubling.halving_doubling,
    }
    return {RING: ring.allreduce} | split | pairs


# ---- the lesson ----


def measure(run: kit.Run) -> Iterator[dict]:
    nodes = placement.nodes(run)
    algorithms = candidates(nodes)
    oracle.check(run, algorithms)
    yield {"counted_by_formula": steps.show(run, nodes, algorithms)}
    yield times.measure(run, nodes, algorithms)


if __name__ == "__main__":
    lesson = kit.Lesson(__file__, __doc__, REVEAL, like="v100-56gbit")
    placement.argument(lesson)
    node_links.argument(lesson)
    lesson.main(measure, draw)
