"""Images for training: a data set, the bundled digits, and who gets which samples of which step.

    train, held_out = digits(image_size=67)         # or image_folder(path, image_size), see folders.py beside this
    for epoch in range(epochs):
        for images, labels, global_batch in batches(train, 256, epoch, seed, comm.rank, comm.size):
            ...                                     # images (N, H, W, C) float32, labels (N,) int64

Nothing here communicates. Which samples belong to which step follows from (seed, epoch, batch_size) alone, so p ranks
together see in each step exactly what one rank would see.
"""

import gzip
import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from PIL import Image

from refgf.comm.slices import slices

DIGITS_MEAN, DIGITS_STD = 0.305, 0.376  # of the 8 x 8 originals, as shares of white


@dataclass(frozen=True)
class Dataset:
    """Labelled images of one size.

    fetch(indices)   uint8 samples (N, image_size, image_size, channels) for int64 indices (N,), any order, N = 0 too.
                     A cache is a `fetch` around another one: dataclasses.replace(dataset, fetch=...)
    labels           int64 (size,), numbers of class_names
    mean, std        per channel, as shares of white: images = (samples / 255 - mean) / std
    note             one sentence for the user: where the images come from and how they were split
    skipped          "file: reason" of everything that was left out of the whole tree (skip_bad_images)
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
        """images float32 (N, image_size, image_size, channels), normalised, and labels int64 (N,)."""
        samples = self.fetch(indices)  # (N, H, W, C) uint8
        scale, shift = self._scale_and_shift
        rows = samples.reshape(*samples.shape[:2], len(scale))  # (N, H, W, C) -> (N, H, W*C): long inner loops
        images = np.multiply(rows, scale, dtype=np.float32)
        images += shift
        return images.reshape(samples.shape), self.labels[indices]

    @cached_property
    def _scale_and_shift(self) -> tuple[np.ndarray, np.ndarray]:
        """Two float32 rows (W*C,): images = samples * scale + shift."""
        mean, std = np.array(self.mean), np.array(self.std)
        return (
            np.tile(1 / (255 * std), self.image_size).astype(np.float32),
            np.tile(-mean / std, self.image_size).astype(np.float32),
        )


def digits(image_size: int = 67, fold: int = 0, folds: int = 5, channels: int = 3) -> tuple[Dataset, Dataset]:
    """scikit-learn's bundled handwritten digits: 1797 images of 8 x 8, 10 classes, resized -> (train, held_out).

    Held out is image k of its class where k % folds == fold: the folds are disjoint, cover every image once and have
    the classes in equal shares. Writers occur on both sides. Source: UCI, Optical Recognition of Handwritten Digits.
    """
    _require(image_size >= 1 and channels in (1, 3), "digits", f"image_size={image_size}, channels={channels}",
             "image_size >= 1 and channels 1 or 3")  # fmt: skip
    _require(folds >= 2 and 0 <= fold < folds, "digits", f"fold={fold}, folds={folds}", "0 <= fold < folds, folds >= 2")
    pixels, labels = _bundled_digits()
    samples = np.stack([_resized(image, image_size) for image in pixels])[..., None]  # (1797, H, W, 1)
    out = held_out(labels, fold, folds)
    note = f"scikit-learn's digits, fold {fold} of {folds}: {np.sum(~out)} to train on, {np.sum(out)} held out"

    def part(members: np.ndarray) -> Dataset:
        return Dataset(
            fetch=lambda indices: np.repeat(samples[members[indices]], channels, axis=3),
            labels=labels[members],
            class_names=tuple("0123456789"),
            image_size=image_size,
            channels=channels,
            mean=(DIGITS_MEAN,) * channels,
            std=(DIGITS_STD,) * channels,
            note=note,
        )

    return part(np.flatnonzero(~out)), part(np.flatnonzero(out))


def held_out(labels: np.ndarray, fold: int, folds: int) -> np.ndarray:
    """Boolean (N,): is this the fold-th of `folds` consecutive images of its class? (N,) -> (N,)"""
    out = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        out[members[fold::folds]] = True
    return out


def _bundled_digits() -> tuple[np.ndarray, np.ndarray]:
    """Pixels uint8 (1797, 8, 8) in 0..255 and labels int64 (1797,).

    Importing sklearn.datasets takes 1.5 s of processor time a rank; its data file alone takes 0.01 s.
    """
    spec = importlib.util.find_spec("sklearn")
    if spec is None:
        raise ModuleNotFoundError(
            "digits: scikit-learn, which brings the images, is not installed; "
            "next: pip install 'refgf[lessons]' (in a clone: pip install -e '.[lessons]'), or give images of your own"
        )
    path = Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz"
    if path.exists():
        with gzip.open(path, "rt") as file:
            table = np.loadtxt(file, delimiter=",", dtype=np.int64)  # (1797, 65)
    else:
        from sklearn.datasets import load_digits

        table = np.column_stack(load_digits(return_X_y=True)).astype(np.int64)
    pixels, labels = table[:, :-1].reshape(-1, 8, 8), table[:, -1]  # values 0..16
    return np.rint(pixels * (255 / 16)).astype(np.uint8), labels


def _resized(image: np.ndarray, image_size: int) -> np.ndarray:
    return np.asarray(Image.fromarray(image).resize((image_size, image_size), Image.Resampling.BILINEAR))


def shuffled(n: int, seed: int, epoch: int) -> np.ndarray:
    """A permutation of 0..n-1 that depends on (seed, epoch) only.

    It sorts raw 64-bit numbers: NumPy promises never to change those, but not Generator.permutation.
    """
    keys = np.random.PCG64([seed, epoch]).random_raw(n)
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

    batch_size is the GLOBAL batch. Step s takes samples s*B to (s+1)*B of the shuffled order; of b samples the first
    b mod p ranks get one more than the others (refgf/comm/slices.py):

        B = 8, p = 3      rank 0   rank 1   rank 2      global_batch
        step 0            3        3        2           8
        last, 2 left      1        1        0           2

    Every rank yields the same number of steps; a rank without samples in the last one gets arrays with N = 0, and its
    gradient is zero. No sample is lost (drop_last leaves out the short last batch) or given twice.
    """
    _check_batches(dataset, batch_size, epoch, seed, rank, size)
    steps = steps_per_epoch(dataset.size, batch_size, drop_last)
    _require(steps >= 1, "batches", f"{dataset.size} samples, batch_size={batch_size}, drop_last",
             "one whole batch at least; next: a smaller batch_size")  # fmt: skip
    _require(0 <= start <= steps, "batches", f"start={start}", f"0 to {steps}, the steps of this epoch")
    order = shuffled(dataset.size, seed, epoch)
    return _batches(dataset, order[: steps * batch_size], batch_size, rank, size, start)


def _batches(dataset, order, batch_size, rank, size, start):
    for first in range(start * batch_size, len(order), batch_size):
        chosen = order[first : first + batch_size]
        yield *dataset.load(chosen[slices(len(chosen), size)[rank]]), len(chosen)  # no name, or this would hold them too


def _check_batches(dataset, batch_size, epoch, seed, rank, size) -> None:
    where = f"batches, rank {rank}"
    _require(0 <= rank < size, where, f"rank={rank}, size={size}", "0 <= rank < size")
    _require(epoch >= 0 and seed >= 0, where, f"epoch={epoch}, seed={seed}", "neither negative")
    _require(
        size <= dataset.size,
        where,
        f"{size} ranks for {dataset.size} samples",
        "at least one sample a rank; next: fewer ranks or more images",
    )
    _require(
        batch_size >= size,
        where,
        f"batch_size={batch_size} on {size} ranks",
        "at least one sample a rank: batch_size is the global batch, all ranks together",
    )


def _require(condition: bool, operation: str, got: str, wanted: str) -> None:
    if not condition:
        raise ValueError(f"{operation}: got {got}; wanted {wanted}")
