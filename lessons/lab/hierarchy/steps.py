"""Steps, messages and bytes of allreduce algorithms on nodes, counted, for lesson 10."""

from math import log2

import numpy as np

import kit
from lab.hierarchy.node_links import node_of_rank
from refgf.comm.replay import check
from refgf.comm.schedule import Algorithm, collective

COUNTED_BYTES = 1 << 16  # of the vector whose bytes between nodes are counted


def formula(name: str, p: int, m: int) -> float:
    """Vectors that leave the busiest node; for powers of two, and nodes of neighbouring ranks."""
    others = 2 * (m - 1) / m
    vectors = {
        "flat ring": 2 * (p - 1) / p,
        "tree": log2(m),
        "recursive doubling": p / m * log2(m),
    }
    return vectors.get(name, others)


def show(run: kit.Run, nodes, algorithms: dict[str, Algorithm]) -> float | None:
    """One row for each algorithm; the largest of counted bytes / formula and its inverse.

    None where p or m is not a power of two.
    """
    run.section("One step: who sends what")
    p, m, rows, ratios = run.size, len(nodes), [], []
    powers = m > 1 and p & (p - 1) == m & (m - 1) == 0 and p == m * len(nodes[0])
    for name, algorithm in algorithms.items():
        schedules = [algorithm(rank, p, 1000) for rank in range(p)]
        check(schedules)
        busiest = max(sum(step.op != "finish" for step in schedule) for schedule in schedules)
        messages = sum(step.send_to is not None for schedule in schedules for step in schedule)
        counted = bytes_leaving_a_node(run, nodes, algorithm) / COUNTED_BYTES
        wanted = formula(name, p, m) if powers else None
        ratios += [max(counted / wanted, wanted / counted)] if powers else []
        rows.append([name, busiest, messages, f"{counted:.4g}", f"{wanted:.4g}" if powers else "-"])
    head = "algorithm", "busiest rank's steps", "messages", "vectors leave a node", "by formula"
    run.table(list(head), rows)
    at_scale(run)
    return max(ratios, default=None)


def bytes_leaving_a_node(run: kit.Run, nodes, algorithm: Algorithm) -> int:
    """Bytes that the busiest node sends to other nodes in one call, counted. Collective."""
    where = node_of_rank(nodes)
    run.comm.reset()
    collective(run.comm, algorithm)(run.xp.zeros(COUNTED_BYTES // 4, np.float32))
    peers = run.comm.peers.items()
    mine = sum(sent for peer, (_, sent) in peers if where[peer] != where[run.rank])
    everybody = run.gather(mine)
    return max(sum(everybody[rank] for rank in node) for node in nodes)


def at_scale(run: kit.Run) -> None:
    """Steps of clusters as large as the paper's."""
    run.section("Steps at the paper's scale")
    rows = [
        [p, k, 2 * (p - 1), 4 * (k - 1) + 2 * (p // k - 1), 2 * (p.bit_length() - 1)]
        for p, k in ((64, 8), (512, 8), (1024, 16), (2048, 16))
    ]
    three, logs = "three phases 4(k-1) + 2(p/k-1)", "log phases 2 log2 k + 2 log2 p/k"
    run.table(["p", "k", "flat ring 2(p-1)", three, logs], rows)
