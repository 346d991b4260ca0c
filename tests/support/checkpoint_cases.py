"""Small runs with checkpoints, for the tests of checkpoints."""

from pathlib import Path

import numpy as np

from refgf.engine.residual import FusedResidual
from refgf.exchange.chunk_choice import Density
from refgf.exchange.precision import LossScale
from refgf.machine import threads
from refgf.machine.checkpoint import Checkpoints
from refgf.papers.signsgd.signsgd import SignSGD
from tests.support import stacks
from tests.support.tiny import N, Prescribed

CSC = dict(density=Density(20, (100,), 2), chunk=8, weight_decay=0.01, wire=np.float16)
STACKS = {
    "dense": dict(weight_decay=0.01),
    "dense float16": dict(wire=np.float16, half_weights=True),
    "float16 network": dict(wire=np.float16, dtype=np.float16),
    "dgc": CSC,
    "dgc_masked": CSC | dict(form="dgc_masked", overlap=True),
    "history": CSC | dict(form="history", half_weights=True),
    "none": CSC | dict(form="none", theta_bytes=20),
    "fused": CSC | dict(residual=FusedResidual),
    "signsgd": dict(allreduce=SignSGD),
}


class Noisy(Prescribed):
    """Its gradients depend on the weights and on the random state, as with dropout."""

    def backward(self, on_ready):
        active = self.dropout_rng.random(N) > 0.5
        weights = np.concatenate([p.reshape(-1) for p in self.parameters])
        self.logits_gradient = np.where(active, self.logits_gradient + np.float32(0.1) * weights, 0)
        super().backward(on_ready)


def new_flow(comm, dtype=np.float32, **parts):
    network = Noisy(dtype, initial=np.random.default_rng(2).standard_normal(N))
    network.dropout_rng = np.random.default_rng(comm.Get_rank())
    scale = LossScale(2.0**14, dynamic=True, interval=3) if "wire" in parts else None
    return stacks.new_flow(comm, network, loss_scale=scale, momentum=0.9, **parts)


def advance(flow, steps):
    while flow.steps < steps:
        g = (
            np.random.default_rng([flow.steps, flow.comm.Get_rank()])
            .standard_normal((2, N))
            .astype(np.float32)
        )
        if flow.steps == 5:
            g[0, 3] = np.inf  # a step that is skipped, and halves the scale
        flow.step(g, None, 2 * flow.comm.Get_size(), rate=0.1)
    return flow


def bits(flow):
    """Everything that a run consists of."""
    state = [flow.model.parameters.flat, *flow.model.network.running]
    state += (
        flow.csc.residual.current_state().values() if flow.csc else [flow.model.optimizer.velocity]
    )
    state += [flow.model.working.working] if flow.model.working else []
    state += flow.compressed.compressor.state.values() if flow.compressed else []
    facts = flow.model.loss_scale.state(), flow.csc and (flow.csc.chosen, flow.csc.gap.tolist())
    return b"".join(array.tobytes() for array in state) + repr(facts).encode()


def everywhere(comm, path) -> Path:
    """The same folder on all ranks (pytest gives each its own)."""
    return Path(comm.bcast(str(path)))


def names(folder) -> list[str]:
    """What is in a folder of checkpoints, apart from its lock."""
    return sorted(path.name for path in folder.iterdir() if path.name != "refgf.lock")


def saved(comm, folder, steps, parts):
    """Save after each number of steps; the open flow."""
    flow = new_flow(comm, **parts)
    for step in steps:
        Checkpoints(folder, advance(flow, step)).save({"at": step})
    return flow


def resumed(folder, size=2, parts=CSC, network=None):
    """Resume on `size` threads: (position, messages)."""

    def body(comm):
        said = []
        flow = new_flow(comm, **parts)
        if network:
            flow = stacks.new_flow(comm, network(), **parts)
        return Checkpoints(folder, flow, said.append).resume(), said

    return threads.run(size, body)[0]


def save_on_threads(folder, steps, size=2, parts=CSC):
    threads.run(size, lambda comm: saved(comm, folder, steps, parts) and None)
