"""The machine file of lesson 08: one run writes it, another reads it; nonsense is refused."""

import json
from argparse import Namespace
from types import SimpleNamespace

import numpy as np
import pytest

import kit
from kit import layers
from lab.scaling import machine_file
from refgf.machine import threads
from refgf.nn.alexnet import AlexNet
from refgf.papers.scaling.machine import load, save
from refgf.papers.scaling.published import TEN_GIGABIT
from refgf.papers.scaling.scaling import best_theta_step, ready_of
from refgf.papers.scaling.systems import scaling_efficiency, stack
from refgf.papers.scaling.workloads import alexnet
from refgf.predict.cost import Link, ring_line

POINTS = [
    {"ranks": p, "links": {"float32": Link(1e-5 * (p > 1), 1e-9 * (p > 1))}} for p in (1, 2, 3)
]


def on_ranks(size, folder, function):
    options = Namespace(link=None, threads=size, quick=True, full=False, output=folder)
    return threads.run(size, lambda comm: function(kit.Run(comm, options)))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_measured_machine_can_be_read(size, tmp_path):
    machine, *others = on_ranks(
        size, tmp_path, lambda run: machine_file.measured(run, POINTS[:size])
    )
    assert others == [None] * (size - 1)
    assert load(tmp_path / "08_scaling.machine.json") == machine and machine.label == "measured"
    assert machine.lines == {p: ring_line(p, Link(1e-5, 1e-9)) for p in range(2, size + 1)}
    # threads have one node, and a beta of 0 is left out
    assert set(machine.links) <= ({"inside"} if size > 1 else set())


def test_layer_times_are_those_of_the_workload():
    """On a small network: names in forward order, and the times add up to the step."""
    network = AlexNet(10, 67, 1 / 16)
    run = SimpleNamespace(xp=np, array=np.asarray)
    events = machine_file.events_of_step(network, *layers.random_batch(run, network, 2))
    times_s, ready_s = layers.by_layer(
        [event for event, _ in events], np.diff([0.0, *(t for _, t in events)])
    )
    assert [name for name in times_s if name[:2] in ("co", "fc")] == [
        layer.name for layer in alexnet().layers if layer.tensors and layer.name[:2] in ("co", "fc")
    ]
    assert len(ready_s) == 26 and sum(map(sum, times_s.values())) == pytest.approx(events[-1][1])


def test_predictions_for_another_machine(tmp_path):
    save(TEN_GIGABIT, tmp_path / "sent.json")
    given = machine_file.given(tmp_path / "sent.json")
    (found,) = on_ranks(1, tmp_path, lambda run: machine_file.scale(run, given, [4, 2048]))
    assert {*found} == {system.name for system in stack(np.inf)}
    assert all({*row} == {*given.lines} for row in found.values())
    ready = ready_of(alexnet(), machine_file.BATCH.values[0], machine_file.V100_RATE.values[0])
    lazy = stack(np.inf)[2]
    predicted = best_theta_step(ready, lazy, given.lines[8])
    assert found[lazy.name][8] == scaling_efficiency(predicted)


def test_missing_and_invalid_files(tmp_path):
    with pytest.raises(ValueError, match="not there; wanted a machine file"):
        machine_file.given(tmp_path / "none.json")
    save(TEN_GIGABIT, tmp_path / "bad.json")
    data = json.loads((tmp_path / "bad.json").read_text())
    data["allreduce"]["8"]["a_s"] = -1e-4
    (tmp_path / "bad.json").write_text(json.dumps(data))
    with pytest.raises(ValueError, match="a_s = -0.0001; wanted 0.0 to"):
        machine_file.given(tmp_path / "bad.json")
