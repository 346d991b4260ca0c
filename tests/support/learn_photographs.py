"""Train AlexNet at its real size until it knows a few photographs; rank 0 prints JSON.

mpiexec -n 2 python tests/support/learn_photographs.py FOLDER SECONDS [-v]

227 x 227 pixels, full width, 1000 classes, float32: 62,381,096 gradients a step go through lazy
allreduce, ring and communication thread. FOLDER holds train/<class>/<image>; these images are
evaluated too, so this is overfitting. Training ends when GOAL of them are right, after the last
epoch, or when the next evaluation would come later than SECONDS. -v: each evaluation, as it comes.
"""

import refgf.launch  # noqa: F401  before MPI starts

# isort: split
import json
import sys
import time
from functools import partial

import numpy as np
from mpi4py import MPI

from refgf.exchange.lazy import Theta
from refgf.machine.folders import image_folder
from refgf.nn.alexnet import AlexNet
from refgf.training.data import batches, steps_per_epoch
from refgf.training.gradientflow import GradientFlow
from refgf.training.rates import polynomial_decay, warmup
from refgf.training.sgd import MomentumSGD
from refgf.training.step import replica

IMAGE_SIZE, WIDTH, CLASSES, SEED = 227, 1.0, 1000, 1
RATE, MOMENTUM, BATCH, EPOCHS = 0.01, 0.9, 50, 40
WARMUP_STEPS, EVALUATE_EVERY, GOAL = 4, 4, 0.95
THETA_BYTES = 32 << 20


def learn(comm, folder: str, limit_s: float) -> dict:
    """What was trained, and for each evaluation (epoch, seconds, share of right images)."""
    train, _ = image_folder(folder, IMAGE_SIZE, comm=comm)
    network = AlexNet(CLASSES, IMAGE_SIZE, WIDTH, dropout=0)
    model = replica(network, partial(MomentumSGD, momentum=MOMENTUM), seed=SEED)
    each = steps_per_epoch(train.size, BATCH)
    found = {"parameters": model.parameters.flat.size, "images": train.size, "losses": []}
    found |= {"ranks": comm.size, "accuracies": []}
    start_s = time.perf_counter()
    with GradientFlow(comm, model, grouping=Theta(THETA_BYTES), overlap=True) as flow:
        for epoch in range(EPOCHS):
            losses = [
                flow.step(*shard, rate(epoch * each + number, each))
                for number, shard in enumerate(
                    batches(train, BATCH, epoch, SEED, comm.rank, comm.size)
                )
            ]
            found["losses"].append(sum(comm.allgather(np.mean(losses))))
            if (epoch + 1) % EVALUATE_EVERY == 0:
                right, samples = flow.evaluate(train)
                took_s = comm.bcast(time.perf_counter() - start_s, root=0)
                found["accuracies"].append((epoch + 1, took_s, right / samples))
                if comm.rank == 0 and "-v" in sys.argv:
                    print(found["accuracies"][-1], found["losses"][-1], file=sys.stderr, flush=True)
                if right >= GOAL * samples or took_s * (1 + EVALUATE_EVERY / (epoch + 1)) > limit_s:
                    break
        found["hash"] = flow.require_same_parameters()
    return found


def rate(step: int, each: int) -> float:
    """Rises over the first steps, then falls linearly to 0. each: steps of an epoch."""
    return warmup(polynomial_decay(RATE, step, EPOCHS * each, power=1), step, WARMUP_STEPS)


if __name__ == "__main__":
    result = learn(MPI.COMM_WORLD, sys.argv[1], float(sys.argv[2]))
    if MPI.COMM_WORLD.rank == 0:
        print(json.dumps(result))
