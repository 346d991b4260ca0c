"""What a wrong result looks like: which seeded mistakes, and which orders of summation, give exactly it."""

import numpy as np

from refgf.oracle import definitions
from refgf.oracle.definitions import same_bits
from refgf.oracle.judge.comparison import judge_bits
from refgf.oracle.judge.functions import CALLS
from refgf.oracle.judge.orders import candidates
from refgf.oracle.seeded.mistakes import MISTAKES

LARGEST = 1 << 16  # elements per rank beyond which orders are not tried
STEPS = ("alexnet_step", "resnet50_step")
WHOLE_NETWORK = ("N10", "N11", "N14", "N15")  # a step takes seconds: mistakes in single layers show in the layers' own cases


def diagnose(case, got):
    """Sentences that name what would give this result. Empty when nothing known does."""
    return [*shifted_states(case, got), *ranks_in(case, got), *orders_of(case, got), *mistakes_of(case, got)]


def mistakes_of(case, got, among=None):
    """Names of the seeded mistakes whose result for this case is this one, and not the right one. among: only these."""
    right = judge_bits(case, got) is None
    outputs = {name: a for name, a in got.items() if name.startswith("out.")}
    if judge_bits(case, outputs) is None:  # only the states are wrong: they are what a mistake must explain
        outputs = got
    found = []
    for mistake in [] if right else MISTAKES:
        name = f"{mistake.name} (violates {mistake.statement})"
        if (among is None or name in among) and mistake.reaches(case.function) and not _slow(case, mistake):
            result = with_mistake(case, mistake)
            if result is not None and any(judge_bits(result, given) is None for given in (got, outputs)):
                found.append((name, result))
    truth = _truth(case) if found else None
    return [name for name, result in found if judge_bits(result, truth) is not None]


def _slow(case, mistake):
    return case.function in STEPS and mistake.statement not in WHOLE_NETWORK


def _truth(case):
    """What the definitions give, which is not the case's own result where that is another order's (--order)."""
    with np.errstate(all="ignore"):
        return {name: np.asarray(a) for name, a in CALLS[case.function].run(definitions, case).items()}


def shifted_states(case, got):
    """Intermediate states that are right, but begin one step early or late."""
    value, wanted = np.asarray(got.get("state.x", [])), case.tensors.get("state.x")
    if wanted is None or value.shape != wanted.shape or len(wanted) < 2 or same_bits(value, wanted):
        return []
    found = []
    if same_bits(value[1:], wanted[:-1]):
        found.append("states one late: number 0 is what holds after the first step, not before it (R5)")
    if same_bits(value[:-1], wanted[1:]):
        found.append("states one early: number 0 is what holds after the first step, not after the second (R5)")
    return found


def with_mistake(case, mistake):
    """The case as the mistake would have it: its results in place of the right ones. None where it cannot be run."""
    try:
        with np.errstate(all="ignore"):
            results = CALLS[case.function].run(mistake.module(), case)
    except (ValueError, IndexError, KeyError, ZeroDivisionError):
        return None
    wanted = {name: np.asarray(a) for name, a in results.items() if name.startswith("out.")}
    kept = {name: a for name, a in case.tensors.items() if not name.startswith(("out.", "state.", "bound."))}
    kept |= {name: a for name, a in case.part("bound").items() if a.shape == np.shape(wanted.get("out." + name[6:]))}
    states = {name: np.asarray(a) for name, a in results.items() if name.startswith("state.")}
    return type(case)(**{**vars(case), "tensors": {**kept, **states, **wanted}})


def orders_of(case, got):
    """Names of the orders of summation that give these bits on all ranks, if the result is an allreduce."""
    if "out.x" not in got or case.function not in ("ring_allreduce", "direct_allreduce"):
        return []
    value, xs = np.asarray(got["out.x"]), list(case["in.x"])
    if value.shape != case["in.x"].shape or xs[0].size > LARGEST or xs[0].size == 0:
        return []
    if any(not same_bits(row, value[0]) for row in value):
        return []
    if "out.x" in case.tensors and same_bits(value, case["out.x"]):
        return []
    names = [name for name, result in candidates(xs) if same_bits(result, value[0])]
    more = f" (and {len(names) - 4} more)" if len(names) > 4 else ""
    return [f"these orders: {'; '.join(names[:4])}{more}"] if names else []


def ranks_in(case, got):
    """With provenance inputs, rank r contributing 2^r, the ranks that a result lost or counted twice."""
    value = np.asarray(got.get("out.x", 0))
    if case.family != "provenance" or value.shape != case["out.x"].shape:
        return []
    off = value.astype(np.float64) - case["out.x"]
    found = []
    for difference in np.unique(off[np.isfinite(off) & (off == np.rint(off)) & (off != 0)])[:4]:
        ranks = [str(r) for r in range(len(value)) if int(abs(difference)) >> r & 1]
        place = tuple(int(i) for i in np.argwhere(off == difference)[0])
        what = "lost" if difference < 0 else "counted twice"
        found.append(f"rank {', '.join(ranks)} {what} (first at rank {place[0]}, element {place[1]})")
    return found
