"""How many held-out samples a network gets right, counted by all ranks together."""

import contextlib
from collections.abc import Iterator

import numpy as np

from refgf.comm.arguments import Comm
from refgf.device import Allreduce, to_host
from refgf.nn.network import Network
from refgf.training.data import Dataset


def evaluate(
    network: Network, dataset: Dataset, rank: int, size: int, batch: int = 64
) -> tuple[int, int]:
    """(right answers, samples) of this rank's share of a data set: samples rank, rank + size ..."""
    mine = np.arange(rank, dataset.size, size)
    right = 0
    for start in range(0, len(mine), batch):
        images, labels = dataset.load(mine[start : start + batch])
        right += int((to_host(network.predict(images)).argmax(axis=1) == labels).sum())
    return right, len(mine)


def evaluate_together(
    network: Network, dataset: Dataset, comm: Comm, allreduce: Allreduce, batch: int = 64
) -> tuple[int, int]:
    """(right answers, samples) of all ranks, with averaged running statistics. Collective."""
    rank, size = comm.Get_rank(), comm.Get_size()
    with averaged_statistics(network, allreduce, size):
        counts = np.array(evaluate(network, dataset, rank, size, batch), np.float64)
    allreduce(counts)
    return int(counts[0]), int(counts[1])


@contextlib.contextmanager
def averaged_statistics(network: Network, allreduce: Allreduce, size: int) -> Iterator[None]:
    """Within, running mean and variance are averages over all ranks; then each rank's own again."""
    own = [array.copy() for array in network.running]
    for array in network.running:
        allreduce(array)
        array /= size
    try:
        yield
    finally:
        for array, saved in zip(network.running, own):
            array[...] = saved
