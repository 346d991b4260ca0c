"""Image folders: trees that are read and refused; all ranks skip the same files."""

import os

import numpy as np
import pytest
from PIL import ImageFile

from refgf.machine import images, threads
from refgf.machine.folders import image_folder
from refgf.training.data import batches
from tests.support.pictures import bad_files, make_tree, photo, special_files, write


@pytest.fixture
def tree(tmp_path):
    return make_tree(tmp_path / "set")


@pytest.mark.parametrize("limit", [0, 10**9])
def test_a_good_tree(tree, limit):
    (tree / "train" / "ant" / ".DS_Store").write_text("ignored")
    (tree / "labels.txt").write_text("ignored")
    (tree / "train" / "labels.txt").write_text("ignored")
    train, val = image_folder(tree, 20, memory_limit_bytes=limit)
    assert (train.size, val.size) == (15, 15)
    assert train.class_names == ("ant", "bee", "cat")
    assert train.labels.tolist() == [0] * 5 + [1] * 5 + [2] * 5
    assert train.skipped == () and "15 images of 3 classes" in train.note and "val/" in train.note
    picked = np.array([7, 2, 7])
    samples = train.fetch(picked)
    for sample, name in zip(samples, ("bee/002.png", "ant/002.png", "bee/002.png")):
        assert np.array_equal(sample, images.decode(str(tree / "train" / name), 20, 3))
    assert np.array_equal(val.fetch(picked), val.fetch(picked))
    assert train.load(np.arange(0))[0].shape == (0, 20, 20, 3)


@pytest.fixture
def decoded(monkeypatch):
    """The paths of all decoded files."""
    paths, real = [], images.decode
    monkeypatch.setattr(
        images, "decode", lambda path, *rest: paths.append(path) or real(path, *rest)
    )
    return paths


def test_samples_stay_in_memory_only_within_the_limit(tree, decoded):
    total = 30 * 20 * 20 * 3
    train, _ = image_folder(tree, 20, memory_limit_bytes=total)
    train.load(np.arange(15))
    assert len(decoded) == 30  # each once, at the start
    train, _ = image_folder(tree, 20, memory_limit_bytes=total - 1)
    assert len(decoded) == 30  # quick check only
    train.load(np.arange(15))
    train.load(np.arange(15))
    assert len(decoded) == 60


def test_without_val_every_tenth_image_of_a_class_is_held_out(tmp_path):
    root = make_tree(tmp_path, per_class=21, classes=("a", "b"), splits=("train",))
    make_tree(tmp_path, per_class=3, classes=("few",), splits=("train",))
    train, test = image_folder(root, 8)
    assert (train.size, test.size) == (19 + 19 + 3, 4) and test.labels.tolist() == [0, 0, 1, 1]
    assert "every 10th image" in train.note and "4 held out" in train.note
    names = [f"{i:03d}.{'jpg' if i % 2 else 'png'}" for i in range(21)]
    samples = [images.decode(str(root / "train" / "a" / name), 8, 3) for name in names]
    assert np.array_equal(test.fetch(np.arange(2)), [samples[9], samples[19]])
    rest = [sample for i, sample in enumerate(samples) if i not in (9, 19)]
    assert np.array_equal(train.fetch(np.arange(19)), rest)


def test_bad_files_are_an_error_unless_skipped(tree):
    bad = bad_files(tree / "train" / "bee")
    (tree / "val" / "cat" / "inner").mkdir()
    message = "got 9 bad files.*and 4 more; wanted.*next: .*--skip-bad-images"
    for limit in (0, 10**9):
        with pytest.raises(ValueError, match=message):
            image_folder(tree, 20, memory_limit_bytes=limit)
        train, val = image_folder(tree, 20, memory_limit_bytes=limit, skip_bad_images=True)
        assert (train.size, val.size) == (15, 15)
        assert len(train.skipped) == 9 and train.skipped == val.skipped
        for name in bad:
            assert any(os.path.join("bee", name) in line for line in train.skipped)
        assert np.array_equal(train.labels, [0] * 5 + [1] * 5 + [2] * 5)
        assert all(len(labels) for _, labels, _ in batches(train, 4, 0, 0, 0, 1))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("limit", [0, 10**9])
