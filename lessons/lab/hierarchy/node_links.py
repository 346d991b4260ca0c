"""The links of lesson 10 inside and between nodes, and which ranks share a node.

    place = node_links.find(run, nodes)
    place.comm         the communicator on which algorithms are timed
    place.predicted_s(schedules, itemsize)

A cluster is slowed down as a whole, so links inside a node are too: each rank waits for its
messages to ranks of its node as long as a bus of the rate `--inside` would take. Messages between
nodes take the time of the emulated link, which all ranks of a node share.

Predictions take rates as they are set. They take the time of an empty message as it is measured:
the latency that is waited for, and this machine's own time, which is not to scale.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

import kit
from lab.hierarchy.buffered_sends import finish_s
from refgf.comm.schedule import Schedule
from refgf.comm.topology import nodes as nodes_of
from refgf.machine.link import LinkComm
from refgf.machine.units import parse_rate
from refgf.predict.cost import Link
from refgf.predict.fit import fit_line

# PCI Express 3.0, 16 lanes: 8 GT/s x 16 x 128/130. It is the most that such a bus allows; the 58.3
# Gbit/s inside refgf.cluster's v100-56gbit are what MG-WFBP's fit of an allreduce got from it.
PCIE = "126gbit"

IN_A_ROW = 8  # messages whose time is measured together


def argument(lesson: kit.Lesson) -> None:
    lesson.argument(
        "--inside",
        metavar="RATE",
        default=PCIE,
        help=f"links inside a node of the emulated cluster ({PCIE}: PCIe 3.0 with 16 lanes)",
    )


@dataclass(frozen=True)
class NodeLinks:
    """Which ranks share a node, and the links in this machine's time.

    node_of_rank     the node of each rank, as the links know it
    inside, between  Links for predictions
    comm             waits for messages inside a node too
    occupied         does a sender wait for its bytes too? So it is where the link is waited for
    free             NodeLinks without this wait; None if nothing waits inside a node
    """

    node_of_rank: Sequence[int]
    inside: Link
    between: Link
    comm: object
    occupied: bool = False
    free: "NodeLinks | None" = None

    @property
    def nodes(self) -> int:
        return len(set(self.node_of_rank))

    @property
    def shared(self) -> bool:
        """Do several ranks share a node?"""
        return self.nodes < len(self.node_of_rank)

    def predicted_s(self, schedules: Sequence[Schedule], itemsize: int) -> float:
        """Predicted seconds of a call."""
        links = self.node_of_rank, self.inside, self.between
        if self.occupied:
            links = [0] * len(self.node_of_rank), self.between, self.between
        return finish_s(schedules, itemsize, *links)


def find(run: kit.Run, nodes: list[list[int]]) -> NodeLinks:
    """The links of the regime, and the time of an empty message, measured. Collective."""
    run.section("The links")
    link, own = run.regime.goodput(), own_links(run, nodes)
    if link is None:  # this machine, or a real cluster: all is measured
        return shown(run, NodeLinks(node_of_rank(nodes), **own, comm=run.comm))
    waited = run.regime.links_are_waited_for
    real = [[rank] for rank in range(run.size)] if waited else nodes_of(run.plain)
    fast, masters = own["inside"], [node[0] for node in real]
    group = masters if run.rank in masters else [run.rank]
    alpha_s = max(link.alpha_s, sendrecvs(run, run.comm, group, 0).median_s / IN_A_ROW)
    between = Link(alpha_s, link.beta_s_per_byte, fast.gamma_s_per_byte)
    if waited:
        run.say("Every rank waits for a link of its own: every rank is its own node.")
        run.say("Nodes are pretended, so a step inside a node takes as long as one between nodes.")
        both = replace(between, beta_s_per_byte=link.beta_s_per_byte + fast.beta_s_per_byte)
        return shown(run, NodeLinks(node_of_rank(real), fast, both, run.comm, occupied=True))
    place = NodeLinks(node_of_rank(real), fast, between, run.comm)
    if not (place.shared and run.regime.like):
        return shown(run, place)
    bus = Link(0.0, run.regime.dilation / parse_rate(run.options.inside))
    inside = replace(fast, beta_s_per_byte=bus.beta_s_per_byte + fast.beta_s_per_byte)
    far = [r for r in range(run.size) if place.node_of_rank[r] != place.node_of_rank[run.rank]]
    waiting = run.comm.over(lambda comm: LinkComm(comm, bus, near=far))
    free = replace(place, inside=fast)
    return shown(run, replace(place, inside=inside, comm=waiting, free=free))


def shown(run: kit.Run, place: NodeLinks) -> NodeLinks:
    """Print the links, in the cluster's time if there is one."""
    scale, rows, links = run.regime.dilation, [], {"between": place.between}
    if place.shared:
        links = {"inside": place.inside} | links
    if place.free:
        links["inside, not slowed down"] = place.free.inside
    for name, link in links.items():
        beta = link.beta_s_per_byte
        rate = f"{1e-9 * scale / beta:.3g} GB/s" if beta else "-"
        rows.append([name, kit.seconds(link.alpha_s / scale), rate])
    whose = ", cluster's time" if scale != 1 else ""
    run.table([f"for predictions{whose}", "alpha", "1 / beta"], rows)
    return place


