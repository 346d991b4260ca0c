"""H8: a tree in each node, doubling over the nodes' first ranks."""

import numpy as np

from refgf.oracle.spec.calls import RANK_ELEMENT, allreduce
from refgf.oracle.spec.hierarchy.flat import (
    doubling_allreduce,
    tree_allreduce,
    tree_root_unrounded,
)
from refgf.oracle.spec.hierarchy.nodes import (
    LONG_NODE,
    NODES,
    Nodes,
    any_nodes,
    node_slices,
    proving,
)
from refgf.oracle.spec.hierarchy.three_phases import three_phase_allreduce
from refgf.oracle.spec.precision.wire import on_wire
from refgf.oracle.spec.ring import Arrays, ring_allreduce
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement, differs_with


def log_phases_allreduce(xs: Arrays, nodes: Nodes, wire: str | None = None) -> Arrays:
    """H8: log phases: the sum of a node of k ranks as in H1, with its ranks numbered as the node
    lists them; the first rank rounds the finished sum; then H2, H3 over these masters, numbered as
    the nodes.

    Source: three phases as in H4, made of H1 and H2: chosen.
    """
    masters = [tree_allreduce([xs[r] for r in node], wire)[0] for node in nodes]
    return [doubling_allreduce(masters, wire)[0] for _ in xs]


H8 = Statement("H8", log_phases_allreduce)
LOG = JudgedFunction(
    log_phases_allreduce,
    "H8",
    RANK_ELEMENT,
    "x",
    run=allreduce("log_phases_allreduce", "nodes", "wire"),
)
LOG.fresh(any_nodes)
H8.given(
    "nodes beyond the power of two are left out",
    nodes=lambda nodes: nodes[: 1 << (len(nodes).bit_length() - 1)],
)


@LOG.golden
def phases() -> Cases:
    for where, nodes in (NODES | LONG_NODE).items():
        for n, wire in ((29, None), (29, "float16"), (1, None), (0, None)):
            name = f"log-phases-{where}-n{n}" + (f"-wire-{wire}" if wire else "")
            case = proving(LOG, name, "H8", n, "sensitive", nodes=nodes, wire=wire)
            if where in LONG_NODE and n > 8:
                for other in (three_phase_allreduce, ring_over_masters):
                    shows = differs_with(case, log_phases_allreduce=other)
                    case.shows(shows, "tree and doubling show")
            yield case


@H8.mistake("a node's sum is formed around its ring")
def log_phases_by_ring(xs, nodes, wire=None):
    masters = [np.concatenate(node_slices([xs[r] for r in node], wire)) for node in nodes]
    return [doubling_allreduce([on_wire(x, wire) for x in masters], wire)[0] for _ in xs]


@H8.mistake("the ring runs over the masters")
def ring_over_masters(xs, nodes, wire=None):
    masters = [tree_allreduce([xs[r] for r in node], wire)[0] for node in nodes]
    return [ring_allreduce(masters, wire)[0] for _ in xs]


@H8.mistake("nodes are ignored: one tree over all ranks, in the order of their numbers")
def nodes_forgotten(xs, nodes, wire=None):
    return tree_allreduce(xs, wire)


@H8.mistake("the master does not round its node's sum")
def master_unrounded(xs, nodes, wire=None):
    masters = [tree_root_unrounded([xs[r] for r in node], wire)[0] for node in nodes]
    return [doubling_allreduce(masters, wire)[0] for _ in xs]
