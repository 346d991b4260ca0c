"""Random crops and reflections: another view of each image in each epoch, the same on any p.

    stored, held_out = image_folder(path, 256)
    settings = Augmentation(image_size=227, seed=seed)
    for epoch in range(epochs):
        train = augmented(stored, settings, epoch)
        for images, labels, global_batch in batches(train, 256, epoch, seed, comm.rank, comm.size):
            ...
    right, samples = count_right(network, centre_crop(held_out, 227), comm.rank, comm.size)

A sample of 256 x 256 pixels has 30 x 30 places for a crop of 227 x 227:

      <- left ->
     +-----------------+  ^
     |      +--------+ |  | top          the view of image i in an epoch depends on
     |      |  crop  | |  v              (seed, epoch, i) alone: not on the rank, the batch,
     |      |        | |                 the number of ranks or the order of the calls
     |      +--------+ |
     +-----------------+                 half of the crops are reflected left to right

The views are cut from decoded samples, so a cache below holds one copy of an image for all epochs:
augmented(replace(stored, fetch=cache), settings, epoch). Nothing here communicates.

Source: Krizhevsky et al. 2012, section 4.1, crop 224 x 224 at random from 256 x 256 and reflect.
Their test averages ten views; here it is the crop in the centre. Their changes of colour are not
here. Crops of random scale and shape (Szegedy et al. 2015) are not here either, because they would
need the whole image where a cache holds squares.
"""

from dataclasses import dataclass, replace

import numpy as np

from refgf.training.data import Dataset

# Third word of the generator's seed. 0 would give the numbers of `shuffled`: a seed is padded by 0.
VIEWS = 1


@dataclass(frozen=True)
class Augmentation:
    """What `augmented` does to each image.

    image_size  of the crop, in pixels; the data set's own: no crop
    flip        reflect an image left to right with probability 1/2
    seed        of places and reflections; it may be the seed of the order
    """

    image_size: int
    flip: bool = True
    seed: int = 0


def augmented(dataset: Dataset, settings: Augmentation, epoch: int) -> Dataset:
    """The data set with one view of each image, that of this epoch.

    An image is known by its number in the data set, so a tree with other files has other views.
    Cost: 8 random bytes an image of the data set, drawn once, and a copy of each sample's crop.
    """
    spare = _spare(dataset, settings.image_size, "augmented")
    if settings.seed < 0 or epoch < 0:
        got = f"augmented: got seed={settings.seed}, epoch={epoch}"
        raise ValueError(f"{got}; wanted both >= 0; next: seed=0")
    top, left, flipped = views(dataset.size, spare + 1, settings.seed, epoch)
    flipped &= settings.flip

    def fetch(indices: np.ndarray) -> np.ndarray:
        samples = dataset.fetch(indices)  # (N, S, S, C)
        crops = _cut(samples, top[indices], left[indices], settings.image_size)
        reflected = flipped[indices]
        crops[reflected] = crops[reflected, :, ::-1]
        return crops  # -> (N, image_size, image_size, C)

    return replace(dataset, fetch=fetch, image_size=settings.image_size)


def centre_crop(dataset: Dataset, image_size: int) -> Dataset:
    """The data set with the centre of each image: what is evaluated when crops were trained on."""
    offset = np.array(_spare(dataset, image_size, "centre_crop") // 2)

    def fetch(indices: np.ndarray) -> np.ndarray:
        places = np.broadcast_to(offset, len(indices))
        return _cut(dataset.fetch(indices), places, places, image_size)

    return replace(dataset, fetch=fetch, image_size=image_size)


def views(n: int, places: int, seed: int, epoch: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows and columns of the crops, int64 (n,) from 0 to places - 1, and which are reflected (n,).

    Of 64 random bits of an image the upper 31 give its row, the next 32 its column, and the last
    one its reflection. Every place has the same probability within one part in 2^31 / places.
    """
    bits = np.random.PCG64([seed, epoch, VIEWS]).random_raw(n)  # NumPy guarantees these
    top = (bits >> np.uint64(33)) % np.uint64(places)
    left = (bits >> np.uint64(1) & np.uint64(2**32 - 1)) % np.uint64(places)
    return top.astype(np.int64), left.astype(np.int64), bits & np.uint64(1) == 1


def _cut(samples: np.ndarray, top: np.ndarray, left: np.ndarray, size: int) -> np.ndarray:
    """A new array of the squares with these corners. (N, S, S, C) -> (N, size, size, C)"""
    crops = np.empty((len(samples), size, size, samples.shape[3]), samples.dtype)
    for crop, sample, row, column in zip(crops, samples, top, left):
        crop[...] = sample[row : row + size, column : column + size]
    return crops


def _spare(dataset: Dataset, image_size: int, operation: str) -> int:
    """Rows and columns of a sample that its crop leaves out."""
    if not 1 <= image_size <= dataset.image_size:
        got = f"got image_size={image_size} for samples of {dataset.image_size} pixels"
        wanted = f"wanted 1 to {dataset.image_size}"
        next_step = "next: load larger samples, image_folder(path, 256) for crops of 227"
        raise ValueError(f"{operation}: {got}; {wanted}; {next_step}")
    return dataset.image_size - image_size
