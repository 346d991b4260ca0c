"""Judging by the profile that an implementation declares, and where SPEC leaves room.

    bits        exactly the bits of a named order (or within the bound that the case has); see in_order
    sum         any order of summation: every element within S2 of S1
    agreement   whatever it is, all ranks hold the same bits
"""

from dataclasses import replace

import numpy as np

from refgf.oracle import definitions
from refgf.oracle.definitions import exact_sum, summation_bound
from refgf.oracle.judge.comparison import Failure, differs, earliest, first_failure, judge_bits, outside
from refgf.oracle.judge.functions import SUMS, csc_run, csc_settings
from refgf.oracle.judge.orders import NAMED

PROFILES = ("bits", "sum", "agreement")
STATES = {"ring": ["R2"], "direct": ["D1"], "tree": ["H1"], "doubling": ["H2"]}  # which statement names an order


def judge(case, got, profile="bits"):
    """The first failure of a result {"out.x": array, ...}, or None."""
    if profile not in PROFILES:
        raise ValueError(f"judge: got profile {profile!r}; wanted one of {', '.join(PROFILES)}")
    if profile != "bits" and case.function in SUMS:
        return judge_sum(case, got, profile)
    if case.function == "csc_run" and not case.arguments.get("exact_norms", True):
        case, failure = following(case, got)
        return earliest([failure, judge_bits(case, got)])
    return judge_bits(case, got)


def judge_sum(case, got, profile):
    """The profiles `sum` and `agreement`."""
    value = np.asarray(got.get("out.x"))
    if value.shape != case["out.x"].shape or value.dtype != case["out.x"].dtype:
        return Failure("out.x is missing or has another shape or type", "out.x")
    if profile == "agreement":
        wanted = np.broadcast_to(value[:1], value.shape)
        return first_failure(case, "out.x", value, wanted, differs(value, wanted), "differs from rank 0")
    xs = list(case["in.x"])
    wanted, bound = exact_sum(xs), summation_bound(xs, case.arguments["wire"])
    wanted, bound = np.broadcast_to(wanted, value.shape), np.broadcast_to(bound, value.shape)
    return first_failure(case, "out.x", value, wanted, outside(value, wanted, bound), "is farther from the sum than S2")


def in_order(case, order):
    """The ring's case as another named order (orders.NAMED) would have it; None for cases that say nothing about it.

    Without a wire type only: how one rounds is R3's and D2's to say, for ring and direct.
    """
    if case.function != "ring_allreduce" or case.arguments["wire"] is not None:
        return None
    with np.errstate(all="ignore"):
        total = NAMED[order](list(case["in.x"]), np.add)
    tensors = {"in.x": case["in.x"], "out.x": np.stack([total] * len(case["in.x"]))}
    statements = [*STATES.get(order, ()), "R4"]
    return replace(case, tensors=tensors, statements=statements, name=f"{case.name} ({order})")


def following(case, got):
    """Where norms depend on the order of summation, any list counts whose norms are near enough to be the largest.

    -> (the case as it goes on with the reported lists, a failure: lists that differ between ranks or are not near)
    """
    lists = np.asarray(got.get("out.chosen"))
    if lists.shape != case["out.chosen"].shape:
        return case, Failure("out.chosen is missing or has another shape", "out.chosen")
    wanted = np.broadcast_to(lists[:, :1], lists.shape)
    apart = first_failure(case, "out.chosen", lists, wanted, lists != wanted, "differs from rank 0")
    percents = [tuple(pair) for pair in case.arguments["percents"]]
    chosen = [None if dense else np.flatnonzero(row[0]).tolist() for row, (_, dense) in zip(lists, percents)]
    followed = replace(case, tensors={**case.tensors, **csc_run(definitions, case, lists=chosen)})
    return followed, earliest([apart, not_near(case, chosen, percents)])


def not_near(case, chosen, percents):
    """The first step whose list has a chunk that is not among the most important, as a Failure."""
    reports = definitions.csc_run(case["in.w"], list(case["in.g"]), csc_settings(case), percents, lists=chosen)
    near = 2 * case["in.g"].shape[1] * case.arguments["chunk"] * 2.0**-53
    for step, (report, (percent, dense)) in enumerate(zip(reports[:-1], percents[1:]), start=1):
        if report["finite"] and not dense and not is_near(chosen[step], report["importance"], percent, 1 - near):
            told = str(chosen[step]), str(definitions.choose(report["importance"], percent))
            return Failure("the chosen chunks are not the most important", "out.chosen", {"step": step}, *told)
    return None


def is_near(chosen, values, percent, share):
    """As many as C5 says, and each at least `share` of every one that was not chosen.

    share = 1 - 2 p L u: each norm is a float64 sum of p L terms, off by at most p L u of itself.
    """
    rest = np.delete(values, chosen)
    if len(chosen) != len(definitions.choose(values, percent)):
        return False
    return len(rest) == 0 or values[chosen].min() >= share * rest.max()
