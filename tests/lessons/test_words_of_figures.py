"""What figures have to name: algorithms without nodes, whose V100, whose ranks, which baseline."""

import gains
import numpy as np
import pytest

from lab.csc import picture as csc
from lab.hierarchy import picture as hierarchy
from lab.performance import picture as performance
from lab.stack import bars
from lab.stack import picture as stack

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


def test_other_sizes_have_no_such_line():
    figure, axis = plt.subplots()
    hierarchy.draw_without_nodes(axis, [{"bytes": 4, "measured": {}}], 8, 1.0)
    assert not axis.lines


def test_the_v100_of_each_lesson_has_its_source():
    result = gains.figure("15_performance_model")
    text = performance.source_of(result["sweeps"]["ResNet-50"], result["base"])
    assert "data sheet says: 15.7 Tflop/s (float32), 900 GB/s: at most 553 images/s" in text
    assert "Lesson 08: 253 images/s, measured by others; lesson 07: 930, computed" in text


def test_the_map_of_bottlenecks_names_its_regions_only():
    """The star's numbers are in the title: in the map they would lie on the regions' border."""
    result = gains.figure("15_performance_model")
    figure = performance.draw(result)["bottlenecks"]
    assert "Star: the base of the other figure" in figure.get_suptitle()
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


@pytest.mark.parametrize("free, said", [(True, "2 x as fast as the ring"), (False, "3 x")])
def test_the_whole_stack_is_compared_with_a_bar_that_waits(free, said):
    rows = [
        {"name": name, "step": {"median_s": t, "low_s": t, "high_s": t}}
        for name, t in ((bars.NATIVE, 3.0), (bars.RING, 2.0), (bars.CSC, 1.0))
    ]
    assert said in stack.faster_than_the_first({"rows": rows, "latency_free": free})
