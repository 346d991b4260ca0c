r"""Lesson 10: hierarchical allreduce - fast links inside a node, slow links between nodes.

    python -m refgf.cluster run --like v100-56gbit --ranks-per-node 2 -- \
        python lessons/10_hierarchical_allreduce.py                    (--inside RATE, --quick, ...)
    mpiexec -n 8 python lessons/10_hierarchical_allreduce.py           every rank is its own node

QUESTION    A flat ring takes 2(p-1) steps, and every step is as slow as its slowest link. Ranks of
            one node can communicate faster. Does it pay to treat them differently, and up to which
            size?
IDEA        Sum inside each node first. Let one rank of each node, its master, sum over the nodes.
            Then broadcast the result inside the nodes (Jia et al. 2018):

                node 0   0 <- 1         0 <---+         0 -> 1
                node 1   2 <- 3         2 <---+         2 -> 3
                         1 reduce       2 masters       3 broadcast

            Besch & Pohl (1995) use a tree. Others pair ranks that differ in one bit. All are
            schedules, lists of messages, and can be combined: a tree in the node and
            halving-doubling between masters are three phases in the fewest steps, "log phases".
            (refgf/comm/tree.py, refgf/papers/jia/hierarchical.py, doubling.py)
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
                any allreduce                     at least 2(m-1)/m n

            The time of each is that of its messages, in the order of the schedule. A message of b
            bytes takes alpha + beta b of its link, and ranks of a node share one link to the
            others. A rank waits alpha for each message to another node. Then its link sends while
            the rank goes on (lessons/lab/buffered_sends.py). Left out: ranks share the cores of
            this machine.

Before you run it, write down: with 4 nodes of 2 ranks, how many times as fast as the flat ring is
the sum of 1 KiB in three phases? And of 16 MiB? From which size on is the flat ring faster?

This is weak scaling: each rank brings a vector of n bytes, whatever p is. The links inside a node
are slowed down like those between nodes: see `--inside`. Only the rate of the bus is emulated
inside a node, not its latency.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/10_hierarchical_allreduce.py)
    1. For p = 1024, which k makes three phases shortest, counted in steps? Is it the paper's 16?
    2. Four hierarchies come from `three_phase(nodes, inside, between)`: ring_to_master or
       tree.reduce, ring or halving-doubling. How many steps in the node does the tree save for
       k = 8, what does it cost, and up to which size does it pay? And is recursive doubling between
       the masters ever better?
    3. A launcher assigns ranks round robin: 0, 4 on node 0, 1, 5 on node 1, ... What does the flat
       ring lose? Repair it.
"""

import refgf.launch  # noqa: F401  before MPI starts

import numpy as np

import kit
from kit import placement
from kit.claims import GAIN, LIMIT, NOISE, Claim
from lab import hierarchy_steps, hierarchy_times, node_links
from lab.hierarchy_picture import draw
from lab.hierarchy_times import ITEMSIZE, RING, SPLITS
from lab.hierarchy_values import crossing_error, emulated, known, longest, on_nodes, shortest
from refgf.comm import ring, tree
from refgf.comm.replay import replay
from refgf.comm.schedule import collective
from refgf.comm.slices import length
from refgf.oracle.definitions import exact_sum, same_bits, summation_bound
from refgf.papers.jia import doubling


CLAIMS = (
    Claim(
        "For the shortest vector three phases beat the flat ring: 2(m-1) slow steps, not 2(p-1).",
        on_nodes(lambda r: (shortest(r, "three phases"), "<", shortest(r, RING))),
        unless="steps inside a node that take as long as those between nodes",
        kind=GAIN,
    ),
    Claim(
        "For the shortest vector recursive doubling beats three phases: log2 m slow steps.",
        emulated(lambda r: (shortest(r, "recursive doubling"), "<", shortest(r, "three phases"))),
        unless="the processor's work for each message",
    ),
    Claim(
        "For the longest vector the flat ring beats three phases, which send all bytes over the "
        "bus of a node.",
        on_nodes(lambda r: (longest(r, RING), "<", longest(r, "three phases"))),
        unless="a bus that is much faster than the link between nodes",
        kind=LIMIT,
    ),
    Claim(
        "With a bus that is not slowed down, the two-level ring beats the flat ring for the "
        "longest vector.",
        on_nodes(lambda r: (longest(r, "two-level ring", "free"), "<", longest(r, RING, "free"))),
        unless="the processor's work inside a node",
        expected=NOISE,
    ),
    Claim(
        "For the longest vector no allreduce can be 1.25 times as fast as the flat ring.",
        emulated(lambda r: (longest(r, RING), "<", r["points"][-1]["least_s"], 1.25)),
        unless="few nodes: the ring sends (p-1)/p m/(m-1) times the least bytes",
    ),
    Claim(
        "The bytes that leave a node, counted, equal the formulas.",
        lambda r: known(r["counted_by_formula"], "<", 1, 1.0001),
        unless="p or m that is not a power of two",
    ),
    Claim(
        "The sizes from which the flat ring beats three phases and recursive doubling were "
        "predicted within a factor of 2.",
        on_nodes(lambda r: known(crossing_error(r), "<", 1, 2)),
        unless="times that are almost equal over a range of sizes",
    ),
    Claim(
        "Where the prediction changes with k by more than a tenth, the time changes in the same "
        "direction.",
        on_nodes(lambda r: known(r["trends_predicted"], ">", 0.99)),
        unless="the processor's work, which falls with the number of messages",
    ),
)


