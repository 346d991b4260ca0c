"""Golden cases of A13 to A18: each kind of batch in which Heat differs from A1 to A12."""

from typing import Any

import numpy as np

from refgf.oracle.spec.calls import same_bits, steps_of
from refgf.oracle.spec.case import Case
from refgf.oracle.spec.daso.batches import BLOCKING, Phase, daso_averaged
from refgf.oracle.spec.daso.heat import HEAT_RUN, heat_averaged, heat_receives
from refgf.oracle.spec.daso.run import ALIKE, daso_run, daso_settings, ranks_agree, run_case
from refgf.oracle.spec.statement import Cases


def heat_case(
    name: str,
    why: str,
    statements: str,
    shape: tuple[int, int, int],
    phases: list[Phase],
    **settings: Any,
) -> Case:
    """A case of HEAT_RUN; A1 to A12 have other bits."""
    case = run_case(HEAT_RUN, name, why, f"A18 {statements}", shape, phases, **settings)
    other = daso_run(case["in.w"], steps_of(case["in.g"]), daso_settings(case), phases)
    differs = not same_bits(case["out.w"], np.array([state["w"] for state in other]))
    return case.shows(differs, "the bits are not those of A1 to A12")


def received(sent: int, batches: int, phase: Phase) -> int:
    """The batch in which a sum sent in this one is received."""
    return next(b for b in range(sent + 1, batches) if heat_receives(b, sent, batches, phase))


@HEAT_RUN.golden
def receipt_cases() -> Cases:
    why = "B = 2, W = 1, the phase after the first plateau: received at the next sending, S = 1"
    case = heat_case("heat-next-sending", why, "A13 A15", (4, 2, 7), [(2, 1, 1)])
    yield case.shows(received(0, 7, (2, 1, 1)) == 2, "the sum is received two batches late")
    why = "B = 4, W = 2: the sum of batch 4, due in batch 6 of 8, is not received in it"
    case = heat_case("heat-not-received", why, "A13 A15", (4, 2, 8), [(4, 1, 2)] * 2)
    case.shows(received(0, 8, (4, 1, 2)) == 2, "the first sum is received when it is due")
    late = received(4, 8, (4, 1, 2)) == 7
    yield case.shows(late, "the second one only before it is replaced")
    why = "B = 8, W = 2: the sum of batch 8, due in the last of 11, is received one batch early"
    case = heat_case("heat-early", why, "A13 A15", (6, 3, 11), [(8, 1, 2)])
    early = received(8, 11, (8, 1, 2)) == 9
    yield case.shows(early, "the second sum is received after one batch")
    why = "B = 3, W = 5: W exceeds B, and the weight of a late sum is that of W"
    yield heat_case("heat-beyond", why, "A13 A15", (6, 2, 10), [(3, 1, 5)])


@HEAT_RUN.golden
def other_cases() -> Cases:
    why = "B = 8, L = 2, W = 2: each sending spreads the parameters of the group before again"
    case = heat_case("heat-again", why, "A8 A14 A17", (6, 2, 20), [(8, 2, 2)])
    same = [same_bits(case["out.w"][t, 0], case["out.w"][t, 1]) for t in range(20)]
    meets = not same[7] and same[8] and not same[15] and same[16]
    yield case.shows(meets, "a node's ranks meet in batches 8 and 16")
    why = (
        "L = W = 4: with B = 9 averaging goes on after a sum that is not received, with B = 10 an "
        "early receipt ends it early"
    )
    phases = [(9, 4, 4), (10, 4, 4)]
    case = heat_case("heat-averaged", why, "A14 A17", (4, 2, 17), phases)
    heat, described = (
        [[averaged(b, 17, phase) for b in range(17)] for phase in phases]
        for averaged in (heat_averaged, daso_averaged)
    )
    case.shows(heat[0][14] and not described[0][14], "batch 14 is averaged, unlike in A2")
    yield case.shows(not heat[1][14] and described[1][14], "then it is not, unlike in A2")
    why = "three nodes block: parameters, sums and quotients are bfloat16"
    case = heat_case("heat-blocking", why, "A7 A16", (6, 3, 5), [BLOCKING])
    case.shows(ranks_agree(case).all(), ALIKE)
    short = (case["out.w"].view(np.uint32) & 0xFFFF == 0).all()
    yield case.shows(bool(short), "all parameters are bfloat16 numbers")
    why = "one node merges its own parameters, and they are rounded where it blocks"
    yield heat_case("heat-one-node", why, "A14 A15 A16 A17", (3, 1, 6), [(4, 2, 1), BLOCKING])
    why = "warm-up, the phases of a largest B of 8, cool-down"
    phases = [BLOCKING, (4, 1, 1), (2, 1, 1), (1, 1, 1), (8, 2, 2), BLOCKING]
    statements = "A7 A13 A14 A15 A16 A17"
    yield heat_case("heat-training", why, statements, (4, 2, 11), phases, chunk=7)
