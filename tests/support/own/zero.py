"""The project's ZeRO-1 and ZeRO-3 behind the names and arguments of SPEC.md. Part of own.py."""

from functools import cache
from types import SimpleNamespace

import numpy as np

from refgf.exchange.pool import Pool
from refgf.machine import threads
from refgf.machine.trace import TracedComm
from refgf.papers.zero.zero1 import ZeRO1
from refgf.papers.zero.zero3 import ZeRO3
from refgf.training.sgd import MomentumSGD, PlainSGD
from tests.support.own.prescribed import Spec


@cache
def of_each_rank(n, p, dtype="float32"):
    """Each rank's ((start, stop) of its slice, (messages, bytes) of a step). Counted."""

    def body(comm):
        traced, w = TracedComm(comm), np.zeros(n, dtype)
        zero = ZeRO1(traced, w, lambda own: PlainSGD(w[own]))
        zero.step(np.ones(n, dtype), 0.1)
        return (zero.own.start, zero.own.stop), (traced.messages, traced.bytes)

    return threads.run(p, body)


def zero_slice(n, p, rank):
    return of_each_rank(n, p)[rank][0]


def zero_traffic(n, p, rank, itemsize=4):
    return of_each_rank(n, p, f"f{itemsize}")[rank][1]


class Layers:
    """A network whose layers have a tensor each and compute nothing."""

    xp, workspace = np, None

    def __init__(self, sizes):
        tensors = ([Spec(f"t{i}", (n,), True, n)] for i, n in enumerate(sizes))
        self.layers = [SimpleNamespace(tensors=t, bind=lambda *arrays: None) for t in tensors]

    def loss(self, images, labels, global_batch, observe):
        for _ in self.layers:
            observe("", "forward")
        return 0.0

    def backward(self, on_ready, observe):
        for _ in self.layers:
            observe("", "backward")

    def accept(self):
        pass


class Recorded(ZeRO3):
    """The calls of a step, in their order."""

    def _send_gather(self, turn):
        self.record(0, turn, super()._send_gather)

    def _send_reduce(self, turn):
        self.record(1, turn, super()._send_reduce)

    def record(self, kind, turn, send):
        self.traced.reset()
        send(turn)
        if 0 <= turn < len(self._turns):
            layer = self.units.index(self._turns[turn])
            self.found.append((kind, layer, self.traced.messages, self.traced.bytes // 4))


def zero3_calls(sizes, p, rank):
    return calls_of_each_rank(tuple(sizes), p)[rank]


@cache
def calls_of_each_rank(sizes, p):
    def body(comm):
        network, traced = Layers(sizes), TracedComm(comm)
        parameters = Pool([spec for layer in network.layers[::-1] for spec in layer.tensors])
        zero = Recorded(traced, network, parameters, lambda specs, w, workspace: PlainSGD(w))
        zero.traced, zero.found = traced, []
        zero.step(None, None, 1, 0.1)
        return zero.found

    return threads.run(p, body)


def on_rank(comm, case):
    """This rank's parameters, and its velocity in its place of n zeros, after each step."""
    a, w, rows = case.arguments, case["in.w"].copy(), []
    decayed = case["in.decayed"].astype(bool)

    def sgd(own):
        specs = [Spec("w", (1,), bool(decay), 1) for decay in decayed[own]]
        return MomentumSGD(specs, w[own], a["momentum"], a["decay"])

    zero = ZeRO1(comm, w, sgd)
    for step in case["in.g"]:
        zero.step(step[comm.Get_rank()].copy(), a["rate"])
        v = np.zeros_like(w)
        v[zero.own] = zero.optimizer.velocity
        rows.append({"out.w": w.copy(), "out.v": v})
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}
