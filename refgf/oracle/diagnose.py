"""What a wrong result looks like: which seeded mistakes, and which orders of summation, give exactly it."""

import numpy as np

from refgf.oracle.definitions import same_bits
from refgf.oracle.functions import CALLS
from refgf.oracle.judge import judge_bits
from refgf.oracle.mistakes import MISTAKES
from refgf.oracle.orders import candidates

LARGEST = 1 << 16  # elements per rank beyond which orders are not tried
STEPS = ("alexnet_step", "resnet50_step")
WHOLE_NETWORK = ("N10", "N11", "N14", "N15")  # a step takes seconds: mistakes in single layers show in the layers' own cases


def diagnose(case, got):
    """Sentences that name what would give this result. Empty when nothing known does."""
    return [*ranks_in(case, got), *orders_of(case, got), *mistakes_of(case, got)]


def mistakes_of(case, got):
    """Names of the seeded mistakes whose result for this case is this one."""
    found = []
    for mistake in MISTAKES:
        if mistake.reaches(case.function) and (case.function not in STEPS or mistake.statement in WHOLE_NETWORK):
            result = with_mistake(case, mistake)
            if result is not None and judge_bits(result, got) is None and judge_bits(case, got) is not None:
                found.append(f"{mistake.name} (violates {mistake.statement})")
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
