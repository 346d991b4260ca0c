"""Techniques in a timeline.

Hand-made cases, limits, orders of magnitude, and how much work a sweep is.
"""

from dataclasses import replace
from math import ceil, inf

import pytest

from refgf.papers.mgwfbp.merge import exact_merge
from refgf.papers.scaling.systems import (
    System,
    chosen_chunks,
    scaling_efficiency,
    stack,
    step,
    time_to_train,
)
from refgf.papers.scaling.workloads import alexnet, resnet50
from refgf.predict.cost import Line, Link, ring_line
from refgf.predict.timeline import eager, predict

READY = [(1.0, 10), (2.0, 25), (3.0, 5)]  # 40 gradients


def test_dense_is_the_timeline():
    gradients = [(seconds, 2 * n) for seconds, n in READY]
    wanted = predict(gradients, eager(gradients), Line(0.5, 0.01))
    assert step(READY, System("half", itemsize=2), Line(0.5, 0.01)) == wanted


def test_chunks_by_hand():
    """Chunks of 12: ends at 12, 24, 36, 40; they are final with tensors 1, 1, 2, 2.

    Half of them: numbers 1 and 3.
    """
    gradients, chunks = chosen_chunks(READY, System("csc", itemsize=2, percent=50, chunk=12))
    assert chunks == 4
    assert gradients == [(2.0, 24), (3.0, 8)]
    everything, _ = chosen_chunks(READY, System("csc", itemsize=2, percent=100, chunk=12))
    assert everything == [(2.0, 24), (2.0, 24), (3.0, 24), (3.0, 8)]


def test_csc_step_by_hand():
    """T = 1 + bytes / 8.

    Chunk 1 from 2 to 6, chunk 3 from 6 to 8, norms of 4 chunks from 8 to 13, selection 0.5.
    """
    got = step(
        READY, System("csc", itemsize=2, percent=50, chunk=12, selection_s=0.5), Line(1, 0.125)
    )
    assert [(call.start_s, call.end_s, call.bytes) for call in got.calls] == [
        (2, 6, 24),
        (6, 8, 8),
        (8, 13, 32),
    ]
    assert (got.compute_s, got.step_s) == (3, 13.5)


def test_csc_whose_norms_were_measured():
    """As above, but the norms take 2 of their own: no call for them, 8 + 2 + 0.5.

    0: they are in the selection.
    """
    system = System("csc", itemsize=2, percent=50, chunk=12, selection_s=0.5, norms_s=2.0)
    got = step(READY, system, Line(1, 0.125))
    assert ([call.bytes for call in got.calls], got.step_s) == ([24, 8], 10.5)
    assert step(READY, replace(system, norms_s=0.0), Line(1, 0.125)).step_s == 8.5


@pytest.mark.parametrize("percent, chosen", [(100, 1904), (10, 191), (0.001, 1), (30, ceil(571.2))])
def test_chunks_of_alexnet(percent, chosen):
    ready = alexnet().gradients(1.0, itemsize=1)
    gradients, chunks = chosen_chunks(ready, System("csc", percent=percent, itemsize=2))
    assert (len(gradients), chunks) == (chosen, 1904)
    assert [seconds for seconds, _ in gradients] == sorted(seconds for seconds, _ in gradients)
    if percent == 100:
        assert sum(nbytes for _, nbytes in gradients) == 2 * alexnet().parameters


def test_every_technique_of_the_stack_helps_on_512_gpus_at_56_gbit():
    """AlexNet at 3,300 images/s a GPU, 128 images.

    The setting of the paper's headline (batch unverified).
    """
    compute_s = 128 / 3300
    ready = alexnet().gradients(compute_s * 2 / 3, compute_s / 3, itemsize=1)
    line = ring_line(512, Link(2e-6, 1 / 7e9))
    steps = [step(ready, system, line).step_s for system in stack(16 * 2**20)]
    assert steps == sorted(steps, reverse=True) and steps[-1] < 0.6 * steps[0]


def test_the_exact_merge_is_a_system():
    ready = resnet50().gradients(0.2, 0.1, itemsize=1)
    line = ring_line(16, Link(2e-5, 1e-9))
    best = step(ready, System("merged", grouping=exact_merge), line).step_s
    assert best <= min(
        step(ready, System("lazy", threshold_bytes=theta), line).step_s for theta in (0, 2**20, inf)
    )


def test_efficiency_and_time_to_train():
    """Eager calls of 1 s each after 1, 2 and 3 s of computing: 3 s of 4."""
    assert scaling_efficiency(step(READY, System("eager"), Line(1, 0))) == 75
    assert scaling_efficiency(step(READY, System("free"), Line(0, 0))) == 100
    assert time_to_train(0.1, samples=1000, epochs=2, batch=32, size=4) == pytest.approx(
        2 * 8 * 0.1
    )


def test_cost_of_a_sweep_does_not_grow_with_gpus():
    """The same number of values of T for 4 and for 2048 GPUs."""
    ready, counts = resnet50().gradients(0.2, 0.1, itemsize=1), {}
    for size in (4, 2048):
        line, calls = ring_line(size, Link(1e-5, 1e-9)), []

        def counted(nbytes, line=line, calls=calls):
            calls.append(nbytes)
            return line(nbytes)

        for system in stack(2**20):
            step(ready, system, counted)
        counts[size] = len(calls)
    assert counts[4] == counts[2048] < 1000


@pytest.mark.parametrize(
    "settings, reason",
    [
        ({"itemsize": 3}, "itemsize 3"),
        ({"percent": 0}, "percent 0"),
        ({"percent": 101}, "101"),
        ({"chunk": 0}, "0"),
    ],
)
def test_bad_settings(settings, reason):
    with pytest.raises(ValueError, match=reason):
        System("bad", **settings)
