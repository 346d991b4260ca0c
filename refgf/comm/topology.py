"""Which ranks share a node."""

import platform

from refgf.comm.arguments import Comm


def nodes(comm: Comm) -> list[list[int]]:
    """The ranks of each node; nodes in order of their lowest rank. Collective.

    Nodes are distinguished by host name; the nodes of an emulated cluster have one each. Cost: one
    allgather of host names.
    """
    names = comm.allgather(platform.node())
    return [[r for r, other in enumerate(names) if other == name] for name in dict.fromkeys(names)]
