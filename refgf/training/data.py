"""Training data: a data set, and the samples that each rank takes in each step.

    train, held_out = digits(image_size=67)         # or image_folder(path, image_size)
    for epoch in range(epochs):
        for images, labels, global_batch in batches(train, 256, epoch, seed, comm.rank, comm.size):
            ...                                     # images (N, H, W, C) float32, labels (N,) int64

The order of the samples depends on (seed, epoch) alone, so p ranks together see in each step
exactly what one rank would see. Nothing here communicates or reads files.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from refgf.comm.slices import slices


@dataclass(frozen=True)
class Dataset:
    """Labelled images of one size.

    fetch(indices)   uint8 samples (N, image_size, image_size, channels) for int64 indices (N,) in
                     any order, N = 0 included. A cache wraps it: replace(dataset, fetch=...)
    labels           int64 (size,), indices into class_names
    mean, std        per channel, as fractions of white: images = (samples / 255 - mean) / std
    note             one sentence for the user: the source of the images and how they were split
    skipped          "file: reason" of each file left out of the whole tree (skip_bad_images)
    """

    fetch: Callable[[np.ndarray], np.ndarray]
    labels: np.ndarray
    class_names: tuple[str, ...]
    image_size: int
    channels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    note: str = ""
    skipped: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return len(self.labels)

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    def load(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Normalised images float32 (N, image_size, image_size, channels) and labels int64 (N,)."""
        samples = self.fetch(indices)  # (N, H, W, C) uint8
        scale, shift = self._scale_and_shift
        rows = samples.reshape(*samples.shape[:2], len(scale))  # -> (N, H, W*C): long inner loops
        images = np.multiply(rows, scale, dtype=np.float32)
        images += shift
        return images.reshape(samples.shape), self.labels[indices]

    @cached_property
    def _scale_and_shift(self) -> np.ndarray:
        """float32 (2, W*C): images = samples * scale + shift."""
        mean, std = np.array(self.mean), np.array(self.std)
        return np.tile([1 / (255 * std), -mean / std], self.image_size).astype(np.float32)


def shuffled(n: int, seed: int, epoch: int) -> np.ndarray:
    """A permutation of 0..n-1, int64 (n,), that depends on (seed, epoch) only."""
    keys = np.random.PCG64([seed, epoch]).random_raw(n)  # NumPy guarantees these, not permutation()
    return np.argsort(keys, kind="stable")


def steps_per_epoch(n: int, batch_size: int, drop_last: bool = False) -> int:
    """Steps that `batches` takes through n samples."""
    return n // batch_size if drop_last else -(-n // batch_size)


def batches(
    dataset: Dataset,
    batch_size: int,
    epoch: int,
    seed: int,
    rank: int,
    size: int,
    drop_last: bool = False,
    start: int = 0,
) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """One epoch for one rank: (images, labels, global_batch) per step, from step `start` on.

    batch_size is the global batch B. Step s takes samples s*B to (s+1)*B of the shuffled order. Of
    b samples the first b mod p ranks get one more than the others (refgf/comm/slices.py):

        B = 8, p = 3      rank 0   rank 1   rank 2      global_batch
        step 0            3        3        2           8
        last, 2 left      1        1        0           2

    Every rank yields the same number of steps. A rank without samples in the last one gets arrays
    with N = 0; its gradient is zero. Each sample is given once; drop_last omits a short last batch.
    """
    n, steps = dataset.size, steps_per_epoch(dataset.size, max(batch_size, 1), drop_last)
    for valid, got, wanted in (
        (0 <= rank < size, f"size={size}", "0 <= rank < size; next: comm.rank, comm.size"),
        (epoch >= 0 and seed >= 0, f"epoch={epoch}, seed={seed}", "both >= 0; next: seed=0"),
        (size <= n, f"{size} ranks for {n} samples", "a sample a rank; next: fewer ranks"),
        (size <= batch_size, f"batch_size={batch_size}", f"global batch >= {size}; next: {size}"),
        (steps >= 1, f"{n} samples, drop_last", "one whole batch; next: a smaller batch_size"),
        (0 <= start <= steps, f"start={start}", f"0 to {steps} steps; next: the next epoch"),
    ):
        if not valid:
            raise ValueError(f"batches on rank {rank}: got {got}; wanted {wanted}")
    order = shuffled(n, seed, epoch)
    return _load_batches(dataset, order[: steps * batch_size], batch_size, rank, size, start)


def _load_batches(
    dataset: Dataset, order: np.ndarray, batch_size: int, rank: int, size: int, start: int
) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    for first in range(start * batch_size, len(order), batch_size):
        chosen = order[first : first + batch_size]
        own = chosen[slices(len(chosen), size)[rank]]
        yield *dataset.load(own), len(chosen)  # a variable would keep the images alive
