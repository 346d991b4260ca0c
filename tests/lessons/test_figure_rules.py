"""Figures that a lecture hall can read: size of the text, number of series, order of legends."""

import itertools
from pathlib import Path

import matplotlib
import pytest

from docs.tools import gains

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402  after the backend is chosen
from matplotlib.colors import to_hex  # noqa: E402
from matplotlib.lines import Line2D  # noqa: E402
from matplotlib.text import Text  # noqa: E402

from kit import axes  # noqa: E402

LESSONS = sorted((gains.ROOT / "lessons").glob("[0-9][0-9]_*.py"))
FINISHED = set()  # figures of a lesson that are drawn already
TOUCHING = 4  # pixels of two ticks' boxes, which include room for descenders
IN_SHORT = "01", "03", "07", "12"
SERIES = 5  # in a panel, besides straight lines and a key of bands
PLACE = "8 ranks, emulated cluster, 4 nodes x 2 ranks, links of 1gbit"
PROBED = "link probed: 119.6 MB/s of TCP; with headers 1.001 of the set rate"
CPU = "Intel(R) Xeon(R) Platinum 8488C CPU @ 2.40GHz"


DRAWN = [  # a few are enough at first
    pytest.param(file, id=file.stem, marks=[] if file.stem[:2] in IN_SHORT else pytest.mark.long)
    for file in LESSONS
]


@pytest.fixture(scope="module", params=DRAWN)
def drawn(request):
    """The figures of a lesson, drawn from the committed numbers and signed."""
    lesson: Path = request.param
    module = gains.module_of(lesson)
    draw = module.draw if hasattr(module, "draw") else module.picture.draw
    found = draw(gains.figure(lesson.stem))
    figures = list(found.values()) if isinstance(found, dict) else [found]
    for figure in figures:
        axes.sign(figure, PLACE, PROBED, CPU)
        figure.canvas.draw()
        FINISHED.add(figure)
    yield figures
    FINISHED.clear()
    plt.close("all")


def up_to_date(figure) -> None:
    """Drawn, so that ticks have labels and texts their places; a lesson's figure only once."""
    if figure not in FINISHED:
        figure.canvas.draw()


def labels(axis) -> list[str]:
    legend = axis.get_legend()
    return [text.get_text() for text in legend.get_texts()] if legend else []


def too_small(figure) -> list[str]:
    """Texts below TEXT_POINTS, and those with an exponent, which is drawn in 7/10 of the size."""
    up_to_date(figure)
    texts = [text for text in figure.findobj(Text) if text.get_text()]
    small = [text for text in texts if text.get_fontsize() < axes.TEXT_POINTS]
    return [text.get_text() for text in texts if text in small or "^{" in text.get_text()]


def test_every_text_can_be_read(drawn):
    for figure in drawn:
        assert figure.get_figwidth() == axes.WIDTH_INCHES and too_small(figure) == []


def test_a_caption_is_short(drawn):
    for figure in drawn:
        title, caption, _ = (text.get_text() for text in figure.texts)
        assert len(caption.splitlines()) <= axes.NOTES, title


def test_small_text_is_noticed():
    figure, _ = axes.frame("a title", 1, 1)
    figure.text(0, 0, "small", fontsize=7)
    assert too_small(figure) == ["small"]


def test_an_exponent_is_noticed():
    figure, (axis,) = axes.frame("a title", 1, 1)
    axis.loglog([1, 1000], [1, 1e-3])
    assert any("10^{-3}" in text for text in too_small(figure))
    axes.finish(figure)
    assert too_small(figure) == []


@pytest.mark.parametrize(
    "x, base, text",
    [
        (0, 10, "0"),
        (0.001, 10, "0.001"),
        (3e-4, 10, "0.0003"),
        (1e5, 10, "100,000"),
        (1e7, 10, "10 M"),
        (1e13, 10, "10,000 G"),
        (512, 2, "512"),
        (2.0**25, 2, "2^25"),
    ],
)
def test_ticks_by_hand(x, base, text):
    assert axes.power(x, base) == text


def test_few_series_in_a_panel(drawn):
    for figure in drawn:
        for axis in figure.axes:
            straight = {line.get_label() for line in axis.lines if is_straight(axis, line)}
            bands = [label for label in labels(axis) if label.startswith("bands")]
            assert len(set(labels(axis)) - straight - set(bands)) <= SERIES, labels(axis)


def looks(axis) -> set[tuple]:
    """(colour, marker) of all points: not of caps, ticks and stars."""
    lines = [line for line in axis.lines if str(line.get_marker()) not in ("None", "|", "_", "*")]
    return {(to_hex(shown(line)), line.get_marker()) for line in lines}


def test_few_looks_in_a_panel(drawn):
    for figure in drawn:
        for axis in figure.axes:
            assert len(looks(axis)) <= SERIES, (axis.get_title(), looks(axis))


def test_a_cross_of_colours_and_markers_is_noticed():
    _, (axis,) = axes.frame("a title", 1, 1)
    for colour, marker in itertools.product(axes.COLOURS[:2], "so^"):
        axis.plot([1, 2], [3, 4], marker, color=colour)
    assert len(looks(axis)) == 6 > SERIES


def is_straight(axis, line) -> bool:
    return not all(line.get_transform().contains_branch_seperately(axis.transData))


