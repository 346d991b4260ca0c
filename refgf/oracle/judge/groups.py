"""Judging merged gradients by the end of their last call: many groupings end equally early (G6)."""

import numpy as np

from refgf.oracle import definitions
from refgf.oracle.judge.comparison import Failure
from refgf.oracle.spec.calls import Outputs
from refgf.oracle.spec.case import Case
from refgf.oracle.spec.merge.times import gradients


def judge_groups(case: Case, got: Outputs) -> Failure | None:
    """Does the last call of the reported groups end as early as that of the case's own?"""
    counts, name = np.asarray(got.get("out.counts")), "out.counts"
    ready_s, nbytes = gradients(case)
    whole = counts.dtype.kind in "iu" and counts.ndim == 1
    if not whole or (counts < 1).any() or counts.sum() != len(ready_s):
        said = str(counts.tolist())[:60], f"at least 1 each, {len(ready_s)} in all"
        return Failure("out.counts is no grouping of the gradients", name, None, *said)
    ends = [
        definitions.step_times(ready_s, nbytes, groups.tolist(), tuple(case.arguments["line"]))[1]
        for groups in (counts, case[name])
    ]
    if ends[0] > ends[1] + slack(len(ready_s), ends[1]):
        said = repr(ends[0]), repr(ends[1])
        return Failure("the last call of these groups ends later than it has to", name, None, *said)
    return None


def slack(count: int, end_s: float) -> float:
    """An end is at most 3 L sums and products of numbers that are not negative.

    So a program that compares rounded ends is off by at most 3 L u on each of the two sides.
    """
    return 6 * count * 2.0**-53 * end_s
