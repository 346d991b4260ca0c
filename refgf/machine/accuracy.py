"""Top-1 and top-5 accuracy: is the right class among the k classes with the largest logits?

    right, samples = count_right(network, held_out, comm.rank, comm.size)         # of this rank
    (top1, top5), samples = count_right_together(network, held_out, comm, allreduce)

ImageNet's two numbers. For top-1 alone `refgf/training/evaluation.py` gives the same count.
"""

from collections.abc import Callable, Sequence

import numpy as np

from refgf.comm.arguments import Comm
from refgf.device import to_host
from refgf.nn.network import Network
from refgf.training.data import Dataset
from refgf.training.evaluation import averaged_statistics

TOP = (1, 5)


def places(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """How many classes are before the right one, int64 (N,). logits (N, K), labels (N,)

    Of equal logits the lower class is before, as in argmax. NaN is before every number, and a right
    class with NaN is last, so a network that has diverged is never right.
    """
    own = np.take_along_axis(logits, labels[:, None], axis=1)  # (N, 1)
    lower_class = np.arange(logits.shape[1]) < labels[:, None]
    before = ~(logits <= own) | (lower_class & (logits == own))  # (N, K); ~ counts NaN
    return before.sum(axis=1)


def count_right(
    network: Network,
    dataset: Dataset,
    rank: int,
    size: int,
    top: Sequence[int] = TOP,
    batch: int = 64,
) -> tuple[list[int], int]:
    """(right answers for each k of `top`, samples) of this rank's share: rank, rank + size ..."""
    if not all(1 <= k <= dataset.num_classes for k in top):
        raise ValueError(
            f"count_right on rank {rank}: got top={tuple(top)} for {dataset.num_classes} classes; "
            f"wanted each from 1 to {dataset.num_classes}; next: top=(1,)"
        )
    mine, right = np.arange(rank, dataset.size, size), np.zeros(len(top), np.int64)
    for start in range(0, len(mine), batch):
        images, labels = dataset.load(mine[start : start + batch])
        found = places(to_host(network.predict(images)), labels)
        right += (found[:, None] < np.array(top)).sum(axis=0)  # (N, 1) < (tops,) -> (tops,)
    return right.tolist(), len(mine)


def count_right_together(
    network: Network,
    dataset: Dataset,
    comm: Comm,
    allreduce: Callable,
    top: Sequence[int] = TOP,
    batch: int = 64,
) -> tuple[list[int], int]:
    """The counts of all ranks, with averaged running statistics. Collective.

    Cost: one allreduce for each running statistic, and one of len(top) + 1 numbers.
    """
    rank, size = comm.Get_rank(), comm.Get_size()
    with averaged_statistics(network, allreduce, size):
        right, samples = count_right(network, dataset, rank, size, top, batch)
    counts = np.array([*right, samples], np.float64)
    allreduce(counts)
    *right, samples = counts.astype(np.int64).tolist()
    return right, samples