def candidates(nodes) -> dict:
    """All algorithms that can run on these nodes."""
    equal = len({len(node) for node in nodes}) == 1
    split = {name: make(nodes) for name, make in SPLITS.items() if equal or "level" not in name}
    return (
        {RING: ring.allreduce}
        | split
        | {
            "tree": tree.allreduce,
            "recursive doubling": doubling.recursive_doubling,
            "halving-doubling": doubling.halving_doubling,
        }
    )


def measure(run: kit.Run) -> dict:
    nodes = placement.nodes(run)
    algorithms = candidates(nodes)
    check_against_oracle(run, algorithms)
    largest_ratio = hierarchy_steps.show(run, nodes, algorithms)
    place = node_links.find(run, nodes)
    run.section("Time against size")
    exponents = 10, 12, 14, 16, 18, 20, 22, 24
    sizes = [1 << k for k in run.quick((10, 16), exponents, (*exponents, 26))]
    points = hierarchy_times.sweep(run, place, algorithms, sizes)
    crossings = hierarchy_times.crossings(run, points)
    free = []
    if place.free:
        run.section("The same with a bus that is not slowed down")
        some = {name: algorithms[name] for name in (RING, *SPLITS) if name in algorithms}
        free = hierarchy_times.sweep(run, place.free, some, [sizes[0], sizes[-1]])
    by_k = hierarchy_times.sweep_ranks_per_node(run, nodes, place)
    hierarchy_steps.at_scale(run)
    return {
        "nodes": nodes,
        "node_of_rank": place.node_of_rank,
        "inside": run.options.inside if free else None,
        "link": {"inside": vars(place.inside), "between": vars(place.between)},
        "emulated": run.regime.like is not None and run.size > 1,
        "points": points,
        "free": free,
        "by_k": by_k,
        "crossings": crossings,
        "counted_by_formula": largest_ratio,
        "trends_predicted": hierarchy_times.agreement(by_k),
    }


def check_against_oracle(run: kit.Run, algorithms) -> None:
    """Equal bits on all ranks, those of the replay and within the bound; messages as scheduled."""
    run.section("The oracle")
    for name, algorithm in algorithms.items():
        for n in (0, 1, run.size - 1, run.size + 1, 1000):
            everybody = [
                np.random.default_rng([n, r]).standard_normal(n).astype(np.float32)
                for r in range(run.size)
            ]
            schedules = [algorithm(r, run.size, n) for r in range(run.size)]
            x = everybody[run.rank].copy()
            run.comm.reset()
            collective(run.comm, algorithm)(x)
            where = f"{name} on rank {run.rank}, {n} elements"
            if not all(same_bits(x, other) for other in replay(schedules, everybody)):
                raise AssertionError(f"{where}: got other bits than the replayed schedules")
            error = np.abs(x.astype(np.float64) - exact_sum(everybody))
            if not (error <= summation_bound(everybody)).all():
                raise AssertionError(f"{where}: got an error above the bound of the summation")
            sends = [step.send for step in schedules[run.rank] if step.send_to is not None]
            got = run.comm.messages, run.comm.bytes
            wanted = len(sends), ITEMSIZE * sum(map(length, sends))
            if got != wanted:
                raise AssertionError(f"{where}: got (messages, bytes) {got}; wanted {wanted}")
    run.say("every algorithm, vectors of 0, 1, p-1, p+1 and 1000 elements:")
    run.say("    the same bits on all ranks, those of the replayed schedules")
    run.say("    messages and bytes as in the schedules")


if __name__ == "__main__":
    lesson = kit.Lesson(
        __file__,
        __doc__,
        like="v100-56gbit",
        claims=CLAIMS,
        picture="Time of seven allreduce algorithms against the size of the vector, and their gain "
        "over the flat ring; time against the ranks that are taken to share a node.",
    )
    placement.argument(lesson)
    node_links.argument(lesson)
    lesson.main(measure, draw)
