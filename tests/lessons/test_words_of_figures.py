"""What figures have to name: algorithms without nodes, whose V100, whose ranks, which baseline."""

import numpy as np
import pytest

from docs.tools import gains
from lab.csc import picture as csc
from lab.hierarchy import picture as hierarchy
from lab.low_rank import claims as low_rank
from lab.low_rank import picture as low_rank_picture
from lab.overlap import picture as overlap
from lab.performance import bottleneck_study, composed_picture
from lab.performance import claims as performance_claims
from lab.performance import picture as performance
from lab.scaling import picture as scaling
from lab.scaling.far import RESNET_RATE
from lab.stack import bars
from lab.stack import picture as stack
from lab.topk import claims as topk
from refgf.cluster import like

GLOSSARY = gains.ROOT / "lessons" / "glossary.md"
plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def unseen():
    plt.switch_backend("Agg")
    yield
    plt.close("all")


def test_hierarchies_are_drawn_with_what_knows_no_nodes():
    result = gains.figure("10_hierarchical_allreduce")
    factor, sizes = 1e3 * hierarchy.scale(result), result["by_k"][0]["bytes"]
    axes = hierarchy.draw_ranks_per_node(result).axes
    for axis, nbytes in zip(axes, sizes, strict=True):
        point = next(p for p in result["points"] if p["bytes"] == nbytes)
        lines = {line.get_label(): line.get_ydata()[0] for line in axis.lines}
        for name in ("flat ring", "recursive doubling"):
            wanted = factor * point["measured"][name]["median_s"]
            assert lines[f"{name} (no hierarchy)"] == wanted


def test_the_fastest_of_each_size_is_named_once_and_a_tie_is_one():
    points = gains.figure("10_hierarchical_allreduce")["points"]
    found = hierarchy.stretches(points)
    assert [point for _, stretch in found for point in stretch] == points
    for name, stretch in found:
        for point in stretch:
            first, second = sorted(point["measured"].values(), key=lambda t: t["median_s"])[:2]
            alone = first["high_s"] < second["low_s"]
            assert point["measured"][name] is first if alone else name is None
    tie = {"a": spread(1, 2, 3), "b": spread(2, 3, 4)}
    assert hierarchy.stretches([{"measured": tie}])[0][0] is None


def test_other_sizes_have_no_such_line():
    figure, axis = plt.subplots()
    hierarchy.draw_without_nodes(axis, [{"bytes": 4, "measured": {}}], 8, 1.0)
    assert not axis.lines


def test_the_marks_of_what_feeds_no_error_back_are_hollow():
    """The vote, too, which feeds nothing back."""
    result = gains.figure("17_low_rank")
    learned = result["learning"]
    lines = [line for line in low_rank_picture.draw(result).axes[1].lines if len(line.get_xdata())]
    hollow = {line.get_ydata()[0] for line in lines if line.get_markerfacecolor() == "white"}
    unfed = {
        np.mean(runs)
        for name, runs in learned["methods"].items()
        if name.endswith("no error") or name == "majority vote"
    }
    assert len(unfed) == 3 and sorted(hollow) == pytest.approx(sorted(unfed))


def test_the_v100_of_each_lesson_has_its_source():
    result = gains.figure("15_performance_model")
    bound = bottleneck_study.alone(result["sweeps"], result["base"])
    (others,) = [line for line in GLOSSARY.read_text().splitlines() if "V100's pace" in line]
    batch, seconds = like.load("v100-56gbit").step_s("resnet50")
    for pace in (batch / seconds, RESNET_RATE.values[0], bound):
        assert f"{pace:.0f}" in others


def test_the_map_of_bottlenecks_names_its_regions_only():
    """The star's numbers are below: in the map they would lie on the regions' border."""
    result = gains.figure("15_performance_model")
    figure = performance.draw(result)["bottlenecks"]
    assert "Star: 64 images a rank, 56 Gbit/s." in performance.star_in_words(result["base"])
    assert "takes the largest share of the step" in figure.get_suptitle()
    for axis, rows in zip(figure.axes, result["map"]["bottlenecks"].values(), strict=True):
        regions = {performance.PARTS[resource] for row in rows for resource in row}
        assert {text.get_text() for text in axis.texts} == regions


