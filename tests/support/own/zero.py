"""The project's ZeRO-1 behind the names and arguments of SPEC.md. Part of own.py."""

import numpy as np

from refgf.machine import threads
from refgf.machine.trace import TracedComm
from refgf.papers.zero.zero1 import ZeRO1
from refgf.training.sgd import MomentumSGD, PlainSGD
from tests.support.own.prescribed import Spec


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
