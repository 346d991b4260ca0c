"""Random crops and reflections: the definition, and the same views on any number of ranks."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from refgf.machine import threads
from refgf.machine.augment import Augmentation, augmented, centre_crop, views
from refgf.machine.digits import digits
from refgf.machine.folders import image_folder
from refgf.training.data import Dataset, batches
from tests.support.pictures import make_tree

N, SIZE, CROP = 40, 9, 6


def coordinates(n=N, size=SIZE):
    """Each pixel of image i is (i, row, column), so that a view tells where it was cut."""
    row, column = np.mgrid[0:size, 0:size].astype(np.uint8)
    samples = np.stack([np.stack([np.full_like(row, i), row, column], -1) for i in range(n)])
    return Dataset(
        lambda indices: samples[indices],
        np.arange(n) % 3,
        tuple("abc"),
        size,
        3,
        (0,) * 3,
        (1,) * 3,
    )


def view_of(sample):
    """(image, top, left, reflected) of a crop of `coordinates`, which must be a whole square."""
    image, top, left = (int(sample[..., c].min()) for c in range(3))
    reflected = bool(sample[0, 0, 2] > sample[0, -1, 2])
    size = len(sample)
    row, column = np.mgrid[top : top + size, left : left + size]
    wanted = np.stack([np.full_like(row, image), row, column[:, :: -1 if reflected else 1]], -1)
    assert np.array_equal(sample, wanted)
    return image, top, left, reflected


def test_views_are_squares_of_the_image_as_defined():
    data, settings = coordinates(), Augmentation(CROP, seed=5)
    top, left, reflected = views(N, SIZE - CROP + 1, seed=5, epoch=2)
    samples = augmented(data, settings, 2).fetch(np.arange(N))
    assert samples.shape == (N, CROP, CROP, 3) and samples.dtype == np.uint8
    assert [view_of(s) for s in samples] == list(zip(range(N), top, left, reflected))


def test_the_bits_that_decide():
    """Written a second time, with Python's integers."""
    top, left, reflected = views(5, 30, seed=7, epoch=3)
    for i, raw in enumerate(map(int, np.random.PCG64([7, 3, 1]).random_raw(5))):
        assert (top[i], left[i]) == ((raw >> 33) % 30, ((raw >> 1) & 0xFFFFFFFF) % 30)
        assert reflected[i] == bool(raw % 2)


def test_every_place_is_as_likely_as_any_other():
    n, places = 90_000, 3
    top, left, reflected = views(n, places, seed=0, epoch=0)
    counts = Counter(zip(top.tolist(), left.tolist(), reflected.tolist()))
    assert len(counts) == 18  # 3 x 3 places, reflected or not
    expected = n / 18
    assert max(abs(count - expected) for count in counts.values()) < 5 * expected**0.5


