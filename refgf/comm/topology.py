"""Which ranks share a node."""

import platform


def nodes(comm) -> list[list[int]]:
    """The ranks of each node, nodes in order of their lowest rank. Collective: one allgather of host names.

    Nodes are told apart by host name, as launchers do; the nodes of an emulated cluster have one each.
    """
    names = comm.allgather(platform.node())
    return [[rank for rank, other in enumerate(names) if other == name] for name in dict.fromkeys(names)]


def local_rank(comm) -> int:
    """This rank's number among the ranks of its node. Collective."""
    rank = comm.Get_rank()
    return next(node.index(rank) for node in nodes(comm) if rank in node)