def test_legends_have_one_order(drawn):
    """Measured, then predicted, then straight lines: axes.in_order."""
    for figure in drawn:
        for axis in figure.axes:
            straight = {line.get_label() for line in axis.lines if is_straight(axis, line)}
            places = [2 if x in straight else int("predicted" in x) for x in labels(axis)]
            assert places == sorted(places), labels(axis)


def test_the_order_by_hand():
    _, (axis,) = axes.frame("a title", 1, 1)
    axis.axhline(1, label="no exchange")
    axis.plot([1, 2], [3, 4], label="ring, predicted")
    axis.errorbar([1, 2], [3, 4], label="ring")
    assert axes.in_order(axis)[1] == ["ring", "ring, predicted", "no exchange"]


def test_the_signature_lies_below_the_notes_and_in_the_figure(drawn):
    for figure in drawn:
        renderer = figure.canvas.get_renderer()
        *_, note, signature = (text.get_window_extent(renderer) for text in figure.texts)
        assert signature.y0 >= 0 and signature.y1 <= note.y0 and signature.x1 <= figure.bbox.x1


def other_colours(axis) -> set[str]:
    """Of lines, markers, bars and texts: those that are neither Okabe and Ito's nor a grey."""
    colours = [*map(shown, axis.lines), *map(Text.get_color, axis.texts)]
    colours += [patch.get_facecolor() for patch in axis.patches]
    found = {to_hex(colour).upper() for colour in colours}
    grey = {colour for colour in found if colour[1:3] == colour[3:5] == colour[5:7]}
    return found - grey - set(axes.COLOURS)


def shown(line: Line2D):
    """The colour of a line, or of its markers where there is no line."""
    return line.get_markeredgecolor() if line.get_linestyle() == "None" else line.get_color()


def test_colours_that_colour_blind_readers_can_tell_apart(drawn):
    for figure in drawn:
        for axis in figure.axes:
            assert other_colours(axis) == set()


def test_other_colours_are_noticed():
    _, (axis,) = axes.frame("a title", 1, 1)
    axis.plot([1, 2], [3, 4], color="tab:red")
    axis.plot([1, 2], [3, 4], **axes.style(0))
    assert other_colours(axis) == {"#D62728"}


def overlapping(axis, renderer) -> list[tuple]:
    """Pairs of texts, the legend's too, that overlap by more than 2 pixels in both directions."""
    found = [(text.get_text(), text) for text in axis.texts if text.get_text()]
    found += [("the legend", axis.get_legend())] * bool(axis.get_legend())
    boxes = [(name, artist.get_window_extent(renderer)) for name, artist in found]
    return [
        (name, other)
        for (name, a), (other, b) in itertools.combinations(boxes, 2)
        if common(a, b) > 2
    ]


def common(a, b) -> float:
    """The smaller side of what two boxes have in common, in pixels; below 0 if they are apart."""
    return min(min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0))


def test_no_text_covers_another(drawn):
    for figure in drawn:
        up_to_date(figure)
        for axis in figure.axes:
            assert overlapping(axis, figure.canvas.get_renderer()) == []


def ticks(axis, renderer) -> list[tuple]:
    """(name, box) of the labels along x, and of those along y, from one side to the other."""
    for which in (axis.xaxis, axis.yaxis):
        found = [tick.label1 for tick in which.get_major_ticks() + which.get_minor_ticks()]
        found = [label for label in found if label.get_text() and not label.get_rotation()]
        yield [(label.get_text(), label.get_window_extent(renderer)) for label in found]


def crowded(figure) -> list[tuple]:
    """Labels of ticks that cover another."""
    up_to_date(figure)
    rows = [row for axis in figure.axes for row in ticks(axis, figure.canvas.get_renderer())]
    pairs = [pair for row in rows for pair in itertools.combinations(row, 2)]
    return [(name, other) for (name, a), (other, b) in pairs if common(a, b) > TOUCHING]


def test_no_label_of_a_tick_covers_another(drawn):
    assert [pair for figure in drawn for pair in crowded(figure)] == []


def test_crowded_ticks_are_noticed():
    figure, (axis,) = axes.frame("a title", 1, 1)
    axis.set_xticks([0, 1, 2], 3 * [60 * "w"])
    assert crowded(figure)


def test_no_text_is_cut(drawn):
    for figure in drawn:
        up_to_date(figure)
        texts, page = list(figure.texts), figure.bbox
        for axis in figure.axes:
            texts += [*axis.texts, axis.title, axis.xaxis.label, axis.yaxis.label]
        for text in (text for text in texts if text.get_text()):
            box = text.get_window_extent(figure.canvas.get_renderer())
            inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= page.x1 and box.y1 <= page.y1
            assert inside, text.get_text()


def test_text_under_a_legend_is_noticed():
    figure, (axis,) = axes.frame("a title", 1, 1)
    axis.plot([1, 2], [3, 4], label="ring")
    axis.annotate("ring", (0.05, 0.92), xycoords="axes fraction")
    axis.legend(loc="upper left")
    figure.canvas.draw()
    assert overlapping(axis, figure.canvas.get_renderer()) == [("ring", "the legend")]


def test_a_longer_signature_is_cut():
    figure, _ = axes.frame("a title", 1, 1)
    axes.sign(figure, *100 * [CPU])
    assert figure.texts[-1].get_text().count("\n") == axes.SIGNED - 1
