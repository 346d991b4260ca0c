"""Buckets of PyTorch and Horovod, by hand, and the sweep for the best one."""

from dataclasses import replace
from random import Random

import pytest

from refgf.plan import buckets, report, thetas
from refgf.plan.fabric import Fabric, load
from refgf.plan.inputs import read_model
from refgf.plan.question import Question
from refgf.plan.step_times import StepTimes
from refgf.plan.systems import SYSTEMS
from refgf.predict.cost import Link, ring_line
from refgf.predict.timeline import lazy, predict

pytestmark = pytest.mark.usefixtures("short_table")

MIB = 1 << 20
GRADIENTS = [(0.01 * i, nbytes) for i, nbytes in enumerate([3, 4, 1, 9, 2, 2, 1], 1)]


def groups(found):
    return [[GRADIENTS[i][1] for i in group] for group in found]


def test_ddp_closes_a_bucket_that_has_reached_its_cap():
    assert groups(buckets.ddp_groups(GRADIENTS, 4)) == [[3, 4], [1, 9], [2, 2], [1]]
    assert groups(buckets.ddp_groups(GRADIENTS, 5, 1)) == [[3], [4, 1], [9], [2, 2, 1]]
    assert groups(buckets.ddp_groups(GRADIENTS, 1e9)) == [[3, 4, 1, 9, 2, 2, 1]]
    assert groups(buckets.ddp_groups(GRADIENTS[:1], 5, 1)) == [[3]]


def asked(ready, size=4):
    fabric = Fabric("net", "this test", Link(100e-6, 1e-9))
    return Question(StepTimes("small", "this test", tuple(ready), 0.5), fabric, size)


