"""The project's hierarchies and top-k behind the names and arguments of SPEC.md. Part of own.py."""

import numpy as np

from refgf.comm import gather, tree
from refgf.comm.schedule import collective
from refgf.comm.slices import length, slices
from refgf.machine import threads
from refgf.machine.trace import TracedComm
from refgf.papers.jia import doubling, hierarchical
from refgf.papers.mstopk.hitopk_pairs import HiTopKPairs
from refgf.papers.mstopk.topk import HiTopK, TopK, exact_top_k, keep_count, mstopk  # noqa: F401

ALGORITHMS = {
    "tree": lambda a: [tree.allreduce],
    "recursive_doubling": lambda a: [doubling.recursive_doubling],
    "halving_doubling": lambda a: [doubling.halving_doubling],
    "doubling": lambda a: [doubling.recursive_doubling, doubling.halving_doubling],  # the same bits
    "three_phase": lambda a: [hierarchical.three_phase(a["nodes"])],
    "two_level": lambda a: [hierarchical.two_level_ring(a["nodes"])],
    "log_phases": lambda a: [hierarchical.log_phases(a["nodes"])],
    "hybrid": lambda a: [hierarchical.hybrid(a["nodes"], a["threshold"])],
}
top_k = exact_top_k
SUMS = tuple(
    f"{name}_allreduce"
    for name in ("tree", "doubling", "three_phase", "two_level", "log_phases", "hybrid")
)
RUNS = ("topk_run", "hitopk_run")


def schedule_traffic(algorithm, n, nodes, rank):
    (make,) = ALGORITHMS[algorithm]({"nodes": nodes})
    sends = [
        length(step.send)
        for step in make(rank, sum(map(len, nodes)), n)
        if step.send_to is not None
    ]
    return len(sends), sum(sends)


def topk_traffic(n, nodes, percent, rank, hierarchical=False):
    """Counted."""

    def body(comm):
        traced = TracedComm(comm)
        sparse(traced, n, percent, nodes if hierarchical else None)(np.ones(n, np.float32))
        return traced.messages, traced.bytes

    return threads.run(sum(map(len, nodes)), body)[rank]


def hitopk_pairs_traffic(n, nodes, percent, rank):
    """Counted."""

    def body(comm):
        traced = TracedComm(comm)
        node = next(node for node in nodes if comm.Get_rank() in node)
        owners = [other[node.index(comm.Get_rank())] for other in nodes]
        HiTopKPairs(
            n,
            percent,
            len(node),
            gather.reduce_scatter(traced, node),
            gather.allgather(traced, owners),
            gather.allgather(traced, node),
        )(np.ones(n, np.float32))
        return traced.messages, traced.bytes

    return threads.run(sum(map(len, nodes)), body)[rank]


def sparse(comm, n, percent, nodes=None):
    if nodes is None:
        return TopK(n, percent, gather.allgather(comm))
    node = next(node for node in nodes if comm.Get_rank() in node)
    owners = [other[node.index(comm.Get_rank())] for other in nodes]
    return HiTopK(
        n,
        percent,
        gather.reduce_scatter(comm, node),
        gather.allgather(comm, owners),
        gather.allgather_slices(comm, node),
    )


def sum_on_rank(comm, case):
    """This rank's result of every algorithm that the case is about."""
    found = []
    for algorithm in ALGORITHMS[case.function.removesuffix("_allreduce")](case.arguments):
        found.append(case["in.x"][comm.Get_rank()].copy())
        collective(comm, algorithm, case.arguments["wire"])(found[-1])
    wanted = case["out.x"][comm.Get_rank()].tobytes()
    # one that is wrong, if there is one
    return {"out.x": next((x for x in found if x.tobytes() != wanted), found[0])}


def run_on_rank(comm, case):
    rank, gs = comm.Get_rank(), case["in.g"]
    n = gs.shape[2]
    exchange, rows = sparse(comm, n, case.arguments["percent"], case.arguments.get("nodes")), []
    for step in gs:
        x = step[rank].copy()
        exchange(x)
        kept, own = np.zeros_like(x), slice(0, n)
        if "nodes" in case.arguments:
            own = own_slice(case.arguments["nodes"], rank, n)
        kept[own] = exchange.feedback.residual
        rows.append({"out.x": x, "out.kept": kept})
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def own_slice(nodes, rank, n):
    """The slice that a rank owns after the reduce-scatter in its node."""
    node = next(node for node in nodes if rank in node)
    return slices(n, len(node))[(node.index(rank) + 1) % len(node)]
