"""Judging by the profile that an implementation declares, and where SPEC.md leaves room.

bits        exactly the bits of a named order (see in_order), or within the case's bound; or those
            of a named variant (variants.py)
sum         any order of summation: every element within S2 of S1
agreement   all ranks hold the same bits, whatever they are
"""

from dataclasses import replace

import numpy as np

from refgf.oracle import definitions
from refgf.oracle.definitions import exact_sum, summation_bound
from refgf.oracle.judge.comparison import (
    Failure,
    differs,
    earliest,
    first_failure,
    judge_bits,
    outside,
)
from refgf.oracle.judge.groups import judge_groups
from refgf.oracle.judge.orders import NAMED
from refgf.oracle.judge.variants import variant_of
from refgf.oracle.spec.calls import Outputs
from refgf.oracle.spec.case import Case
from refgf.oracle.spec.csc.step import csc_percents, csc_settings, run_csc
from refgf.oracle.spec.plain_sums import PLAIN_SUMS

PROFILES = ("bits", "sum", "agreement")
STATES = {"ring": ["R2"], "direct": ["D1"], "tree": ["H1"], "doubling": ["H2"]}  # of named orders


def judge(case: Case, got: Outputs, profile: str = "bits") -> Failure | None:
    """The first failure of a result {"out.x": array, ...}, or None."""
    if profile not in PROFILES:
        raise ValueError(f"judge: got profile {profile!r}; wanted one of {', '.join(PROFILES)}")
    if profile != "bits" and case.function in PLAIN_SUMS:
        return judge_sum(case, got, profile)
    if case.function == "best_counts":
        return judge_groups(case, got)
    if case.function == "csc_run" and not case.arguments.get("exact_norms", True):
        case, failure = following(case, got)
        return earliest([failure, judge_bits(case, got)])
    failure = judge_bits(case, got)
    return None if failure and variant_of(case, got) else failure


def judge_sum(case: Case, got: Outputs, profile: str) -> Failure | None:
    """The profiles `sum` and `agreement`."""
    if "out.x" not in got:
        return Failure("out.x is missing", "out.x")
    value = np.asarray(got["out.x"])
    if value.shape != case["out.x"].shape or value.dtype != case["out.x"].dtype:
        kinds = (f"{a.dtype} {a.shape}" for a in (value, case["out.x"]))
        return Failure("out.x has another shape or type", "out.x", None, *kinds)
    if profile == "agreement":
        wanted = np.broadcast_to(value[:1], value.shape)
        wrong, verb = differs(value, wanted), "differs from rank 0"
    else:
        xs = list(case["in.x"])
        bound = summation_bound(xs, case.arguments["wire"])
        wanted = np.broadcast_to(exact_sum(xs), value.shape)
        wrong = outside(value, wanted, np.broadcast_to(bound, value.shape))
        verb = "is farther from the sum than S2"
    return first_failure(case, "out.x", (value, wanted), wrong, verb)


def in_order(case: Case, order: str) -> Case | None:
    """The ring's case in another named order (orders.NAMED); None for cases that do not apply.

    These are cases with a wire type, because only R3 and D2 state how to round, and all others
    than the ring's.
    """
    if case.function != "ring_allreduce" or case.arguments["wire"] is not None:
        return None
    with np.errstate(all="ignore"):
        total = NAMED[order](list(case["in.x"]), np.add)
    tensors = {"in.x": case["in.x"], "out.x": np.stack([total] * len(case["in.x"]))}
    statements = [*STATES.get(order, ()), "R4"]
    return replace(case, tensors=tensors, statements=statements, name=f"{case.name} ({order})")


def following(case: Case, got: Outputs) -> tuple[Case, Failure | None]:
    """The case continued with the reported lists, and a failure if these are wrong.

    Where norms depend on the order of summation, a list is right if all ranks report it and its
    norms are close enough to the largest.
    """
    lists = np.asarray(got.get("out.chosen"))
    if lists.shape != case["out.chosen"].shape:
        return case, Failure("out.chosen is missing or has another shape", "out.chosen")
    wanted = np.broadcast_to(lists[:, :1], lists.shape)
    verb = "differs from rank 0"
    apart = first_failure(case, "out.chosen", (lists, wanted), lists != wanted, verb)
    chosen = [
        None if dense else np.flatnonzero(row[0]).tolist()
        for row, (_, dense) in zip(lists, csc_percents(case))
    ]
    results = run_csc(definitions, case, lists=chosen)
    followed = replace(case, tensors={**case.tensors, **results})
    return followed, earliest([apart, not_largest(case, chosen)])


def not_largest(case: Case, chosen: list[list[int] | None]) -> Failure | None:
    """The first step whose list has a chunk that is not among the most important."""
    percents = csc_percents(case)
    reports = definitions.csc_run(
        case["in.w"], list(case["in.g"]), csc_settings(case), percents, lists=chosen
    )
    error = 2 * case["in.g"].shape[1] * case.arguments["chunk"] * 2.0**-53
    for step, (report, (percent, dense)) in enumerate(zip(reports[:-1], percents[1:]), start=1):
        norms = report["importance"]
        if not report["finite"] or dense:
            continue
        if not is_near(chosen[step], norms, percent, 1 - error):
            lists = str(chosen[step]), str(definitions.choose(norms, percent))
            message, where = "the chosen chunks are not the most important", {"step": step}
            return Failure(message, "out.chosen", where, *lists)
    return None


def is_near(chosen: list[int], values: np.ndarray, percent: float, share: float) -> bool:
    """As many as C5 says, and each at least `share` of every one that was not chosen.

    share = 1 - 2 p L u: each norm is a float64 sum of p L terms with relative error at most p L u.
    """
    rest = np.delete(values, chosen)
    if len(chosen) != len(definitions.choose(values, percent)):
        return False
    return len(rest) == 0 or values[chosen].min() >= share * rest.max()
