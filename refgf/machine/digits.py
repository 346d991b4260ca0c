"""Handwritten digits that scikit-learn brings: real images for training without a download.

train, held_out = digits(image_size=67)         # 1797 images of 8 x 8, resized
"""

import gzip
import importlib.util
from pathlib import Path

import numpy as np
from PIL import Image

from refgf.advice import install
from refgf.training.data import Dataset

MEAN, STD = 0.305, 0.376  # of the 8 x 8 originals, as fractions of white


def digits(
    image_size: int = 67, fold: int = 0, folds: int = 5, channels: int = 3
) -> tuple[Dataset, Dataset]:
    """The 1797 images in 10 classes, resized, as (train, held_out).

    Image k of its class is held out where k % folds == fold. The folds are disjoint, cover every
    image once and have nearly equal numbers of each class. Writers occur on both sides.
    Source: UCI, Optical Recognition of Handwritten Digits.
    """
    if image_size < 1 or channels not in (1, 3):
        raise ValueError(
            f"digits: got image_size={image_size}, channels={channels}; "
            "wanted image_size >= 1 and channels 1 or 3; next: digits(image_size=67, channels=3)"
        )
    if not 0 <= fold < folds or folds < 2:
        raise ValueError(
            f"digits: got fold={fold}, folds={folds}; wanted 0 <= fold < folds and folds >= 2; "
            "next: fold=0, folds=5"
        )
    pixels, labels = _read_bundled()
    samples = np.stack([_resize(image, image_size) for image in pixels])[..., None]  # (1797,H,W,1)
    out = hold_out(labels, fold, folds)
    note = (
        f"scikit-learn's digits, fold {fold} of {folds}: {np.sum(~out)} to train on, "
        f"{np.sum(out)} held out"
    )

    def select(members: np.ndarray) -> Dataset:
        return Dataset(
            fetch=lambda indices: np.repeat(samples[members[indices]], channels, axis=3),
            labels=labels[members],
            class_names=tuple("0123456789"),
            image_size=image_size,
            channels=channels,
            mean=(MEAN,) * channels,
            std=(STD,) * channels,
            note=note,
        )

    return select(np.flatnonzero(~out)), select(np.flatnonzero(out))


def hold_out(labels: np.ndarray, fold: int, folds: int) -> np.ndarray:
    """Mark every `folds`-th image of each class, from image `fold` on: int64 (N,) -> bool (N,)."""
    out = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        out[members[fold::folds]] = True
    return out


def _read_bundled() -> tuple[np.ndarray, np.ndarray]:
    """Pixels uint8 (1797, 8, 8) in 0..255 and labels int64 (1797,).

    Importing sklearn.datasets takes 1.5 s of processor time a rank; reading its data file 0.01 s.
    """
    spec = importlib.util.find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(
            "digits: got no scikit-learn; wanted its data file, which has the images; "
            f"next: {install('lessons')}, or use your own images"
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


def _resize(image: np.ndarray, image_size: int) -> np.ndarray:
    shape = image_size, image_size
    return np.asarray(Image.fromarray(image).resize(shape, Image.Resampling.BILINEAR))