def test_a_region_is_named_inside():
    """Not at its middle, which may lie on its border."""
    corner = np.array([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 0, 0]], bool)
    assert corner[performance.inside(corner)[::-1]]
    assert performance.inside(np.ones((3, 5), bool)) == (2, 1)
    assert performance.inside(np.array([[True, False]])) == (0, 0)


def test_composed_steps_name_their_own_ranks():
    result = gains.figure("15_performance_model")
    where = performance.draw(result)["composed"].get_label()
    assert where.startswith("2, 4 and 8 ranks, while the others sleep; ")


def test_the_density_of_a_short_training_has_its_warm_up():
    result = {"study": {"epochs": 4}, "options": {"warmup": None}, "chosen": {"percent": 10.0}}
    assert csc.density_in_words(result) == "CSC's 4 epochs send 100, 25 and then 10 %."
    given = result | {"options": {"warmup": [50]}}
    assert csc.density_in_words(given) == "CSC's 4 epochs send 50 and then 10 %."


def test_the_whole_stack_is_compared_with_a_bar_that_waits():
    """MPI's own call waits for no latency."""
    rows = [
        {"name": name, "step": {"median_s": t, "low_s": t, "high_s": t}}
        for name, t in ((bars.NATIVE, 3.0), (bars.RING, 2.0), (bars.CSC, 1.0))
    ]
    found = stack.with_place({"rows": rows}, "")
    assert "2 x as fast as the ring" in stack.faster_than_the_first(found)


def test_there_is_one_bottleneck_in_row_map_and_sweep():
    """That of the largest share: the row's link is the first row of the map without network."""
    result = gains.figure("15_performance_model")
    row = performance_claims.rows(result)[-1]
    column = result["map"]["batches"].index(result["base"]["batch"])
    by_link = zip(result["map"]["links"], result["map"]["bottlenecks"]["ResNet-50"])
    slowest = min(link for link, cells in by_link if cells[column] != "network")
    assert row.unit(row.predicted) == performance_claims.gigabits(slowest) == "12.8 Gbit/s"
    (quarter,) = (p for p in result["sweeps"]["ResNet-50"]["link"] if p["factor"] == 0.25)
    (base,) = (p for p in result["sweeps"]["ResNet-50"]["link"] if p["factor"] == 1)
    lost = 1 - quarter["images_per_s"] / base["images_per_s"]  # of teaching/15.md: a third
    assert quarter["bottleneck"] == "flops" and lost == pytest.approx(1 / 3, abs=0.02)
    for points in result["sweeps"]["ResNet-50"].values():
        for point in points:
            assert point["bottleneck"] == max(point["shares"], key=point["shares"].get)


def test_composed_steps_name_the_largest_error_of_both_models():
    step = {"median_s": 1.0}
    how = composed_picture.BLOCKING
    rows = [
        {"measured_s": {how: step}, "predicted_s": {"roofline": {how: a}, "perceptrons": {how: b}}}
        for a, b in ((0.8, 1.3), (1.1, 0.9))
    ]
    said = composed_picture.largest_errors(rows)
    assert said == "Predictions at worst: roofline 20% too short, perceptrons 30% too long"


def spread(low_s: float, median_s: float, high_s: float) -> dict:
    return {"low_s": low_s, "median_s": median_s, "high_s": high_s}


@pytest.mark.parametrize("low_s, noise", [(1.5, True), (2.5, False)])
def test_a_ratio_within_noise_is_called_so(low_s, noise):
    times = {name: spread(1, 1, 2) for name in ("dense ring", "CSC", "HiTopKComm")}
    times["top-k"] = spread(low_s, 3, 4)
    rows = [
        {"name": name, "percent": 100.0 if name == "dense ring" else 10.0, "messages": timing}
        for name, timing in times.items()
    ]
    result = {"ranks": 8, "regime": {"dilation": 1.0}, "exchange": {"rows": rows}}
    assert topk.answer(result).endswith("within noise") == noise


@pytest.mark.parametrize("low, said", [(0.9, ["level", "level"]), (0.98, ["furthest", ""])])
def test_calls_that_get_as_far_are_level(low, said):
    shares = {"polled": spread(low, 0.99, 1.0), "thread": spread(0.94, 0.95, 0.96)}
    found = {"progressed": shares, "mpi": "MPI", "bytes": 1, "sleep_s": 1.0}
    (axis,) = overlap.progress(found).axes
    assert [text.get_text().partition(", ")[2] for text in axis.texts] == said