def test_what_is_no_regular_file_is_skipped(tree, limit):
    names = special_files(tree / "train" / "bee")
    (tree / "train" / "bee" / os.fsdecode(b"\xff.jpg")).touch()
    with pytest.raises(ValueError, match="got 5 bad files"):
        image_folder(tree, 20, memory_limit_bytes=limit)
    train, _ = image_folder(tree, 20, memory_limit_bytes=limit, skip_bad_images=True)
    assert train.size == 15 and len(train.skipped) == 5
    assert all(any(name in line for line in train.skipped) for name in names)
    assert "\n".join(train.skipped).encode()  # it can be printed


def test_a_class_folder_that_cannot_be_listed(tree, monkeypatch):
    """By way of `scandir`, because root may read everything."""
    real = os.scandir

    def refused(path):
        if path.endswith(closed):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", refused)
    closed = "train/bee"
    with pytest.raises(ValueError, match="1 bad .*train/bee: cannot be listed: Permission denied"):
        image_folder(tree, 20)
    assert image_folder(tree, 20, skip_bad_images=True)[0].size == 10
    closed = "train"
    with pytest.raises(ValueError, match="image_folder: got '.*train': Permission denied; wanted"):
        image_folder(tree, 20, skip_bad_images=True)


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_a_path_that_is_none(path):
    with pytest.raises(ValueError, match="image_folder: got '.*', which does not exist; wanted"):
        image_folder(path, 20)


def test_an_empty_class_folder(tree):
    for file in (tree / "train" / "bee").iterdir():
        file.unlink()
    with pytest.raises(ValueError, match="train/bee: a class folder without images"):
        image_folder(tree, 20)
    train, _ = image_folder(tree, 20, skip_bad_images=True)
    assert train.num_classes == 3 and set(train.labels) == {0, 2} and len(train.skipped) == 1


def test_damage_in_the_middle(tree):
    """The full check finds it at the start, the quick one only when the file is read."""
    path = tree / "train" / "ant" / "000.png"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    for options in (dict(), dict(memory_limit_bytes=0, full_check=True)):
        with pytest.raises(ValueError, match="ant/000.png: cannot be decoded"):
            image_folder(tree, 20, **options)
        assert image_folder(tree, 20, skip_bad_images=True, **options)[0].size == 14
    train, _ = image_folder(tree, 20, memory_limit_bytes=0)
    with pytest.raises(ValueError, match="ant/000.png.*next: full_check=True"):
        train.load(np.array([3, 0]))


def break_tree(root, how):
    train = root / "train"
    if how == "does not exist":
        return root / "missing"
    if how == "is a file":
        return train / "ant" / "000.png"
    if how == "has no folder train":
        train.rename(root / "training")
    elif how == "1 class folder":
        for name in ("bee", "cat"):
            (train / name).rename(root / name)
            (root / "val" / name).rename(root / f"val-{name}")
    elif how == "0 class folder":
        train.rename(root / "elsewhere")
        (root / "val").rename(root / "elsewhere" / "val")
        train.mkdir()
    elif how == "with 0 files":
        for file in root.glob("*/*/*"):
            file.unlink()
    elif how == r"only in train \['cat'\], only in val \['cow'\]":
        (root / "val" / "cat").rename(root / "val" / "cow")
    return root


MISTAKES = [
    "does not exist",
    "is a file",
    "has no folder train",
    "1 class folder",
    "0 class folder",
    "with 0 files",
    r"only in train \['cat'\], only in val \['cow'\]",
]


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("how", MISTAKES)
def test_another_kind_of_tree_is_refused(tree, how, skip):
    path = break_tree(tree, how)
    with pytest.raises(ValueError, match=f"image_folder: .*{how}.*wanted"):
        image_folder(path, 20, skip_bad_images=skip)


