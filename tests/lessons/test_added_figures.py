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
