"""Lesson 13's timed batches: warm-up hardly sleeps, and its waits do not count."""

from types import SimpleNamespace

from lab.daso import times
from refgf.machine.accelerator import Pace


class Stack:
    """Notes the pace of each step."""

    def __init__(self, network):
        self.model, self.paces = SimpleNamespace(network=network), []

    def step(self, *batch, rate):
        self.paces.append(getattr(self.model.network, "pace", None))


def warm_up(network, steps):
    scene = SimpleNamespace(batches=iter([()] * steps))
    plain, stack = SimpleNamespace(Barrier=lambda: None), Stack(network)
    run = SimpleNamespace(plain=plain, clock=lambda: 0.0)
    times.warm_up(run, scene, stack, steps)
    return stack.paces


def test_only_the_last_step_of_a_warm_up_sleeps():
    real = Pace(1.0, (2.0,), 3.0)
    network = SimpleNamespace(pace=real)
    *quick, last = warm_up(network, 4)
    assert len(quick) == 3 and all(pace.end_s < 1e-3 for pace in quick)
    assert last is real and network.pace is real


def test_a_real_network_computes_in_every_step():
    assert warm_up(SimpleNamespace(), 3) == [None] * 3
