"""A figure's caption and signature, and texts in bars."""

import matplotlib
import pytest

matplotlib.use("Agg")

from kit import axes  # noqa: E402  after the backend is chosen


def test_notes_can_be_left_out():
    figure, (axis,) = axes.frame("a title", 1, 1)
    axis.plot([1, 2], [3, 4], label="a line")
    axes.sign(axes.finish(figure, axis, below="why"), "8 ranks")
    axes.without_notes(figure)
    assert [text.get_text() for text in figure.texts] == ["a title"]


def test_lines_below_the_panels_stand_above_the_note():
    figure, (axis,) = axes.frame("a title", 1, 1)
    axis.plot([1, 2], [3, 4])
    axes.sign(axes.finish(figure, computed=True, below="word " * 40), "8 ranks")
    assert figure.texts[-2].get_text().count("\n") == 1
    assert figure.texts[-1].get_text() == f"{axes.COMPUTED} 8 ranks"
    figure, _ = axes.frame("a title", 1, 1)
    axes.sign(axes.finish(figure), "8 ranks")
    assert figure.texts[-1].get_text() == f"{axes.MEASURED} 8 ranks"


@pytest.mark.parametrize(
    "more, warned", [({}, True), ({"timed": False}, False), ({"computed": True}, False)]
)
def test_a_busy_machine_is_said_where_times_are_drawn(more, warned):
    for untimed_too in (False, True):  # the latter with --quick, whose sizes are too small
        figure = axes.finish(axes.frame("a title", 1, 1)[0], **more)
        axes.warn(figure, "BUSY", untimed_too)
        assert (figure.texts[-1].get_text() == "BUSY") == (warned or untimed_too)


@pytest.mark.parametrize("step_s, inside", [(9.0, True), (1.0, False)])
def test_text_that_would_leave_its_bar_stands_behind_it(step_s, inside):
    _, (axis,) = axes.frame("a title", 1, 1)
    timings = [{"median_s": t, "low_s": t, "high_s": t} for t in (10.0, step_s)]
    rows = [{"name": "a", "timing": t, "predicted_s": 2.0, "note": "a note"} for t in timings]
    axes.bars(axis, rows, 1.0)
    x, _ = axis.texts[-1].xy
    assert x == (0 if inside else 2.0)  # behind the prediction


def test_whose_time():
    assert axes.clock(1) == "ms of this machine"
    assert axes.clock(56.0) == "ms in the cluster's time\n(measured 56 times slower)"


def test_the_text_of_a_short_bar_with_a_part_stands_behind_it():
    """Above its middle it would stand between two bars."""
    _, (axis,) = axes.frame("a title", 1, 1)
    timings = [{"median_s": t, "low_s": t, "high_s": t} for t in (10.0, 1.0)]
    rows = [
        {"name": "a", "timing": t, "predicted_s": None, "note": "a note", "part_s": 0.5}
        for t in timings
    ]
    axes.bars(axis, rows, 1.0)
    long, short = ((text.xy[0], text.xyann[1]) for text in axis.texts)
    assert long == (9.5, 18) and short == (1.0, 0)
