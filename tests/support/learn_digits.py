"""Train a width-1/8 AlexNet on the bundled digits; rank 0 prints each epoch's accuracy as JSON.

mpiexec -n 8 python tests/support/learn_digits.py
"""

import refgf.launch  # noqa: F401  before MPI starts

# isort: split
import json
import sys
from functools import partial

import numpy as np
from mpi4py import MPI

from refgf.comm.ring import ring_allreduce
from refgf.exchange.lazy import LazyAllreduce
from refgf.machine.digits import digits
from refgf.nn.alexnet import AlexNet
from refgf.training.data import batches, steps_per_epoch
from refgf.training.evaluation import evaluate
from refgf.training.rates import polynomial_decay, warmup
from refgf.training.sgd import MomentumSGD
from refgf.training.step import replica, require_same_parameters, train_step

RATE, MOMENTUM, WEIGHT_DECAY, DROPOUT = 0.02, 0.9, 5e-4, 0.2
EPOCHS, WARMUP_EPOCHS, IMAGES_PER_RANK = 12, 2, 8


def rate(step: int, each: int) -> float:
    """Rises over the first epochs, then falls linearly to 0. each: steps of an epoch."""
    return warmup(polynomial_decay(RATE, step, EPOCHS * each, power=1), step, WARMUP_EPOCHS * each)


def learn(comm, seed: int) -> list[float]:
    train, held_out = digits(67)
    network = AlexNet(train.num_classes, 67, width=1 / 8, dropout=DROPOUT)
    network.dropout_rng = np.random.default_rng([seed, comm.rank])
    optimizer = partial(MomentumSGD, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
    model = replica(network, optimizer, seed=seed)
    exchange = LazyAllreduce(model.gradients, ring_allreduce(comm))
    batch, accuracies = IMAGES_PER_RANK * comm.size, []
    each = steps_per_epoch(train.size, batch)
    for epoch in range(EPOCHS):
        for number, shard in enumerate(batches(train, batch, epoch, seed, comm.rank, comm.size)):
            train_step(model, exchange, *shard, rate=rate(epoch * each + number, each))
        for array in network.running:
            array[...] = np.mean(comm.allgather(array.copy()), axis=0)
        right, samples = np.sum(
            comm.allgather(evaluate(network, held_out, comm.rank, comm.size)), axis=0
        )
        accuracies.append(float(right / samples))
    require_same_parameters(comm, model.parameters.flat)
    return accuracies


if __name__ == "__main__":
    found = learn(MPI.COMM_WORLD, seed=int(sys.argv[1]))
    if MPI.COMM_WORLD.rank == 0:
        print(json.dumps(found))