def test_horovod_by_hand():
    """Cycles of 1 ms from start to start, as Horovod's RunLoopOnce sleeps.

    Both early gradients are fused. After a call of 1 ms or more the next cycle begins at once.
    """
    gradients = [(0.0102, 100), (0.0103, 200), (0.0104, 4 * MIB), (0.0120, 300)]
    question = asked([(ready_s, nbytes // 4) for ready_s, nbytes in gradients])
    call = ring_line(4, Link(100e-6, 1e-9))
    assert call(100) < buckets.CYCLE_S < call(4 * MIB + 200)
    second_s = 0.0102 + buckets.CYCLE_S  # the first cycle began with its gradient
    third_s = second_s + call(4 * MIB + 200)
    assert buckets.horovod_s(gradients, question, 1e9) == pytest.approx(third_s + call(300))


def test_horovod_divides_what_does_not_fit():
    gradients = [(0.01, 100), (0.01, 100), (0.01, 100)]
    question = asked([(ready_s, nbytes // 4) for ready_s, nbytes in gradients])
    call = ring_line(4, Link(100e-6, 1e-9))
    assert buckets.horovod_s(gradients, question, 200) == pytest.approx(
        0.01 + call(200) + call(100)
    )
    assert buckets.horovod_s(gradients, question, 0) == pytest.approx(0.01 + 3 * call(100))


@pytest.mark.parametrize("overlap", [0.0, 0.25, 0.5, 1.0])
def test_horovod_s_calls_slow_backward_down_as_all_calls_do(overlap):
    """Gradients further apart than a call and a cycle: what Horovod makes are the eager calls."""
    gradients = [(0.1 * i, 4 * MIB) for i in range(1, 6)]
    question = replace(asked([(ready_s, MIB) for ready_s, _ in gradients]), overlap=overlap)
    assert buckets.CYCLE_S < question.flat(4 * MIB) < 0.1 - buckets.CYCLE_S
    horovod_s = buckets.horovod_s(gradients, question, 1e9)
    assert horovod_s == pytest.approx(SYSTEMS["eager"].step_s(question) - question.step.after_s)
    late_s = horovod_s - 0.5 - question.flat(4 * MIB)
    assert late_s == pytest.approx(4 * (1 - overlap) * question.flat(4 * MIB))


@pytest.mark.parametrize(
    "default, said",
    [
        (75.1, "keep the default, 1 then 25: 75.1 ms a step (no size that was tried is faster)"),
        (77.75, "keep the default, 1 then 25: 77.8 ms a step (no size that was tried is faster)"),
        (79.0, "79.0 ms a step (the best size is 1.7 % faster)"),
        (90.0, "bucket_cap_mb=16: 77.7 ms a step (default, 1 then 25: 90.0 ms)"),
    ],
)
def test_a_default_is_kept_unless_a_size_is_2_percent_faster(default, said):
    ddp = {"bucket_cap_mb": 16, "step_s": 77.7e-3, "default_step_s": default * 1e-3}
    ddp |= {"sweep": {16: 77.7e-3, 25: 78e-3}}
    ddp["keep_default"] = buckets.keeps_default(ddp["default_step_s"], ddp["sweep"])
    assert said in report.ddp_line(ddp)


@pytest.mark.parametrize("gain, kept", [(0.015, True), (0.025, False)])
def test_a_gain_that_is_too_small_keeps_horovods_default(monkeypatch, gain, kept):
    small, default = 8 * MIB, buckets.HOROVOD_DEFAULT_MIB * MIB
    seconds = {small: 0.5, default: 0.5 + gain}  # and 0.5 s after backward
    monkeypatch.setattr(buckets, "horovod_s", lambda g, q, size: seconds.get(size, 2.0))
    found = buckets.of_horovod(asked([(0.01, MIB)]))
    assert found["keep_default"] is kept
    assert found["fusion_threshold_bytes"] == (default if kept else small)


def test_a_gain_that_is_too_small_keeps_ddps_default():
    """A last call of 40 KiB instead of a larger one saves 0.9 % of a step."""
    question = asked([(0.001 * i, MIB // 40) for i in range(1, 101)], size=2)
    question = replace(question, step=replace(question.step, after_s=0.9))
    found = buckets.of_ddp(question)
    gain = found["default_step_s"] / found["step_s"] - 1
    assert buckets.EQUAL < gain < buckets.FLAT and found["keep_default"]


def test_horovod_faster_than_theta_is_explained():
    ours = {"theta_bytes": 1, "step_s": 1.0, "all_bytes": 9, "ties": [1], "sweep": {0: 2.0, 1: 1.0}}
    ours |= {"near": [1]}
    other = {"step_s": 0.9, "default_step_s": 0.9, "keep_default": True, "sweep": {128: 0.9}}
    ddp = other | {"bucket_cap_mb": 1, "default_step_s": 1.0}
    for factor, lines in ((1.0, 5), (2.0, 4)):
        horovod = other | {"step_s": factor * 0.9}
        found = {"refgf": ours, "horovod": horovod, "pytorch": ddp}
        said = report.bucket_lines(found)
        assert len(said) == lines and ("  Horovod: faster than the best" in said[-1]) == (
            lines == 5
        )


def test_a_tie_keeps_horovods_default_and_names_the_range_of_theta():
    """One gradient: every size makes one call."""
    question = asked([(0.01, MIB)])
    horovod, theta = buckets.of_horovod(question), buckets.of_theta(question)
    assert horovod["fusion_threshold_bytes"] == buckets.HOROVOD_DEFAULT_MIB * MIB
    assert report.fused(horovod).startswith("Horovod      keep the default, 128 MiB: ")
    assert theta["ties"] == list(theta["sweep"]) and theta["theta_bytes"] == 0
    assert "any Theta, a tie" in report.theta_line(theta)


def test_the_best_cap_beats_the_default_and_the_ends():
    """100 equal gradients: one call each pays latency, one call in all waits for backward."""
    question = asked([(0.002 * i, MIB // 4) for i in range(1, 101)])
    for found in (buckets.of_ddp(question), buckets.of_horovod(question)):
        sweep = found["sweep"]
        assert found["step_s"] <= min(sweep.values()) * (1 + buckets.EQUAL)
        assert found["step_s"] <= found["default_step_s"] * (1 + buckets.EQUAL)
    assert buckets.of_ddp(question)["bucket_cap_mb"] < 512
    found = buckets.of_theta(question)
    assert found["step_s"] < min(found["sweep"][0], found["sweep"][100 * MIB])
    assert 0 < found["theta_bytes"] < 100 * MIB
    assert buckets.of_horovod(question)["fusion_threshold_bytes"] % MIB == 0


def test_a_bucket_between_two_powers_of_two_is_found():
    """ResNet-50's best calls have 45 MiB, and no other whole MiB is as fast."""
    network = load("mgwfbp-10gbe")
    step = read_model("resnet50", network, None, None)
    question = Question(step, network, 64, 8, overlap=0.25)
    found, theta = buckets.of_ddp(question), buckets.of_theta(question)
    assert found["bucket_cap_mb"] == 45 and not found["keep_default"]
    assert found["step_s"] == pytest.approx(theta["step_s"])


def test_sizes_are_close_up_to_all_gradients():
    """Each whole MiB at first, then no more than 1 % apart; a small model has Horovod's default."""
    large = buckets.sizes_mib(asked([(0.01, 1 << 30)]))
    assert large[:150] == list(range(1, 151)) and large[-1] == 4096 and len(large) < 600
    assert all(b <= max(a + 1, 1.01 * a) for a, b in zip(large, large[1:]))
    assert buckets.sizes_mib(asked([(0.01, 10)]))[-1] == buckets.HOROVOD_DEFAULT_MIB


def test_of_equal_steps_the_smallest_bucket():
    assert buckets.smallest_of_best({1: 2.0, 8: 1.0, 25: 1.0 - 1e-4, 50: 1.5}) == 8


def test_sweeps_end_with_one_call_of_all_gradients():
    """BERT-Large has 1.3 GB of gradients, and on many ranks nothing beats one call."""
    network = load("mgwfbp-10gbe")
    question = Question(read_model("bertlarge", network, 8, 49.0), network, 10_000, 8)
    all_bytes = 4 * question.step.elements
    one_call_s = question.step.compute_s + question.flat(all_bytes)
    found, ddp = buckets.of_theta(question), buckets.of_ddp(question)
    assert found["step_s"] == SYSTEMS["theta"].step_s(question) == pytest.approx(one_call_s)
    assert max(found["sweep"]) == all_bytes in found["ties"]
    for sweep in (ddp["sweep"], buckets.of_horovod(question)["sweep"]):
        assert (max(sweep) - 1) * MIB < all_bytes <= max(sweep) * MIB
    assert ddp["step_s"] == pytest.approx(one_call_s)
    assert "sizes next to it" not in report.flat_in_words(found)


def random_list(number, seed):
    random = Random(seed)
    times = sorted(random.uniform(0.01, 0.1) for _ in range(number))
    return [(ready_s, round(10 ** random.uniform(2, 6.5))) for ready_s in times]


@pytest.mark.parametrize("seed", range(5))
def test_no_theta_is_faster_than_the_advised_one(seed):
    """Every sum of consecutive gradients is tried: no other theta changes the calls."""
    question = asked(random_list(20, seed), 64)
    gradients = [(ready_s, 4 * elements) for ready_s, elements in question.step.ready]
    sizes = [nbytes for _, nbytes in gradients]
    sums = {sum(sizes[i:j]) for i in range(20) for j in range(i, 21)}
    every = [predict(gradients, lazy(gradients, theta), question.flat).step_s for theta in sums]
    found = buckets.of_theta(question)
    assert found["step_s"] == pytest.approx(min(every) + question.step.after_s, rel=1e-3)
    assert found["step_s"] == SYSTEMS["theta"].step_s(question)
    assert found["theta_bytes"] == SYSTEMS["theta"].best_theta(question)


def test_a_long_list_tries_a_bounded_number_of_thetas():
    sizes = tuple(elements for _, elements in random_list(3000, 0))
    assert len(thetas.groupings(sizes)) < 100


def test_each_row_says_its_theta():
    """In the table, and as theta_bytes in JSON; other rows have none."""
    network = load("mgwfbp-10gbe")
    question = Question(read_model("alexnet", network, None, None), network, 16, 4)
    found = report.answer(question)
    for system in ("theta", "half", "CSC", "hierarchy", "hierarchy16", "DASO"):
        theta = found["systems"][system]["theta_bytes"]
        row = next(line for line in report.step_table(found) if line.startswith(f"{system} "))
        assert row.split()[-1] == report.megabytes(theta) and theta >= 0
    assert found["systems"]["merged"]["theta_bytes"] is None
    assert found["refgf"]["theta_bytes"] == found["systems"]["theta"]["theta_bytes"]
    assert found["refgf"]["step_s"] == found["systems"]["theta"]["step_s"]
