"""The project's PowerSGD behind the names and arguments of SPEC.md. Part of own.py."""

import numpy as np

from refgf.machine import threads
from refgf.machine.trace import TracedComm
from refgf.papers.powersgd.low_rank import factor_elements, orthogonal  # noqa: F401
from refgf.papers.powersgd.powersgd import PowerSGD


def started(comm, shapes, r, dtype, **settings):
    made = PowerSGD(comm, shapes=shapes, rank=r, **settings)
    made.start(np.zeros(sum(int(np.prod(shape)) for shape in shapes), dtype))
    return made


def powersgd_traffic(shapes, r, p, rank, itemsize=4):
    def body(comm):
        traced = TracedComm(comm)
        made = started(traced, shapes, r, f"f{itemsize}")
        x = np.ones_like(made.state["error"])
        made.sum(x, slice(0, x.size))
        return traced.messages, traced.bytes

    return threads.run(p, body)[rank]


def on_rank(comm, case):
    """This rank's sums and errors, step by step."""
    a, rows = case.arguments, []
    made = started(comm, a["shapes"], a["r"], np.float64, feedback=a["feedback"])
    made.state["q"][...] = case["in.q"]
    for step in case["in.g"]:
        x = step[comm.Get_rank()].copy()
        made.sum(x, slice(0, x.size))
        made.end(True)
        rows.append((x, made.state["error"].copy()))
    return {name: np.stack(found) for name, found in zip(("out.x", "out.kept"), zip(*rows))}
