"""Cases of DASO's form `heat`: each kind of batch in which it differs from A1 to A12."""

from collections.abc import Iterator

import numpy as np

from refgf.oracle.definitions import (
    daso_averaged,
    daso_merge,
    daso_phases,
    daso_run,
    heat_averaged,
    heat_receives,
    same_bits,
)
from refgf.oracle.judge.functions.daso import daso_settings
from refgf.oracle.seeded.generate.daso import BLOCKING, N, ranks_agree
from refgf.oracle.seeded.generate.families import make, random_source, require
from refgf.oracle.spec.case import Case


def run_case(
    name: str, why: str, statements: str, p: int, nodes: int, batches: int, phases: list, **settings
) -> Case:
    """heat_run over as many epochs as there are phases; A1 to A12 have other bits."""
    rng = random_source("heat" + name)
    w = rng.standard_normal(N).astype(np.float32)
    g = (rng.standard_normal((len(phases) * batches, p, N)) / p).astype(np.float32)
    arguments = {"nodes": nodes, "batches": batches, "phases": phases}
    arguments |= {"rate": 0.1, "momentum": 0.9, **settings}
    case = make(name, "heat_run", "A18 " + statements, why, arguments, w=w, g=g)
    other = daso_run(w, [list(step) for step in g], daso_settings(case), phases)
    differs = not same_bits(case["out.w"], np.array([state["w"] for state in other]))
    require(differs, case, "the bits are not those of A1 to A12")
    return case


def received(sent: int, batches: int, phase: tuple[int, int, int]) -> int:
    """The batch in which a sum sent in this one is received."""
    return next(b for b in range(sent + 1, batches) if heat_receives(b, sent, batches, phase))


def receipt_cases() -> Iterator[Case]:
    why = "B = 2, W = 1, the phase after the first plateau: received at the next sending, S = 1"
    case = run_case("heat-next-sending", why, "A13 A15", 4, 2, 7, [[2, 1, 1]])
    require(received(0, 7, (2, 1, 1)) == 2, case, "the sum is received two batches late")
    yield case
    why = "B = 4, W = 2: the sum of batch 4, due in batch 6 of 8, is not received in it"
    case = run_case("heat-not-received", why, "A13 A15", 4, 2, 8, [[4, 1, 2]] * 2)
    require(received(0, 8, (4, 1, 2)) == 2, case, "the first sum is received when it is due")
    require(received(4, 8, (4, 1, 2)) == 7, case, "the second one only before it is replaced")
    yield case
    why = "B = 8, W = 2: the sum of batch 8, due in the last of 11, is received one batch early"
    case = run_case("heat-early", why, "A13 A15", 6, 3, 11, [[8, 1, 2]])
    require(received(8, 11, (8, 1, 2)) == 9, case, "the second sum is received after one batch")
    yield case
    why = "B = 3, W = 5: W exceeds B, and the weight of a late sum is that of W"
    yield run_case("heat-beyond", why, "A13 A15", 6, 2, 10, [[3, 1, 5]])


def other_cases() -> Iterator[Case]:
    why = "B = 8, L = 2, W = 2: each sending spreads the parameters of the group before again"
    case = run_case("heat-again", why, "A8 A14 A17", 6, 2, 20, [[8, 2, 2]])
    same = [same_bits(case["out.w"][t, 0], case["out.w"][t, 1]) for t in range(20)]
    meets = not same[7] and same[8] and not same[15] and same[16]
    require(meets, case, "a node's ranks meet in batches 8 and 16")
    yield case
    why = (
        "L = W = 4: with B = 9 averaging goes on after a sum that is not received, with B = 10 an "
        "early receipt ends it early"
    )
    phases = [[9, 4, 4], [10, 4, 4]]
    case = run_case("heat-averaged", why, "A14 A17", 4, 2, 17, phases)
    heat, described = (
        [[averaged(b, 17, tuple(phase)) for b in range(17)] for phase in phases]
        for averaged in (heat_averaged, daso_averaged)
    )
    require(heat[0][14] and not described[0][14], case, "batch 14 is averaged, unlike in A2")
    require(not heat[1][14] and described[1][14], case, "then it is not, unlike in A2")
    yield case
    why = "three nodes block: parameters, sums and quotients are bfloat16"
    case = run_case("heat-blocking", why, "A7 A16", 6, 3, 5, [BLOCKING])
    require(ranks_agree(case).all(), case, "all ranks hold the same parameters after each batch")
    short = (case["out.w"].view(np.uint32) & 0xFFFF == 0).all()
    require(bool(short), case, "all parameters are bfloat16 numbers")
    yield case
    why = "one node merges its own parameters, and they are rounded where it blocks"
    yield run_case("heat-one-node", why, "A14 A15 A16 A17", 3, 1, 6, [[4, 2, 1], BLOCKING])
    why = "warm-up, the phases of a largest B of 8, cool-down"
    phases = [BLOCKING, [4, 1, 1], [2, 1, 1], [1, 1, 1], [8, 2, 2], BLOCKING]
    yield run_case("heat-training", why, "A7 A13 A14 A15 A16 A17", 4, 2, 11, phases, chunk=7)


def arithmetic_cases() -> Iterator[Case]:
    rng = random_source("heat-merge")
    for waited in (1, 2, 3):
        w, total = rng.standard_normal((2, N)).astype(np.float32)
        arguments, why = {"nodes": 3, "waited": waited}, f"after {waited} batches"
        arrays = {"w": w, "total": 3 * total}
        case = make(f"heat-merge-{waited}", "heat_merge", "A15", why, arguments, **arrays)
        other = daso_merge(w, arrays["total"], 3, waited)
        require(not same_bits(case["out.w"], other), case, "A6 has other bits")
        yield case


def phase_cases() -> Iterator[Case]:
    for name, why, epochs, warmup, largest in [
        ("", "the phases of Heat's defaults", 30, 4, 8),
        ("-large", "B is halved faster than W falls: W exceeds B", 36, 1, 32),
        ("-no-warmup", "without warm-up no epoch cycles", 12, 0, 8),
    ]:
        settings = {"epochs": epochs, "warmup": warmup, "cooldown": 2, "largest": largest}
        losses = [1.0] * epochs
        case = make(f"heat-phases{name}", "heat_phases", "A19", why, settings, losses=losses)
        other = daso_phases(losses, **settings)
        same = [tuple(phase) for phase in case["out.phases"].tolist()] == other
        require(same == (name == ""), case, "A9 and A10 have other phases, but for the defaults")
        yield case


def traffic_cases() -> Iterator[Case]:
    why = "every sender, place in the tree, and taking over"
    for p, nodes, batches, phase in [
        (6, 2, 11, [3, 1, 2]),
        (8, 2, 11, [8, 2, 2]),
        (6, 3, 8, [4, 3, 2]),
        (6, 2, 7, [1, 1, 1]),
        (9, 3, 5, BLOCKING),
        (5, 5, 9, [4, 1, 1]),
    ]:
        name = f"heat-traffic-p{p}-nodes{nodes}-{'-'.join(map(str, phase))}"
        arguments = {"n": N, "p": p, "nodes": nodes, "batches": batches, "phase": phase, "chunk": 7}
        yield make(name, "heat_traffic", "A20", why, arguments)


def cases() -> Iterator[Case]:
    groups = (receipt_cases, other_cases, arithmetic_cases, phase_cases, traffic_cases)
    for group in groups:
        yield from group()
