"""What a wrong result looks like: the seeded mistakes and the orders of summation that give it."""

import numpy as np

from refgf.oracle import definitions
from refgf.oracle.definitions import rounded_fold, same_bits
from refgf.oracle.judge.comparison import judge_bits
from refgf.oracle.judge.orders import candidates
from refgf.oracle.spec.calls import Outputs
from refgf.oracle.spec.case import Case
from refgf.oracle.spec.plain_sums import PLAIN_SUMS
from refgf.oracle.spec.statement import FUNCTIONS, MISTAKES, Mistake

LARGEST = 1 << 16  # elements per rank beyond which orders are not tried
STEPS = ("alexnet_step", "resnet50_step")
WHOLE_NETWORK = ("N10", "N11", "N14", "N15")
SHOWN = 4  # orders that are named


def diagnose(case: Case, got: Outputs) -> list[str]:
    """Sentences that name what would give this result; empty if nothing known does."""
    mistakes = mistakes_of(case, got)
    slices = [] if any("(violates R1)" in name for name in mistakes) else other_slices(case, got)
    known = [*shifted_states(case, got), *ranks_in(case, got), *orders_of(case, got)]
    return [*known, *mistakes, *slices]


def mistakes_of(case: Case, got: Outputs, among: set[str] | None = None) -> list[str]:
    """Names of the seeded mistakes that give this wrong result. among: only these names."""
    right = judge_bits(case, got) is None
    outputs = {name: a for name, a in got.items() if name.startswith("out.")}
    if (
        judge_bits(case, outputs) is None
    ):  # only the states are wrong: the mistake must explain them
        outputs = got
    tried = [got] if len(outputs) == len(got) else [got, outputs]
    found = []
    for mistake in [] if right else MISTAKES:
        name = f"{mistake.name} (violates {statement_of(case, mistake)})"
        if among is not None and name not in among:
            continue
        if mistake.reaches(case.function) and not _slow(case, mistake):
            result = with_mistake(case, mistake)
            if result is not None and any(judge_bits(result, g) is None for g in tried):
                found.append((name, result))
    truth = _truth(case) if found else None
    return [name for name, result in found if judge_bits(result, truth) is not None]


def statement_of(case: Case, mistake: Mistake) -> str:
    """The statement that a mistake violates; with --order that of the order, not the ring's."""
    reordered = case.function == "ring_allreduce" and not {"R2", "R3"} & set(case.statements)
    return case.statements[0] if reordered else mistake.statement


def _slow(case: Case, mistake: Mistake) -> bool:
    """A whole step takes seconds, and a layer's mistakes show in the layer's own cases."""
    return case.function in STEPS and mistake.statement not in WHOLE_NETWORK


def _truth(case: Case) -> Outputs:
    """The definitions' result, which with --order is not the case's own."""
    with np.errstate(all="ignore"):
        results = FUNCTIONS[case.function].run(definitions, case)
    return {name: np.asarray(a) for name, a in results.items()}


def shifted_states(case: Case, got: Outputs) -> list[str]:
    """Intermediate states that are right, but begin one step early or late."""
    value, wanted = np.asarray(got.get("state.x", [])), case.tensors.get("state.x")
    if wanted is None or value.shape != wanted.shape or len(wanted) < 2 or same_bits(value, wanted):
        return []
    found, number_0 = [], "number 0 is the state after the first step"
    if same_bits(value[1:], wanted[:-1]):
        found.append(f"states one late: {number_0}, not before it (R5)")
    if same_bits(value[:-1], wanted[1:]):
        found.append(f"states one early: {number_0}, not after the second (R5)")
    return found


def with_mistake(case: Case, mistake: Mistake) -> Case | None:
    """The case with the mistake's results in place of the right ones; None if it cannot run."""
    try:
        with np.errstate(all="ignore"):
            results = FUNCTIONS[case.function].run(mistake.module(), case)
    except (ValueError, IndexError, KeyError, ZeroDivisionError):
        return None
    results = {name: np.asarray(a) for name, a in results.items()}
    inputs = case.with_prefix("in")
    for name, bound in case.with_prefix("bound").items():
        wanted = results.get("out." + name.removeprefix("bound."))
        if bound.shape == np.shape(wanted):
            inputs[name] = bound
    return type(case)(**{**vars(case), "tensors": {**inputs, **results}})


def orders_of(case: Case, got: Outputs) -> list[str]:
    """The orders of summation that give these bits on all ranks, if the result is an allreduce."""
    if "out.x" not in got or case.function not in PLAIN_SUMS:
        return []
    value, xs = np.asarray(got["out.x"]), list(case["in.x"])
    if value.shape != case["in.x"].shape or xs[0].size > LARGEST or xs[0].size == 0:
        return []
    if any(not same_bits(row, value[0]) for row in value):
        return []
    if "out.x" in case.tensors and same_bits(value, case["out.x"]):
        return []
    names = [name for name, result in candidates(xs) if same_bits(result, value[0])]
    return [f"these orders: {first_names(names)}"] if names else []


def other_slices(case: Case, got: Outputs) -> list[str]:
    """Slices of other lengths with which a ring gives these bits on all ranks.

    From the left, each element is put into the first slice that explains it. A vector in fewer
    than half as many slices is another order of summation, not another division.
    """
    value, xs = np.asarray(got.get("out.x", 0)), case.tensors.get("in.x")
    if case.function != "ring_allreduce" or "R1" not in case.statements:
        return []
    if value.shape != xs.shape or xs.size > LARGEST:
        return []
    p, n = xs.shape
    if n == 0 or any(not same_bits(row, value[0]) for row in value):
        return []
    if "out.x" in case.tensors and same_bits(value, case["out.x"]):
        return []
    lengths, start, wire = [], 0, case.arguments["wire"]
    for s in range(p):
        with np.errstate(all="ignore"):
            total = rounded_fold([xs[(s + k) % p] for k in range(p)], wire)
        stop = start
        while stop < n and same_bits(total[stop : stop + 1], value[0, stop : stop + 1]):
            stop += 1
        lengths.append(stop - start)
        start = stop
    if start < n or 2 * np.count_nonzero(lengths) < min(n, p):
        return []
    shown = ", ".join(map(str, lengths[: 2 * SHOWN])) + ", ..." * (p > 2 * SHOWN)
    return [f"a ring over slices of other lengths, such as {shown} (violates R1)"]


def first_names(names: list[str]) -> str:
    """The first names of a list, and how many more there are."""
    more = f" (and {len(names) - SHOWN} more)" if len(names) > SHOWN else ""
    return "; ".join(names[:SHOWN]) + more


def ranks_in(case: Case, got: Outputs) -> list[str]:
    """The ranks that a result lost or counted twice, from provenance inputs: rank r adds 2^r."""
    value = np.asarray(got.get("out.x", 0))
    if case.family != "provenance" or value.shape != case["out.x"].shape:
        return []
    off = value.astype(np.float64) - case["out.x"]
    found = []
    whole = np.isfinite(off) & (off == np.rint(off)) & (off != 0)
    for difference in np.unique(off[whole])[:4]:
        ranks = [str(r) for r in range(len(value)) if int(abs(difference)) >> r & 1]
        rank, element = (int(i) for i in np.argwhere(off == difference)[0])
        what = "lost" if difference < 0 else "counted twice"
        found.append(f"rank {', '.join(ranks)} {what} (first at rank {rank}, element {element})")
    return found