def views_on_rank(comm, epoch, batch):
    """{image: bytes of what this rank has trained on}, each image once an epoch."""
    train = augmented(coordinates(), Augmentation(CROP, seed=3), epoch)
    found, steps = {}, 0
    for images, _, _ in batches(train, batch, epoch, 4, comm.rank, comm.size):
        found |= {int(np.rint(255 * image[0, 0, 0])): image.tobytes() for image in images}
        steps += 1
    assert steps == -(-N // batch)
    return found


def test_the_same_views_on_any_number_of_ranks():
    """The bits are those of one rank, whatever the ranks and the batch."""
    for epoch in range(2):
        alone = threads.run(1, views_on_rank, epoch, 8)[0]
        assert set(alone) == set(range(N))
        for size, batch in ((1, 7), (3, 8), (3, 11), (5, 40)):
            together = {}
            for part in threads.run(size, views_on_rank, epoch, batch):
                assert not set(part) & set(together)
                together |= part
            assert together == alone


def test_views_on_real_ranks(on_ranks):
    alone = threads.run(1, views_on_rank, 1, 8)[0]
    for results in on_ranks(views_on_rank, 1, 8, sizes=(3,)):
        for part in results:
            assert part.items() <= alone.items()


def test_another_seed_or_epoch_gives_other_views_than_order_does():
    of = {
        (seed, epoch): [view_of(s) for s in cut.fetch(np.arange(N))]
        for seed in (0, 1)
        for epoch in (0, 1)
        for cut in [augmented(coordinates(), Augmentation(CROP, seed=seed), epoch)]
    }
    found = list(of.values())
    assert all(a != b for i, a in enumerate(found) for b in found[:i])
    # not the numbers that shuffle the order with the same seed
    raw = np.random.PCG64([0, 0]).random_raw(N)
    assert [v[3] for v in of[0, 0]] != (raw & np.uint64(1) == 1).tolist()


def test_options_one_by_one():
    data = coordinates()
    whole = augmented(data, Augmentation(SIZE, flip=False), 0)
    assert np.array_equal(whole.fetch(np.arange(N)), data.fetch(np.arange(N)))
    flips = [view_of(s) for s in augmented(data, Augmentation(SIZE), 0).fetch(np.arange(N))]
    assert {v[1:3] for v in flips} == {(0, 0)} and {v[3] for v in flips} == {False, True}
    crops = augmented(data, Augmentation(CROP, flip=False), 0).fetch(np.arange(N))
    assert not any(view_of(s)[3] for s in crops)
    same = [augmented(data, Augmentation(CROP, flip=flip), 0) for flip in (False, True)]
    places = [[view_of(s)[:3] for s in cut.fetch(np.arange(N))] for cut in same]
    assert places[0] == places[1]  # flip does not move the crops


def test_the_centre():
    samples = centre_crop(coordinates(), CROP).fetch(np.array([4, 2, 4]))
    assert [view_of(s) for s in samples] == [(4, 1, 1, False), (2, 1, 1, False), (4, 1, 1, False)]
    assert centre_crop(coordinates(), SIZE - 1).fetch(np.arange(1)).shape == (1, 8, 8, 3)


def test_no_samples_and_repeated_ones():
    cut = augmented(coordinates(), Augmentation(CROP), 0)
    assert cut.load(np.arange(0))[0].shape == (0, CROP, CROP, 3)
    assert centre_crop(coordinates(), CROP).fetch(np.arange(0)).shape == (0, CROP, CROP, 3)
    twice = cut.fetch(np.array([7, 3, 7]))
    assert np.array_equal(twice[0], twice[2]) and view_of(twice[1])[0] == 3


def test_stored_samples_are_not_changed():
    """A cache gives views of its memory, and `digits` and ImageFiles keep theirs."""
    data = coordinates()
    before = data.fetch(np.arange(N)).copy()
    augmented(data, Augmentation(SIZE), 0).fetch(np.arange(N))
    centre_crop(data, SIZE).fetch(np.arange(N))[...] = 0
    assert np.array_equal(data.fetch(np.arange(N)), before)
    shared = replace(data, fetch=lambda indices: before[: len(indices)])
    augmented(shared, Augmentation(SIZE), 0).fetch(np.arange(N))
    assert np.array_equal(data.fetch(np.arange(N)), before)


def test_files_of_a_folder(tmp_path):
    stored, held_out = image_folder(make_tree(tmp_path), 24)
    cut = augmented(stored, Augmentation(20), 0)
    images, labels = cut.load(np.arange(cut.size))
    assert images.shape == (15, 20, 20, 3) and np.array_equal(labels, stored.labels)
    assert (cut.note, cut.class_names, cut.mean) == (stored.note, stored.class_names, stored.mean)
    assert centre_crop(held_out, 20).load(np.arange(2))[0].shape == (2, 20, 20, 3)
    assert digits(12)[0].image_size == 12


@pytest.mark.parametrize("size", [0, SIZE + 1])
def test_a_crop_larger_than_the_samples(size):
    wanted = f"got image_size={size} for samples of 9 pixels; wanted 1 to 9; next: .*256"
    with pytest.raises(ValueError, match=f"augmented: {wanted}"):
        augmented(coordinates(), Augmentation(size), 0)
    with pytest.raises(ValueError, match=f"centre_crop: {wanted}"):
        centre_crop(coordinates(), size)


@pytest.mark.parametrize("seed, epoch", [(-1, 0), (0, -1)])
def test_negative_seeds_and_epochs(seed, epoch):
    with pytest.raises(ValueError, match="augmented: got seed=.*wanted both >= 0; next: seed=0"):
        augmented(coordinates(), Augmentation(CROP, seed=seed), epoch)
