"""What figures of lessons 10 and 15 have to name: algorithms without nodes, whose V100 it is."""

import gains
import pytest

from lab.hierarchy import picture as hierarchy
from lab.performance import picture as performance

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
