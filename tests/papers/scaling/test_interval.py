"""Intervals over inputs, and the headlines.

Sources, calibration kept apart, predictions by hand where possible.
"""

from dataclasses import replace

import pytest

from refgf.papers.scaling.headline_steps import IMAGES, gradientflow_step, tf_cnn_alexnet
from refgf.papers.scaling.headlines import HEADLINES, IMPLIED_RATE, V100_RATE
from refgf.papers.scaling.interval import Headline, Input


def headline(predict, *inputs, name="h", published=5.0):
    return Headline(name, published, "x", "stated", "a test", inputs, predict)


def given(name, *values, calibrated_from=None):
    return Input(name, values, "s", "inferred", "a test", calibrated_from)


def test_interval_by_hand():
    """a in {1, 3}, b in {2, 4}: a * b from 2 to 12.

    a alone (b = 2) 2 to 6, b alone (a = 1) 2 to 4.
    """
    h = headline(lambda a, b: a * b, given("a", 1, 3), given("b", 2, 4))
    assert h.interval() == (2, 12) and h.inside
    assert h.widths() == {"a": 3, "b": 2}
    assert not replace(h, published=13).inside


def test_a_width_is_the_largest_over_the_other_inputs():
    """a matters only where b = 10: 1 + a b from 1 to 11; at b = 0, its first value, not at all."""
    h = headline(lambda a, b: 1 + a * b, given("a", 0, 1), given("b", 0, 10))
    assert h.widths() == {"a": 11, "b": 11}


def test_calibration_is_not_a_result():
    assert headline(lambda a: a, given("a", 1)).is_result
    assert not headline(lambda a: a, given("a", 1, calibrated_from="h")).is_result


@pytest.mark.parametrize("h", HEADLINES, ids=[h.name for h in HEADLINES])
def test_headlines(h):
    low, high = h.interval()
    assert 0 < low < high
    assert h.is_result and h.label in ("stated", "verified")
    widths = h.widths()
    assert all(len(varied.values) > 1 for varied in h.inputs if varied.name in widths)
    assert list(widths.values()) == sorted(widths.values(), reverse=True)


def test_the_implied_rate_would_not_be_a_result():
    first = HEADLINES[0]
    circular = replace(first, inputs=(IMPLIED_RATE, *first.inputs[1:]))
    assert first.inputs[0] is V100_RATE and not circular.is_result


def test_the_implied_rate():
    """410.2 times one GPU does 95 epochs in 90 s: 3297 images/s."""
    assert IMPLIED_RATE.values[0] == pytest.approx(95 * IMAGES / 90 / 410.2, abs=0.5)


def test_the_other_alexnet():
    """torchvision's has 61,100,840 parameters.

    With 384 instead of 256 filters in conv4 these are 737,408 more.
    """
    # conv4 and its biases; conv5's inputs
    more = (384 - 256) * (9 * 384 + 1) + (384 - 256) * 9 * 256
    assert tf_cnn_alexnet().parameters == 61_100_840 + more
    # its flops over the paper's
    assert V100_RATE.values == pytest.approx((0.74 * 5132, 0.74 * 9319), rel=0.005)


def test_two_headlines_are_one_step():
    """Both numbers come from the same step: images/s = throughput over one GPU * rate."""
    inputs = {given.name: given.values[0] for given in HEADLINES[0].inputs}
    timeline = gradientflow_step(512, **inputs)
    throughput = 512 * timeline.compute_s / timeline.step_s
    assert HEADLINES[0].predict(**inputs) == pytest.approx(throughput, rel=1e-15 * 8)
    # 19.55 steps an epoch
    assert HEADLINES[1].predict(**inputs) == pytest.approx(95 * 20 * timeline.step_s / 60)


def test_headlines_share_their_steps():
    """Three of them ask for the same 64; a step takes 10 ms, and lesson 08 asks for all."""
    inputs = {each.name: each.values[0] for each in HEADLINES[0].inputs}
    assert gradientflow_step(512, **inputs) is gradientflow_step(512, **inputs)


@pytest.mark.parametrize("wrong", [{"label": "guessed"}, {"values": ()}, {"source": ""}])
def test_inputs_need_label_value_and_source(wrong):
    with pytest.raises(ValueError, match="wanted a label"):
        Input(
            **({"name": "a", "values": (1,), "unit": "s", "label": "stated", "source": "x"} | wrong)
        )