def test_one_class_left_after_skipping(tree):
    for name in ("bee", "cat"):
        for file in (tree / "train" / name).iterdir():
            file.write_text("nothing")
    with pytest.raises(ValueError, match="images of 1 class"):
        image_folder(tree, 20, skip_bad_images=True)


@pytest.mark.parametrize("options", [dict(image_size=0), dict(image_size=8, channels=4)])
def test_refused_arguments(tree, options):
    with pytest.raises(ValueError, match="image_folder: got .*wanted"):
        image_folder(tree, **options)


# on several ranks


def test_all_ranks_skip_the_same_files(on_ranks, tree):
    bad_files(tree / "train" / "bee")

    def one_rank(comm, path):
        path = comm.bcast(path, root=0)
        with pytest.raises(ValueError) as refused:
            image_folder(path, 20, comm=comm)
        train, _ = image_folder(path, 20, skip_bad_images=True, comm=comm)
        steps = batches(train, 7, 0, 0, comm.rank, comm.size)
        seen = [label for _, labels, _ in steps for label in labels]
        return comm.allgather((str(refused.value), train.skipped)), comm.allgather(seen)

    for results in on_ranks(one_rank, str(tree)):
        for outcomes, seen in results:
            assert len(set(outcomes)) == 1 and len(outcomes[0][1]) == 8
            assert sorted(sum(seen, [])) == [0] * 5 + [1] * 5 + [2] * 5


def test_the_ranks_share_the_check(tree, decoded):
    threads.run(3, lambda comm: image_folder(tree, 20, comm=comm))
    assert len(decoded) == len(set(decoded)) == 30


def test_trees_that_differ_are_an_error_on_all_ranks(on_ranks, tmp_path):
    """Without the comparison ranks would train on different images, or deadlock."""
    whole = make_tree(tmp_path / "whole", per_class=2)
    more = make_tree(tmp_path / "more", per_class=2)
    write(more / "train" / "ant" / "more.png", photo(0))

    def one_rank(comm, odd):
        last = comm.rank == comm.size - 1
        with pytest.raises(ValueError) as refused:
            image_folder(odd if last else whole, 8, comm=comm, skip_bad_images=True)
        return comm.size - 1, comm.allgather(str(refused.value))

    for odd, part in (
        (more, "got different files on rank 0 and rank {}"),
        (tmp_path / "gone", "does not exist"),
    ):
        for results in on_ranks(one_rank, odd, sizes=(2, 3, 5)):
            for last, messages in results:
                assert all(part.format(last) in message for message in messages), messages
                assert odd == more or all(f"(rank {last})" in message for message in messages)


# real images


def test_cifar10(test_images):
    train, val = image_folder(os.path.join(test_images, "cifar10"), 67, memory_limit_bytes=0)
    assert (train.size, val.size, train.num_classes, train.skipped) == (10_000, 1000, 10, ())
    batch, labels = train.load(np.arange(0, 10_000, 500))
    assert batch.shape == (20, 67, 67, 3) and np.isfinite(batch).all() and 0.5 < batch.std() < 2
    assert labels.tolist() == sorted([*range(10)] * 2)


def test_imagenet_photographs(test_images):
    train, test = image_folder(os.path.join(test_images, "imagenet-sample"), 227)
    assert (train.size, test.size, train.num_classes, train.skipped) == (100, 0, 100, ())
    batch, _ = train.load(np.arange(100))
    assert batch.shape == (100, 227, 227, 3) and np.isfinite(batch).all() and 0.5 < batch.std() < 2


def test_pillows_settings_do_not_change(tree):
    image_folder(tree, 20)
    assert ImageFile.LOAD_TRUNCATED_IMAGES is False