@pytest.mark.parametrize(
    "step_s, predicted_s, said", [(1.1, 0.9, "Dashed above"), (0.9, 1.1, "Above"), (1.1, 1.1, "")]
)
def test_an_efficiency_above_100_percent_is_measured_or_predicted(step_s, predicted_s, said):
    row = {"timing": {"median_s": step_s}, "predicted_s": predicted_s}
    fewer, most = ({"off": {"median_s": 1.0}, "rows": each} for each in ([row], []))
    text = scaling.above_100([fewer, most])
    assert text.startswith(said) and bool(text) == bool(said)


def test_the_share_of_the_chunks_explains_the_interval_of_a_headline():
    said = scaling.share_of_chunks({"low": 128.0})
    assert "CSC sends 10 to 100 % of the chunks here" in said and "128 of 512 (25 %)" in said


def test_the_questions_before_lesson_17_are_answered_on_its_screen():
    """Bytes of signs and votes; points that rank 1 loses, with its error and without."""
    result = gains.figure("17_low_rank")
    shown = {row.what: row.cells() for row in low_rank.rows(result)}
    accuracy = {name: np.mean(runs) for name, runs in result["learning"]["methods"].items()}
    for name in ("PowerSGD, rank 1", "PowerSGD, rank 1, no error"):
        lost = accuracy["dense"] - accuracy[name]
        assert shown[f"{name}: points lost"][1] == f"{lost:.1f}"
    assert {"signs, 16 ranks", "majority vote, 16 ranks"} < set(shown) and len(shown) == 5


def test_the_bytes_at_the_bars_are_packed_and_the_table_has_those_sent():
    result = gains.figure("06_csc")
    p, sentence = result["ranks"], csc.packed(result["ranks"])
    assert sentence.endswith(f" = {2 * (p - 1) / p:g} times as many.")
    for each in result["times"]["rows"]:
        assert each["bytes"] / each["payload"] == pytest.approx(2 * (p - 1) / p, rel=0.01)
    figure = csc.draw(result)["times"]
    assert sentence in " ".join(figure.texts[1].get_text().split())
    assert "119 MiB" in figure.axes[0].get_yticklabels()[0].get_text()


@pytest.mark.parametrize(
    "other_s, notes, number",
    [(2.0, ["", "shortest with exchange", ""], 1), (1.1, ["", "level", "level"], None)],
)
def test_the_step_without_exchange_is_no_candidate(other_s, notes, number):
    """It is shorter than each that the label compares. Repeats differ by a tenth."""
    rows = [
        overlap.row_of(name, spread(0.9 * step_s, step_s, 1.1 * step_s))
        for name, step_s in (("no exchange", 0.5), ("26 calls", 1.0), ("1 call", other_s))
    ]
    assert overlap.mark_shortest(rows, rows[1:]) == number
    assert [row["note"] for row in rows] == notes


@pytest.mark.parametrize("other, said", [(0.5, ["fastest"]), (0.95, ["level", "level"])])
def test_exchanges_within_noise_are_level(other, said):
    """Lesson 06: two exchanges, whose repeats differ by a tenth."""
    _, axis = plt.subplots()
    times_s = 1.0, other
    rows = [
        {"name": "a", "sent": 8, "parts": {"own": s}, "timing": spread(0.9 * s, s, 1.1 * s)}
        for s in times_s
    ]
    csc.draw_parts(axis, rows, 1.0)
    assert [text.get_text() for text in axis.texts] == said


def test_shares_that_differ_are_not_the_same_number():
    """The furthest is not 100 % next to another 100 %."""
    (axis,) = overlap.progress(gains.figure("04_overlap")["progress"]).axes
    shown = [text.get_text().partition(",")[0] for text in axis.texts]
    assert len(set(shown)) == len(shown) == 3


@pytest.mark.parametrize("place", ["05_mixed_precision.py", "teaching/05.md", "slides/05.md"])
def test_errors_of_8_bits_are_the_predicted_ones(place):
    """The ring on 512 ranks and direct: one number in lesson, teacher's page and slides."""
    predicted = gains.figure("05_mixed_precision")["blocks"]["predicted"]["512"]
    ring, direct = (predicted[f"{name}, float8"] for name in ("ring", "direct"))
    text = (gains.ROOT / "lessons" / place).read_text()
    assert f"{100 * ring:.0f} %" in text and f"{100 * direct:.1f} %" in text
