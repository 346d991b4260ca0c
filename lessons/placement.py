"""Which ranks share a node: the real ones, or pretended ones where there is only one node or --ranks-per-node is given."""

import kit
from refgf.comm.hierarchical import blocks
from refgf.comm.topology import nodes as nodes_of


def argument(lesson: kit.Lesson) -> None:
    lesson.argument("--ranks-per-node", type=kit.positive, metavar="K", help="take blocks of K ranks for nodes")


def nodes(run: kit.Run, pretended: int = 2) -> list[list[int]]:
    """The ranks of each node. Collective."""
    found = nodes_of(run.plain)
    if len(found) > 1 and not run.options.ranks_per_node:
        run.say(f"nodes: {found}")
        return found
    found = blocks(run.size, run.options.ranks_per_node or pretended)
    run.say(f"nodes, PRETENDED (all links are alike here, or --ranks-per-node was given): {found}")
    return found
