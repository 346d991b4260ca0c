"""A23: what DiLoCo sends."""

from typing import Any

import numpy as np

from refgf.oracle.spec.calls import Outputs, select
from refgf.oracle.spec.case import Case, Given
from refgf.oracle.spec.draw import Draw, some_nodes
from refgf.oracle.spec.ring import shape_says
from refgf.oracle.spec.ring_steps import ring_traffic
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement


def diloco_traffic(
    n: int, p: int, nodes: int, steps: int, inner_steps: int, rank: int, itemsize: int = 4
) -> tuple[int, int]:
    """A23: T steps have T // H outer steps, each a ring over all ranks (R6): 2(p-1) messages, empty
    ones too, and 2n - len(slice r+1) - len(slice r+2) elements. An inner step sends nothing between
    nodes, and a ring in the node where that has more ranks than one. So with H a divisor of T bytes
    are those of synchronous training, divided by H. Start and velocity are not sent.

    Source: Douillard et al. 2023: one sum each H steps; the ring: chosen.

    -> (messages, bytes)
    """
    k, (messages, elements) = p // nodes, ring_traffic(n, p, rank)
    inside, elements_inside = ring_traffic(n, k, rank % k)
    outer = steps // inner_steps
    return (
        outer * messages + steps * inside,
        itemsize * (outer * elements + steps * elements_inside),
    )


def run_traffic(module: Any, case: Case) -> Outputs:
    given = select(case, "n", "p", "nodes", "steps", "inner_steps").values()
    p, itemsize = case.arguments["p"], case.arguments["itemsize"]
    sent = [module.diloco_traffic(*given, rank, itemsize) for rank in range(p)]
    return {"out.traffic": np.array(sent, np.int64)}


A23 = Statement("A23", diloco_traffic)
SENT = {"traffic": ("rank", "messages, bytes")}
TRAFFIC = JudgedFunction(diloco_traffic, "A23", SENT, run=run_traffic)


@TRAFFIC.fresh
def any_traffic(d: Draw) -> Given:
    """Few ranks and steps: an implementation may count by sending."""
    p = min(d.p, 12)
    shape = {"n": d.n, "p": p, "nodes": len(some_nodes(d.rng, p, True))}
    return {**shape, "steps": d.integer(1, 7), "inner_steps": d.integer(1, 4), "itemsize": 4}


@TRAFFIC.golden
def traffic_cases() -> Cases:
    for n, p, nodes, steps, inner_steps in (
        (5, 1, 1, 6, 2),
        (0, 4, 4, 6, 3),
        (3, 5, 5, 6, 2),
        (13, 4, 4, 7, 3),
        (13, 4, 4, 2, 3),
        (12, 3, 3, 5, 1),
        (29, 6, 3, 6, 3),
        (17, 6, 2, 7, 2),
    ):
        name = f"diloco-traffic-n{n}-p{p}-nodes{nodes}-{steps}-{inner_steps}"
        why = f"{steps} steps, H = {inner_steps}, {p // nodes} ranks a node; {shape_says(p, n)}"
        given: Given = {"n": n, "p": p, "nodes": nodes, "steps": steps, "inner_steps": inner_steps}
        yield TRAFFIC.case(name, why, **given, itemsize=4)


A23.given("every step sends, as synchronous training does", inner_steps=lambda h: 1)


@A23.mistake("the ring in the node is not counted")
def inside_not_counted(n, p, nodes, steps, inner_steps, rank, itemsize=4):
    return diloco_traffic(n, p, p, steps, inner_steps, rank, itemsize)


@A23.mistake("steps after the last outer step count as H")
def rest_counts(n, p, nodes, steps, inner_steps, rank, itemsize=4):
    whole = -(-steps // inner_steps) * inner_steps
    return diloco_traffic(n, p, nodes, whole, inner_steps, rank, itemsize)


@A23.mistake("the new start is broadcast after the sum, by a ring of n elements")
def broadcast_too(n, p, nodes, steps, inner_steps, rank, itemsize=4):
    messages, nbytes = diloco_traffic(n, p, nodes, steps, inner_steps, rank, itemsize)
    outer = steps // inner_steps
    return messages + outer * (p > 1), nbytes + outer * (p > 1) * n * itemsize


@A23.mistake("the outer velocity is summed as well as the differences")
def velocity_too(n, p, nodes, steps, inner_steps, rank, itemsize=4):
    outer = diloco_traffic(n, p, p, steps, inner_steps, rank, itemsize)
    all_sent = diloco_traffic(n, p, nodes, steps, inner_steps, rank, itemsize)
    return tuple(a + b for a, b in zip(all_sent, outer))


@A23.mistake("the mean over the ranks, 2n (p-1)/p, where slices differ")
def mean_traffic(n, p, nodes, steps, inner_steps, rank, itemsize=4):
    messages, _ = diloco_traffic(n, p, nodes, steps, inner_steps, rank, itemsize)
    k, outer = p // nodes, steps // inner_steps
    return messages, itemsize * (outer * 2 * n * (p - 1) // p + steps * 2 * n * (k - 1) // k)
