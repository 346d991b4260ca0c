"""What a figure's last lines say: error bars are explained unless a label calls them intervals."""

import matplotlib
import pytest

matplotlib.use("Agg")

from kit import axes  # noqa: E402  after the backend is chosen


@pytest.mark.parametrize(
    "bars, label, said", [(1, "ms", True), (None, "ms", False), (1, "95 % interval", False)]
)
def test_error_bars_are_explained(bars, label, said):
    figure, (axis,) = axes.frame("a title", 1, 1)
    axis.errorbar([1, 2], [3, 4], bars, label="measured")
    axis.set_ylabel(label)
    axes.finish(figure, axis)
    (note,) = (text.get_text() for text in figure.texts if text.get_text() != "a title")
    assert (axes.SPREAD in note) == said and note.endswith("measured on:")


def test_whose_time():
    assert axes.clock(1) == "ms of this machine"
    assert axes.clock(56.0) == "ms in the cluster's time\n(measured 56 times slower)"
