"""The figure of --figure: its lines and its title; and what is said without matplotlib."""

import math
import sys

import pytest

from refgf.plan import figure


def test_a_line_has_a_gap_where_its_system_does_not_apply(monkeypatch, tmp_path):
    axes = pytest.importorskip("matplotlib.axes").Axes
    lines, titles, plot = {}, [], axes.plot

    def noted(self, x, y, label, **style):
        lines[label] = x, y
        return plot(self, x, y, label=label, **style)

    monkeypatch.setattr(axes, "plot", noted)
    monkeypatch.setattr(axes, "set_title", lambda self, text, **style: titles.append(text))
    monkeypatch.setattr(axes, "axvline", lambda self, x, label, **style: titles.append(label))
    curves = {"hierarchy": {1: 100.0, 2: None, 4: 50.0}, "DASO": {1: 100.0, 2: None, 4: None}}
    names = {"model": {"name": "m"}, "network": {"name": "n"}, "ranks": 4, "ranks_per_node": 2}
    figure.draw(names | {"efficiency_percent": curves}, str(tmp_path / "plan.png"))
    assert titles == ["m on n, 2 ranks a node", "--ranks 4"]
    assert list(lines) == ["hierarchy"]  # the legend names no system that is not drawn
    assert lines["hierarchy"][0] == [1, 2, 4] and math.isnan(lines["hierarchy"][1][1])


def test_a_long_title_is_wrapped(monkeypatch, tmp_path):
    axes = pytest.importorskip("matplotlib.axes").Axes
    titles = []
    monkeypatch.setattr(axes, "set_title", lambda self, text, **style: titles.append(text))
    names = {"model": {"name": "trace.json, ProfilerStep#3"}, "ranks": 4, "ranks_per_node": 2}
    names["network"] = {"name": "nccl-tests, allreduce on 32 GPUs of 4 hosts"}
    figure.draw(names | {"efficiency_percent": {}}, str(tmp_path / "plan.png"))
    assert titles[0].replace("\n", " ").endswith(", 2 ranks a node")
    assert max(map(len, titles[0].split("\n"))) <= figure.WIDTH


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ValueError, match="got no matplotlib"):
        figure.draw({}, "plan.png")
