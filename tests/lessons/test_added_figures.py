"""Figures of lessons 14 and 15 of what they measure last: a training, and composed steps."""

import json
from pathlib import Path

import matplotlib
import pytest
from matplotlib.container import BarContainer

from lab.cache import training_picture
from lab.performance import composed_picture

matplotlib.use("Agg")
FIGURES = Path(__file__).resolve().parents[2] / "figures"


def test_nothing_measured_is_no_figure():
    """Images too small for AlexNet; one rank."""
    assert training_picture.draw({}) == {} and composed_picture.draw([]) == {}


def test_a_bar_is_as_long_as_its_epoch():
    training = json.loads((FIGURES / "14_data_cache.json").read_text())["training"]
    axis = training_picture.draw(training)["training"].axes[0]
    epochs = [epoch for epochs in training.values() for epoch in epochs]
    bars = [container for container in axis.containers if isinstance(container, BarContainer)]
    waits, steps = (container.patches for container in bars)
    for wait, step, epoch in zip(waits, steps, epochs, strict=True):
        assert wait.get_width() == epoch["waited_s"]["median_s"]
        assert step.get_x() + step.get_width() == pytest.approx(epoch["seconds"]["median_s"])


def test_composed_steps_have_their_largest_error():
    rows = json.loads((FIGURES / "15_performance_model.json").read_text())["composed"]
    (axis,) = composed_picture.draw(rows)["composed"].axes
    how = composed_picture.BLOCKING
    measured_s = [row["measured_s"][how]["median_s"] for row in rows]
    ratios = [row["predicted_s"]["roofline"][how] / s for row, s in zip(rows, measured_s)]
    worst = max(abs(ratio - 1) for ratio in ratios)
    assert f"roofline {worst:.0%}" in axis.get_title()
    measured = axis.containers[0].lines[0].get_ydata()
    assert list(measured) == [1e3 * s for s in measured_s]
