"""The project's DiLoCo behind the names and arguments of SPEC.md. Part of own.py."""

import numpy as np

from refgf.machine import threads
from refgf.machine.trace import TracedComm
from refgf.oracle.spec.diloco.run import diloco_settings
from refgf.papers.diloco.diloco import DiLoCo
from refgf.papers.jia.hierarchical import consecutive_nodes
from tests.support.own.daso import one_tensor
from tests.support.stacks import new_model


def diloco_outer(start, v, ws, rate=0.7, momentum=0.9):
    """The new start and velocity, alike on all ranks."""

    def body(comm):
        model = new_model(one_tensor(start))
        with DiLoCo(comm, model, 2, rate=rate, momentum=momentum) as diloco:
            diloco.velocity[...], diloco.inner = v, 1
            model.parameters.flat[...] = ws[comm.Get_rank()]
            diloco.synchronise()
            assert model.parameters.flat.tobytes() == diloco.start.tobytes()
            return diloco.start, diloco.velocity

    found = threads.run(len(ws), body)
    assert len({(w.tobytes(), v.tobytes()) for w, v in found}) == 1
    return found[0]


def node_of(comm, nodes):
    size = comm.Get_size()
    return consecutive_nodes(size, size // nodes)[comm.Get_rank() * nodes // size]


def diloco_traffic(n, p, nodes, steps, inner_steps, rank, itemsize=4):
    """Counted. The agreement at the start is not the exchange."""

    def body(comm):
        traced, model = TracedComm(comm), new_model(one_tensor(np.zeros(n, np.float32)))
        with DiLoCo(traced, model, inner_steps, node=node_of(comm, nodes)) as diloco:
            traced.reset()
            for _ in range(steps):
                diloco.step(np.zeros((1, n), np.float32), None, 1, 0.0)
            return traced.messages, traced.bytes

    return threads.run(p, body)[rank]


def on_rank(comm, case):
    """This rank's parameters and outer velocity after each step."""
    s, rows = diloco_settings(case), []
    model = new_model(one_tensor(case["in.w"]), momentum=s.momentum)
    outer = {"rate": s.outer_rate, "momentum": s.outer_momentum, "node": node_of(comm, s.nodes)}
    with DiLoCo(comm, model, s.inner_steps, **outer) as diloco:
        for t, step in enumerate(case["in.g"]):
            diloco.step(step[comm.Get_rank()][None], None, 1, s.rate)
            if t + 1 in s.early:
                diloco.synchronise()
            rows.append({"out.w": model.parameters.flat.copy(), "out.v": diloco.velocity.copy()})
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}
