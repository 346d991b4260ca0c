"""Published scaling rows: their form, their sources, and the half that calibrates nothing."""

import tomllib
from collections import Counter
from dataclasses import fields
from pathlib import Path

import pytest

from refgf.papers.scaling.benchmark_rows import NETWORKS as DDL
from refgf.papers.scaling.rows import ROWS as MGWFBP
from refgf.plan import published
from refgf.plan.published import FABRICS, NETWORKS, ONE_BOX, RDMA, ScalingRow, rows

NODES = tomllib.loads(Path(published.__file__).parents[1].joinpath("nodes.toml").read_text())
INPUTS = {field.name for field in fields(ScalingRow)}


def test_there_are_enough_of_each_kind():
    found = rows()
    assert len(found) >= 60 and len({row.source for row in found}) >= 15
    assert len({row.name for row in found}) == len(found)
    assert {row.ranks for row in found} >= {2, 256, 512, 1024, 2048}
    boxes = {(row.node, row.fabric) for row in found}
    assert boxes >= {
        (node, fabric) for node in ("dgx-a100", "dgx-h100") for fabric in (ONE_BOX, RDMA)
    }
    assert min(Counter(row.fabric for row in found).values()) >= 30
    assert min(Counter(row.kind for row in found).values()) >= 30


def test_a_row_says_where_it_is_from_and_what_was_assumed():
    for row in rows():
        assert row.address.startswith("http") and row.date[:2] == "20" and row.publisher, row.name
        assert set(row.assumed) <= INPUTS and all(row.assumed.values()), row.name
        assert row.network in NETWORKS and row.node in NODES and row.fabric in FABRICS, row.name
        assert (row.fabric == ONE_BOX) == (row.ranks <= row.per_node), row.name
        assert (row.fabric == ONE_BOX) == (row.between is None), row.name
        assert 0.02 < row.efficiency < 1.1 and row.wire in (2, 4), row.name
        assert row.ranks <= row.per_node or row.ranks % row.per_node == 0, row.name


def test_a_family_is_on_one_side_and_the_sides_are_what_they_were():
    """A new row must not move an old one to the other half."""
    families = {row.family: row.held_out for row in rows()}
    assert all(families[row.family] == row.held_out for row in rows())
    boxes = [
        row for row in rows() if "DGX-1 V100" in row.series and "PyTorch, ResNet" in row.series
    ]
    assert {"16 GB" in row.series for row in boxes} == {True, False}
    assert len({row.held_out for row in boxes}) == 1  # of 16 and of 32 GB: near copies
    sides = {row.series: row.held_out for row in rows()}
    assert sides["NVIDIA PyTorch, ResNet-50, DGX A100, AMP"] is True
    assert sides["DLPerf, BERT-Base, NGC PyTorch, FP32"] is False
    assert sides["Batch AI, ResNet-50, V100"] is False
    assert sides["Kempner, ResNet-50, A100"] is False
    assert 0.4 < sum(families.values()) / len(families) < 0.6


def test_rows_of_a_table_are_the_table():
    found = {row.name: row for row in rows()}
    row = found["ddl-benchmarks, BERT-Large, 10GbE with TCP/IP, 32 devices"]
    rates = DDL["BERT-Large"].measured["10GbE with TCP/IP"][2]
    assert 32 * row.batch / row.step_s == pytest.approx(rates[3])
    row = found["MG-WFBP, DenseNet-201, 56Gb IB, 16 bits, 16 devices"]
    measured = [each for each in MGWFBP if each.network == "DenseNet-201"][-1]
    assert row.step_s == pytest.approx(measured.measured_s[2])
    assert row.compute_s == pytest.approx(measured.compute_s)


def test_rates_and_efficiencies_of_a_file(tmp_path):
    file = tmp_path / "one.toml"
    file.write_text(
        'name="S"\npublisher="P"\naddress="http://x"\ndate="2020"\nmeasured="m"\nbatch=8\n'
        'network="ResNet-50"\nper_node=4\nnode="pcie3"\nbetween="10gbit"\nfabric="RDMA"\n'
        '[why]\nnode="w"\nwire="not used"\n[[series]]\nname="A"\nsingle=100\naccumulate=2\n'
        "rates={4=300, 8=400}\nefficiencies={16=0.25}\n"
    )
    found = list(published.read(file))
    assert [row.ranks for row in found] == [4, 8, 16]
    assert [row.efficiency for row in found] == [0.75, 0.5, 0.25]
    assert [row.fabric for row in found] == ["one box", "RDMA", "RDMA"]
    assert found[0].assumed == {"node": "w"} and found[2].step_s == pytest.approx(4 * 0.16)
