"""The project's DASO behind the names and arguments of SPEC.md. Part of own.py."""

import numpy as np

from refgf.machine import threads
from refgf.machine.trace import TracedComm
from refgf.oracle.spec.daso.run import daso_settings
from refgf.papers.daso import daso, heat, merge
from refgf.papers.daso import phases as plan
from refgf.papers.jia.hierarchical import consecutive_nodes
from tests.support.own.prescribed import Prescribed, Spec
from tests.support.stacks import new_model

FORMS = {"daso_run": plan.Phase, "heat_run": heat.HeatPhase}


class Listed:
    """Phases as a case lists them, one for each epoch."""

    def __init__(self, phases, kind=plan.Phase):
        self.phases, self.epoch = [kind(*phase) for phase in phases], 0

    @property
    def now(self):
        return self.phases[min(self.epoch, len(self.phases) - 1)]

    def end_epoch(self, loss):
        self.epoch += 1

    def __str__(self):
        return str(self.phases)


def daso_merge(w, total, nodes, waited, function=merge.merge):
    w = w.copy()
    function(w, total, nodes, waited)
    return w


def heat_merge(w, total, nodes, waited):
    return daso_merge(w, total, nodes, waited, merge.heat_merge)


def daso_phases(losses, epochs, warmup, cooldown, largest=8, kind=plan.Phases):
    phases, planned = kind(epochs, warmup, cooldown, largest), []
    for loss in losses:
        planned.append((phases.now.global_skip, phases.now.local_skip, phases.now.wait))
        phases.end_epoch(loss)
    return planned


def heat_phases(losses, epochs, warmup, cooldown, largest=8):
    return daso_phases(losses, epochs, warmup, cooldown, largest, heat.HeatPhases)


def daso_traffic(n, p, nodes, batches, phase, chunk, kind=plan.Phase):
    """Counted. The loss of all ranks at the end of an epoch is not the exchange."""

    def body(comm):
        traced, model = TracedComm(comm), new_model(one_tensor(np.zeros(n, np.float32)))
        given = consecutive_nodes(p, p // nodes), Listed([phase], kind), batches
        with daso.DASO(traced, model, *given, chunk=chunk) as stack:
            stack._end_epoch = lambda: None
            traced.reset()  # nor is the agreement before it
            for _ in range(batches):
                stack.step(np.zeros((1, n), np.float32), None, 1, 0.0)
            stack._thread.wait()
            return traced.messages, traced.bytes

    return threads.run(p, body)


def heat_traffic(n, p, nodes, batches, phase, chunk):
    return daso_traffic(n, p, nodes, batches, phase, chunk, heat.HeatPhase)


def one_tensor(w):
    """A network of one tensor; every image is its gradient."""
    return Prescribed(w, [Spec("w", w.shape, True, w.size)])


def on_rank(comm, case):
    """This rank's parameters and velocity after each batch of a case of daso_run or heat_run."""
    s, rank, size = daso_settings(case), comm.Get_rank(), comm.Get_size()
    stack = daso.DASO(
        comm,
        new_model(one_tensor(case["in.w"]), momentum=s.momentum),
        consecutive_nodes(size, size // s.nodes),
        Listed(case.arguments["phases"], FORMS[case.function]),
        s.batches,
        wire=s.wire,
        chunk=s.chunk,
    )
    rows = []
    with stack:
        for step in case["in.g"]:
            stack.step(step[rank][None], None, 1, s.rate)
            velocity = stack.model.optimizer.velocity
            rows.append({"out.w": stack.model.parameters.flat.copy(), "out.v": velocity.copy()})
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}
