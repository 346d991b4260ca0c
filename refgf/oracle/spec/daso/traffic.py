"""A12, A20: what each rank sends in an epoch."""

from typing import Any

import numpy as np

from refgf.oracle.spec.calls import Outputs, Run, select
from refgf.oracle.spec.case import Case, Given
from refgf.oracle.spec.csc.importance import chunk_bounds
from refgf.oracle.spec.daso.batches import (
    BLOCKING,
    Phase,
    daso_averaged,
    daso_sender,
    daso_wait,
)
from refgf.oracle.spec.daso.heat import heat_averaged, heat_roots
from refgf.oracle.spec.daso.run import two_epochs
from refgf.oracle.spec.draw import Draw, some_nodes
from refgf.oracle.spec.ring_steps import ring_traffic
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement

# ---- A12: as described ----


def daso_traffic(
    n: int,
    p: int,
    nodes: int,
    batches: int,
    phase: Phase,
    chunk: int = 10_000_000,
    itemsize: int = 4,
    wire_itemsize: int = 2,
) -> list[tuple[int, int]]:
    """A12: messages and bytes: the rings of A3 and A7, and a binomial tree in the node for A8: H1
    reversed, ranks counted from the member on, one message of n elements of 4 bytes to each child.
    What the last batch replaces is not broadcast.

    Source: the tree chosen; Heat's broadcasts: A20.

    Blocking phases send wire_itemsize bytes a number. -> [(messages, bytes)] * p
    """
    k, sent = p // nodes, []
    for rank in range(p):
        messages = nbytes = 0
        for b in range(batches):
            number, waited = daso_sender(b, batches, phase[0], k), daso_wait(b, batches, phase)
            calls = []  # (messages, elements, bytes of an element)
            if daso_averaged(b, batches, phase):
                calls.append((*ring_traffic(n, k, rank % k), itemsize))
            if number == rank % k:
                size = itemsize if phase[0] else wire_itemsize
                for i, j in chunk_bounds(n, chunk):
                    calls.append((*ring_traffic(j - i, nodes, rank // k), size))
            if number is not None and (waited == 0 or b + waited < batches - 1):
                children = tree_children((rank - number) % k, k)
                calls.append((children, children * n, itemsize))
            messages += sum(count for count, _, _ in calls)
            nbytes += sum(elements * size for _, elements, size in calls)
        sent.append((messages, nbytes))
    return sent


def tree_children(place: int, k: int) -> int:
    """How many ranks the one at this place of a binomial tree over k ranks sends to."""
    distances = [2**i for i in range(k.bit_length())]
    return sum(place + d < k and place % (2 * d) == 0 for d in distances)


def traffic_of(name: str) -> Run:
    def run(module: Any, case: Case) -> Outputs:
        settings = select(case, "n", "p", "nodes", "batches").values()
        phase, chunk = tuple(case.arguments["phase"]), case.arguments["chunk"]
        traffic = getattr(module, name)(*settings, phase, chunk)
        return {"out.traffic": np.array(traffic, np.int64)}

    return run


A12 = Statement("A12", daso_traffic)
A12.given("blocking phases are counted at 4 bytes a number", wire_itemsize=lambda size: 4)
AXES = {"traffic": ("rank", "messages, bytes")}
TRAFFIC = JudgedFunction(daso_traffic, "A12", AXES, run=traffic_of("daso_traffic"))


@TRAFFIC.fresh
def any_epoch(d: Draw, beyond: int = 0) -> Given:
    """A few chunks: an implementation may count by sending."""
    drawn = two_epochs(d, beyond)
    of_epoch = {"batches": drawn["batches"], "phase": drawn["phases"][d.integer(0, 1)]}
    p, chunk = min(d.p, 12), 1 + d.n // d.integer(1, 5)
    nodes = len(some_nodes(d.rng, p, True))
    return {"n": d.n, "p": p, "nodes": nodes, "chunk": chunk, **of_epoch}


def case_of(
    function: JudgedFunction, why: str, p: int, nodes: int, batches: int, phase: Phase
) -> Case:
    name = f"{function.name.replace('_', '-')}-p{p}-nodes{nodes}-{'-'.join(map(str, phase))}"
    where: Given = {"n": 17, "p": p, "nodes": nodes, "batches": batches}
    return function.case(name, why, **where, phase=list(phase), chunk=7)


@TRAFFIC.golden
def traffic_cases() -> Cases:
    for p, nodes, phase in [
        (6, 2, (3, 1, 2)),
        (6, 1, (2, 2, 1)),
        (5, 5, (1, 1, 1)),
        (10, 2, BLOCKING),
        (8, 4, (8, 3, 2)),
    ]:
        yield case_of(TRAFFIC, "every sender and place in the tree", p, nodes, 11, phase)


@A12.mistake("the tree in the node is not counted", tree_children)
def tree_not_counted(place, k):
    return 0


# ---- A20: as in Heat ----


def heat_traffic(
    n: int,
    p: int,
    nodes: int,
    batches: int,
    phase: Phase,
    chunk: int = 10_000_000,
    itemsize: int = 4,
    wire_itemsize: int = 2,
) -> list[tuple[int, int]]:
    """A20: `heat`: as A12, with a tree for each taking over, also for one that the last batch
    replaces.

    Source: Heat; ring and tree chosen.

    -> [(messages, bytes)] * p
    """
    k, sent = p // nodes, []
    for rank in range(p):
        calls = []  # (messages, elements, bytes of an element)
        for b in range(batches):
            number = daso_sender(b, batches, phase[0], k)
            if heat_averaged(b, batches, phase):
                calls.append((*ring_traffic(n, k, rank % k), itemsize))
            if number == rank % k:
                size = itemsize if phase[0] else wire_itemsize
                for i, j in chunk_bounds(n, chunk):
                    calls.append((*ring_traffic(j - i, nodes, rank // k), size))
            for root in heat_roots(b, batches, phase, k):
                children = tree_children((rank - root) % k, k)
                calls.append((children, children * n, itemsize))
        messages = sum(count for count, _, _ in calls)
        sent.append((messages, sum(elements * size for _, elements, size in calls)))
    return sent


A20 = Statement("A20", heat_traffic)
A20.mistake("nothing is taken over again: the traffic of A12")(daso_traffic)
A20.given(
    "blocking phases are counted at 4 bytes a number, as the others", wire_itemsize=lambda size: 4
)
HEAT_TRAFFIC = JudgedFunction(heat_traffic, "A20", AXES, run=traffic_of("heat_traffic"))
HEAT_TRAFFIC.fresh(lambda d: any_epoch(d, beyond=2))


@HEAT_TRAFFIC.golden
def heat_traffic_cases() -> Cases:
    for p, nodes, batches, phase in [
        (6, 2, 11, (3, 1, 2)),
        (8, 2, 11, (8, 2, 2)),
        (6, 3, 8, (4, 3, 2)),
        (6, 2, 7, (1, 1, 1)),
        (9, 3, 5, BLOCKING),
        (5, 5, 9, (4, 1, 1)),
    ]:
        why = "every sender, place in the tree, and taking over"
        yield case_of(HEAT_TRAFFIC, why, p, nodes, batches, phase)


@A20.mistake("what the last batch replaces is not counted", heat_roots)
def replaced_not_counted(b, batches, phase, groups):
    roots = heat_roots(b, batches, phase, groups)
    return roots[-1:] if b == batches - 1 else roots