def node_of_rank(nodes: list[list[int]]) -> list[int]:
    return [i for _, i in sorted((rank, i) for i, node in enumerate(nodes) for rank in node)]


def own_links(run: kit.Run, nodes: list[list[int]]) -> dict[str, Link]:
    """{"inside", "between": Link}, measured without waiting, for this machine's own part.

    Inside nodes all ranks send at once, between nodes the masters only.
    """
    i, j = next((i, node.index(run.rank)) for i, node in enumerate(nodes) if run.rank in node)
    masters = [node[0] for node in nodes]
    groups = {"inside": nodes[i], "between": masters if j == 0 else [run.rank]}
    largest = {"inside": max(map(len, nodes)), "between": len(nodes)}
    gamma, links = addition_s_per_byte(run), {}
    for name, group in groups.items():
        sizes = run.quick([64, 65536], [64, 4096, 65536, 1 << 20])
        points = [
            (nbytes, sendrecvs(run, run.native, group, nbytes).low_s / IN_A_ROW) for nbytes in sizes
        ]
        fit = Link(0, 0)
        if largest[name] > 1 and all(t > 0 for _, t in points):
            fit = fit_line(points).link
        if name == "between" and fit.beta_s_per_byte:  # a shaper lets short messages pass at once
            fit = replace(fit, beta_s_per_byte=fit_line(points[-2:]).link.beta_s_per_byte)
        links[name] = Link(fit.alpha_s, fit.beta_s_per_byte, gamma)
    return links


def sendrecvs(run: kit.Run, comm, group: list[int], nbytes: int) -> kit.Timing:
    """IN_A_ROW times Sendrecv to the right neighbour in the group's ring; a group of one waits."""
    outgoing, incoming = np.zeros(nbytes, np.uint8), np.zeros(nbytes, np.uint8)
    place = group.index(run.rank)
    right, left = group[(place + 1) % len(group)], group[place - 1]

    def several():
        for _ in range(IN_A_ROW if len(group) > 1 else 0):
            comm.Sendrecv(outgoing, right, 0, incoming, left, 0)

    return run.time(several, run.quick(5, 15), warmup=2)


def addition_s_per_byte(run: kit.Run) -> float:
    """Seconds per byte of adding one vector to another, all ranks at once."""
    n = run.quick(1 << 18, 1 << 22)  # longer than the caches
    x, y = run.xp.zeros(n, np.float32), run.xp.ones(n, np.float32)
    return run.time(lambda: run.xp.add(x, y, out=x), 5).median_s / x.nbytes
