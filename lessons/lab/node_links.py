"""alpha, beta and gamma of the links inside and between nodes, for lesson 10.

link = node_links.measure(run, nodes)       {"inside": Link, "between": Link}
"""

from dataclasses import replace

import numpy as np

import kit
from refgf.predict.cost import Link
from refgf.predict.fit import fit_line


def measure(run: kit.Run, nodes: list[list[int]]) -> dict[str, Link]:
    """Inside nodes with all ranks at once, between nodes with the masters only. Collective."""
    run.section("alpha and beta, inside and between nodes")
    i, j = next((i, node.index(run.rank)) for i, node in enumerate(nodes) if run.rank in node)
    masters = [node[0] for node in nodes]
    groups = {"inside": nodes[i], "between": masters if j == 0 else [run.rank]}
    largest = {"inside": max(map(len, nodes)), "between": len(nodes)}
    links, rows = {}, []
    gamma = addition_s_per_byte(run)
    for name, group in groups.items():
        sizes = run.quick([64, 65536], [64, 4096, 65536, 1 << 20])
        points = [(nbytes, sendrecv_s(run, group, nbytes)) for nbytes in sizes]
        fit = Link(0, 0)
        if largest[name] > 1 and all(t > 0 for _, t in points):
            fit = fit_line(points).link
        if name == "between" and fit.beta_s_per_byte:  # a shaper lets short messages pass at once
            fit = replace(fit, beta_s_per_byte=fit_line(points[-2:]).link.beta_s_per_byte)
        links[name] = Link(fit.alpha_s, fit.beta_s_per_byte, gamma)
        rate = f"{1e-9 / fit.beta_s_per_byte:.3g} GB/s" if fit.beta_s_per_byte else "-"
        rows.append([name, kit.seconds(fit.alpha_s), rate])
    run.table(["", "alpha", "1 / beta"], rows)
    return links


def sendrecv_s(run: kit.Run, group: list[int], nbytes: int) -> float:
    """One Sendrecv to the right neighbour in the group's ring: median, averaged over eight.

    All groups send at once. A group of one rank only waits.
    """
    outgoing, incoming = np.zeros(nbytes, np.uint8), np.zeros(nbytes, np.uint8)
    place = group.index(run.rank)
    right, left = group[(place + 1) % len(group)], group[place - 1]

    def eight():
        for _ in range(8 if len(group) > 1 else 0):
            run.comm.Sendrecv(outgoing, right, 0, incoming, left, 0)

    return run.time(eight, run.quick(5, 15), warmup=2).median_s / 8


def addition_s_per_byte(run: kit.Run) -> float:
    """Seconds per byte of adding one vector to another, all ranks at once."""
    x, y = np.zeros(1 << 18, np.float32), np.ones(1 << 18, np.float32)
    return run.time(lambda: np.add(x, y, out=x), 5).median_s / x.nbytes
