"""Cases of DASO: short epochs with every kind of batch.

Numbers are order-sensitive where the order of summation is stated.
"""

from collections.abc import Iterator

import numpy as np

from refgf.oracle.definitions import daso_run, daso_wait, same_bits
from refgf.oracle.judge.functions.daso import daso_settings
from refgf.oracle.seeded.generate.families import make, random_source, require
from refgf.oracle.spec.case import Case

N = 17
BLOCKING = [0, 0, 0]


def run_case(
    name: str, why: str, statements: str, p: int, nodes: int, batches: int, phases: list, **settings
) -> Case:
    """daso_run over as many epochs as there are phases [B, L, W]."""
    rng = random_source("daso" + name)
    w = rng.standard_normal(N).astype(np.float32)
    g = (rng.standard_normal((len(phases) * batches, p, N)) / p).astype(np.float32)
    arguments = {
        "nodes": nodes,
        "batches": batches,
        "phases": phases,
        "rate": 0.1,
        "momentum": 0.9,
        **settings,
    }
    return make(name, "daso_run", "A11 " + statements, why, arguments, w=w, g=g)


def blocking_cases() -> Iterator[Case]:
    why = (
        "blocking in every batch: parameters are rounded to bfloat16, groups take turns, "
        "momentum stays local"
    )
    case = run_case("daso-blocking", why, "A1 A3 A4 A7 A8", 4, 2, 5, [BLOCKING])
    require(ranks_agree(case).all(), case, "all ranks hold the same parameters after each batch")
    require(
        not same_bits(case["out.v"][-1, 0], case["out.v"][-1, 2]),
        case,
        "nodes have different momentum",
    )
    yield case
    why = "B = 1, W = 0: blocking, but not rounded"
    case = run_case("daso-every-batch", why, "A3 A4 A5 A7", 6, 3, 4, [[1, 1, 0]])
    require(ranks_agree(case).all(), case, "all ranks hold the same parameters after each batch")
    yield case
    why = "sums over three nodes, cut into chunks of 5: each has ring slices of its own"
    yield run_case("daso-chunks", why, "A7", 6, 3, 3, [[1, 1, 0]], chunk=5)


def cycling_cases() -> Iterator[Case]:
    why = (
        "B = 3, W = 2 in epochs of 8: the sum of batch 6 waits one batch instead of two; "
        "three groups take turns"
    )
    case = run_case("daso-shortened", why, "A1 A4 A5 A6 A8", 6, 2, 8, [[3, 1, 2], [3, 1, 2]])
    require(daso_wait(6, 8, (3, 1, 2)) == 1, case, "the last wait is shortened")
    require(
        ranks_agree(case)[7::8].all() and not ranks_agree(case)[:7].any(),
        case,
        "nodes differ but at the end of an epoch",
    )
    yield case
    yield run_case(
        "daso-every-batch-late",
        "B = W = 1: sent before the sum before is merged",
        "A5 A6",
        4,
        2,
        6,
        [[1, 1, 1]],
    )
    yield run_case(
        "daso-long-wait", "B = W = 4, four nodes of one rank", "A5 A6", 4, 4, 10, [[4, 1, 4]]
    )
    why = (
        "B = 8, L = 3, W = 2: gradients stay on the rank in batches 4, 5 and 7, but not "
        "while a sum is in flight"
    )
    case = run_case("daso-local-skip", why, "A2 A3 A4 A8", 4, 2, 12, [[8, 3, 2]])
    same = [same_bits(case["out.w"][t, 0], case["out.w"][t, 1]) for t in range(12)]
    require(
        same == [not 4 <= t <= 9 for t in range(12)],
        case,
        "a node's ranks part in batch 4 and meet in batch 10",
    )
    yield case


def other_cases() -> Iterator[Case]:
    why = "warm-up, cycling, cool-down: blocking epochs are rounded, the others not"
    yield run_case(
        "daso-training", why, "A4 A5 A6 A7", 4, 2, 6, [BLOCKING, [4, 1, 1], [2, 1, 1], BLOCKING]
    )
    why = "one node has no sum, and nothing is rounded; its ranks take over the parameters of one"
    yield run_case("daso-one-node", why, "A2 A8", 3, 1, 6, [[4, 2, 1], BLOCKING])
    yield run_case("daso-one-rank", "one rank is momentum SGD", "A3", 1, 1, 5, [[2, 1, 1]])
    rng = random_source("daso-merge")
    for waited in (0, 1, 3):
        w, total = rng.standard_normal((2, N)).astype(np.float32)
        arguments = {"nodes": 4, "waited": waited}
        yield make(
            f"daso-merge-{waited}",
            "daso_merge",
            "A6",
            f"after {waited} batches",
            arguments,
            w=w,
            total=4 * total,
        )


def phase_cases() -> Iterator[Case]:
    plateau = [1.0, 0.9, *[0.88] * 6, 0.8, *[0.79] * 18]
    settings = {"epochs": 24, "warmup": 2, "cooldown": 3}
    why = (
        "three epochs without a gain of 5 % are a plateau: B 4, 2, 1, then 8 again, last "
        "epochs blocking"
    )
    case = make(
        "daso-phases", "daso_phases", "A9 A10", why, {**settings, "largest": 8}, losses=plateau[:24]
    )
    require({int(b) for b in case["out.phases"][:, 0]} == {0, 1, 2, 4, 8}, case, "every B occurs")
    yield case
    settings = {"epochs": 24, "warmup": 0, "cooldown": 0, "largest": 16}
    yield make(
        "daso-phases-no-ends",
        "daso_phases",
        "A9 A10",
        "cycles from the first epoch",
        settings,
        losses=[1.0] * 24,
    )
    settings = {"epochs": 24, "warmup": 1, "cooldown": 1, "largest": 32}
    yield make(
        "daso-phases-large",
        "daso_phases",
        "A9",
        "the wait never exceeds B",
        settings,
        losses=[1.0] * 24,
    )
    settings = {"epochs": 5, "warmup": 2, "cooldown": 4, "largest": 8}
    yield make(
        "daso-phases-short",
        "daso_phases",
        "A10",
        "cool-down leaves no room",
        settings,
        losses=[1.0] * 5,
    )
    settings = {"epochs": 6, "warmup": 1, "cooldown": 1, "largest": 2}
    yield make(
        "daso-phases-small",
        "daso_phases",
        "A10",
        "B begins at the largest",
        settings,
        losses=[1.0] * 6,
    )


def traffic_cases() -> Iterator[Case]:
    why = "every sender and place in the tree"
    for p, nodes, phase in [
        (6, 2, [3, 1, 2]),
        (6, 1, [2, 2, 1]),
        (5, 5, [1, 1, 1]),
        (10, 2, BLOCKING),
        (8, 4, [8, 3, 2]),
    ]:
        name = f"daso-traffic-p{p}-nodes{nodes}-{'-'.join(map(str, phase))}"
        arguments = {"n": N, "p": p, "nodes": nodes, "batches": 11, "phase": phase, "chunk": 7}
        yield make(name, "daso_traffic", "A12", why, arguments)


def ranks_agree(case: Case) -> np.ndarray:
    """After which batches all ranks hold the same parameters. -> bool (T,)"""
    return np.array([all(same_bits(w[0], other) for other in w) for w in case["out.w"]])


def states_of(case: Case) -> list[dict]:
    return daso_run(
        case["in.w"],
        [list(step) for step in case["in.g"]],
        daso_settings(case),
        case.arguments["phases"],
    )


def cases() -> Iterator[Case]:
    for group in (blocking_cases, cycling_cases, other_cases, phase_cases, traffic_cases):
        yield from group()
