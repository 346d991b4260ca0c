"""Merged gradients: the judge takes any groups that end as early, and says of others why."""

import numpy as np
import pytest

from refgf.oracle import definitions as d
from refgf.oracle.judge.profiles import judge
from tests.support.golden import golden_case


def test_any_groups_that_end_as_early_are_right():
    case = golden_case("best-many")
    arguments = case["in.ready_s"].tolist(), case["in.nbytes"].tolist()
    line, best = tuple(case.arguments["line"]), case["out.counts"].tolist()
    best_s, right = d.step_times(*arguments, best, line)[1], 0
    for counts in d.groupings(8):
        failure = judge(case, {"out.counts": np.array(counts)})
        assert (failure is None) == (d.step_times(*arguments, counts, line)[1] == best_s)
        right += failure is None
    assert right > 3


@pytest.mark.parametrize("counts", [[8, 1], [4, 3], [0, 8], [-1, 9], [4.0, 4.0], [[8]], None, []])
def test_what_is_no_grouping_is_refused(counts):
    failure = judge(golden_case("best-many"), {"out.counts": counts and np.array(counts)})
    assert "is no grouping of the gradients" in failure.message and "8 in all" in failure.wanted


def test_groups_that_end_later_are_told_with_both_ends():
    failure = judge(golden_case("best-smallest"), {"out.counts": np.array([2, 1])})
    assert (failure.got, failure.wanted) == ("9.0", "8.0")
