"""Lesson 04's idea against the timeline of the core: start and end of each call, and the step."""

import numpy as np
import pytest

from docs.tools import gains
from refgf.predict.timeline import predict
from tests.support.groups_of import groups_of

LESSON = gains.module_of(gains.ROOT / "lessons" / "04_overlap.py")


@pytest.mark.parametrize("counts", [[], [1], [1, 1, 1, 1, 1, 1], [2, 1, 3], [6]])
@pytest.mark.parametrize("call_s", [0.0, 0.2, 1.0, 7.0])  # 0: one rank
@pytest.mark.parametrize("overlap", [False, True])
def test_the_recurrence_is_that_of_the_core(counts, call_s, overlap):
    """Steps that computing decides, and steps that calls decide."""
    random, compute_s = np.random.default_rng(len(counts)), 10.0
    ready_s = np.sort(random.uniform(3, compute_s, sum(counts)))
    sizes, groups = random.integers(1, 9, sum(counts)), groups_of(counts)
    wanted = predict(
        list(zip(ready_s, sizes)), groups, lambda m: call_s * m, overlap, compute_s=compute_s
    )
    last_ready_s = [ready_s[group[-1]] for group in groups]
    durations_s = [call_s * sizes[group].sum() for group in groups]
    start_s, end_s, step_s = LESSON.step_timeline(last_ready_s, durations_s, compute_s, overlap)
    assert start_s == pytest.approx([call.start_s for call in wanted.calls])
    assert end_s == pytest.approx([call.end_s for call in wanted.calls])
    assert step_s == pytest.approx(wanted.step_s)
