"""Which ranks share a node: real nodes, or pretended ones.

Nodes are pretended where there is only one real node, and with --ranks-per-node.
"""

import kit
from refgf.comm import gather
from refgf.papers.jia.hierarchical import consecutive_nodes
from refgf.comm.topology import nodes as nodes_of
from refgf.papers.mstopk.topk import HiTopK, exact_top_k


def argument(lesson: kit.Lesson) -> None:
    lesson.argument(
        "--ranks-per-node", type=kit.positive, metavar="K", help="treat blocks of K ranks as nodes"
    )


def nodes(run: kit.Run, pretended: int = 2) -> list[list[int]]:
    """The ranks of each node. Collective."""
    found = nodes_of(run.plain)
    if len(found) > 1 and not run.options.ranks_per_node:
        run.say(f"nodes: {found}")
        return found
    found = consecutive_nodes(run.size, run.options.ranks_per_node or pretended)
    run.say(f"nodes, PRETENDED (all links are equal here, or --ranks-per-node was given): {found}")
    return found


def equal_nodes(run: kit.Run) -> list[list[int]]:
    """Nodes of equal size, which HiTopKComm needs."""
    found = nodes(run, pretended=2 if run.size % 2 == 0 else 1)
    if len({len(node) for node in found}) > 1:
        raise ValueError(
            f"HiTopKComm: got nodes {found}; wanted equally many ranks on each; "
            "next: --ranks-per-node 1"
        )
    return found


def hitopk(comm, nodes, n: int, percent: float, select=exact_top_k) -> HiTopK:
    """HiTopKComm over these nodes."""
    node = next(node for node in nodes if comm.Get_rank() in node)
    owners = [other[node.index(comm.Get_rank())] for other in nodes]
    return HiTopK(
        n,
        percent,
        gather.reduce_scatter(comm, node),
        gather.allgather(comm, owners),
        gather.allgather_slices(comm, node),
        select,
    )
