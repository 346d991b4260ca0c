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

import numpy as np
from mpi4py import MPI
from stacks import new_flow

from refgf.exchange.chunk_choice import Density
from refgf.exchange.precision import LossScale
from refgf.machine.checkpoint import Checkpoints
from refgf.machine.digits import digits
from refgf.nn.alexnet import AlexNet
from refgf.training.data import batches

STEPS, STEPS_PER_EPOCH, BATCH = 24, 8, 12


def main(folder: str, kill_rank: int = -1, kill_after_s: float = 0.0) -> None:
    comm = MPI.COMM_WORLD
    data, _ = digits(67)
    network = AlexNet(data.num_classes, data.image_size, width=1 / 32)
    network.dropout_rng = np.random.default_rng([3, comm.rank])
    with new_flow(
        comm,
        network,
        wire=np.float16,
        overlap=True,
        theta_bytes=20_000,
        half_weights=True,
        chunk=64,
        density=Density(10, (100,), STEPS_PER_EPOCH, STEPS),
        weight_decay=1e-4,
        loss_scale=LossScale(2.0**10, dynamic=True, interval=5),
    ) as flow:
        checkpoints = Checkpoints(folder, flow)
        position = checkpoints.resume() or {"epoch": 0, "step": 0}
        comm.Barrier()
        start_s = time.perf_counter()
        if comm.rank == kill_rank:
            threading.Timer(kill_after_s, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
        train(comm, flow, data, checkpoints, position)
        told = time.perf_counter() - start_s
        hashes = comm.gather(fingerprint(flow))
    if comm.rank == 0:
        print(
            "hash",
            hashlib.sha256("".join(hashes).encode()).hexdigest(),
            "seconds",
            f"{told:.3f}",
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
    arrays = [flow.model.parameters.flat, *flow.csc.residual.settled().values(), *flow.model.network.running]
    digest = hashlib.sha256(b"".join(array.tobytes() for array in arrays))
    facts = flow.model.loss_scale.state(), flow.csc.chosen, flow.csc.gap.tolist()
    digest.update(repr((facts, flow.model.network.dropout_rng.bit_generator.state)).encode())
    return digest.hexdigest()


if __name__ == "__main__":
    main(sys.argv[1], *(kind(text) for kind, text in zip((int, float), sys.argv[2:])))
