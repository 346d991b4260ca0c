"""A training run with checkpoints, for tests that kill it.

    python resumable.py FOLDER [RANK SECONDS]

With RANK and SECONDS that rank gets SIGKILL so long after training began. Prints a hash of
everything that the run consists of, and how long it trained.
"""

import refgf.launch  # noqa: F401  before MPI starts

# isort: split
import hashlib
import os
import signal
import sys
import threading
import time
from functools import partial

import numpy as np
from mpi4py import MPI

from refgf.engine.residual import FusedResidual
from refgf.exchange.chunk_choice import Density
from refgf.exchange.lazy import Theta
from refgf.exchange.momentum_correction import CSCSettings
from refgf.exchange.precision import LossScale
from refgf.machine.checkpoint import Checkpoints
from refgf.machine.digits import digits
from refgf.nn.alexnet import AlexNet
from refgf.training.data import batches
from refgf.training.gradientflow import GradientFlow
from refgf.training.sgd import MomentumSGD
from refgf.training.step import replica

STEPS, STEPS_PER_EPOCH, BATCH = 24, 8, 12


def main(folder: str, kill_rank: int = -1, kill_after_s: float = 0.0) -> None:
    comm = MPI.COMM_WORLD
    data, _ = digits(67)
    network = AlexNet(data.num_classes, data.image_size, width=1 / 32)
    network.dropout_rng = np.random.default_rng([3, comm.rank])
    model = replica(
        network,
        partial(MomentumSGD, momentum=0.9, weight_decay=1e-4),
        half_weights=True,
        loss_scale=LossScale(2.0**10, dynamic=True, interval=5),
    )
    density = Density(10, (100,), STEPS_PER_EPOCH, STEPS)
    csc = CSCSettings(density, chunk=64, residual=FusedResidual)
    settings = dict(wire=np.float16, grouping=Theta(20_000), csc=csc, overlap=True)
    with GradientFlow(comm, model, **settings) as flow:
        checkpoints = Checkpoints(folder, flow)
        position = checkpoints.resume() or {"epoch": 0, "step": 0}
        comm.Barrier()
        start_s = time.perf_counter()
        if comm.rank == kill_rank:
            threading.Timer(kill_after_s, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
        train(comm, flow, data, checkpoints, position)
        seconds = time.perf_counter() - start_s
        hashes = comm.gather(fingerprint(flow))
    if comm.rank == 0:
        print(
            "hash",
            hashlib.sha256("".join(hashes).encode()).hexdigest(),
            "seconds",
            f"{seconds:.3f}",
            flush=True,
        )


def train(comm, flow, data, checkpoints, position) -> None:
    for epoch in range(position["epoch"], STEPS // STEPS_PER_EPOCH):
        first = position["step"] if epoch == position["epoch"] else 0
        for step, batch in enumerate(
            batches(data, BATCH, epoch, 1, comm.rank, comm.size, start=first), start=first
        ):
            if step == STEPS_PER_EPOCH:
                break
            flow.step(*batch, rate=0.01)
            if step % 2:
                checkpoints.save({"epoch": epoch, "step": step + 1})


def fingerprint(flow) -> str:
    """A hash of this rank's parameters, residual, running statistics, random state and choice."""
    model, residual = flow.model, flow.csc.residual.current_state()
    arrays = [model.parameters.flat, *residual.values(), *model.network.running]
    digest = hashlib.sha256(b"".join(array.tobytes() for array in arrays))
    facts = model.loss_scale.state(), flow.csc.chosen, flow.csc.gap.tolist()
    digest.update(repr((facts, model.network.dropout_rng.bit_generator.state)).encode())
    return digest.hexdigest()


if __name__ == "__main__":
    main(sys.argv[1], *(kind(text) for kind, text in zip((int, float), sys.argv[2:])))
