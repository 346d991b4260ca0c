"""A training through the cache, with prefetch: the same bits, and less waiting for images."""

import dataclasses
import time
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from lab.cache import claims, training
from lab.cache.training import Settings, compare, train
from refgf.machine import threads
from refgf.machine.augment import Augmentation, augmented
from refgf.machine.digits import digits
from refgf.machine.folders import image_folder
from refgf.machine.images import decoder
from refgf.papers.datacache import CacheSettings, node_cache
from refgf.papers.datacache.memory import table_bytes
from refgf.papers.datacache.stores import FolderStore, Throttled, data_set_key
from refgf.predict.cost import Link
from refgf.training.data import batches

IMAGES, SIZE = 24, 67
NODES = {1: [[0]], 2: [[0, 1]], 3: [[0, 2], [1]]}
SLOW = Link(0.004, 0.0)  # EMULATED: seconds a file


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """Digits as JPEG files."""
    root, (source, _) = tmp_path_factory.mktemp("tree"), digits(72)
    for i in range(IMAGES):
        path = root / "train" / str(source.labels[i]) / f"{i:03d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(source.fetch(np.array([i]))[0]).save(path, quality=90)
    return root


def trained(comm, root, folder, loader, epochs=2):
    """(this rank's epochs, hash, hits of the last epochs) with this loader."""
    share, disk, depth, link = loader
    data, _ = image_folder(str(root), SIZE, memory_limit_bytes=0)
    nodes, read = NODES[comm.size], FolderStore(data.fetch.paths)
    hits = None
    if share is not None:
        room = table_bytes(data.size) + int(share * data.size) * 3 * SIZE**2 if share else 0
        key = data_set_key(str(root), data.fetch.paths)
        node = next(i for i, ranks in enumerate(nodes) if comm.rank in ranks)
        place = f"{comm.bcast(str(folder), root=0)}/{comm.size}-{loader}-{node}"
        settings = CacheSettings(room, disk, place, key)
        decode = decoder(data.fetch.paths, SIZE, 3)
        slow = Throttled(read, link) if link else read
        cache = node_cache(comm, nodes, slow, decode, data.size, (SIZE, SIZE, 3), settings)
        data, hits = dataclasses.replace(data, fetch=cache), cache.hits
    rows, digest = train(comm, data, nodes, Settings(4 * comm.size, depth, epochs))
    comm.allgather(None)
    return rows, digest, hits


# share of the data in memory (None: no cache), bytes of disk, batches ahead, the store's link
LOADERS = {
    "memory": (1.0, 0, 0, None),
    "memory and prefetch": (1.0, 0, 1, None),
    "half, disk, prefetch": (0.4, 1 << 30, 3, None),
}


def test_the_same_bits_as_without_a_cache(tree, tmp_path, size=3):
    plain = threads.run(size, trained, tree, tmp_path, (None, 0, 0, None))
    assert len({digest for _, digest, _ in plain}) == 1
    for name, loader in LOADERS.items():
        found = threads.run(size, trained, tree, tmp_path, loader)
        assert [digest for _, digest, _ in found] == [plain[0][1]] * size, name
        total = {level: sum(hits[level] for *_, hits in found) for level in found[0][2]}
        assert sum(total.values()) == 2 * IMAGES  # it did go through the cache
        if loader[0] == 1.0:
            assert total == {"memory": IMAGES, "disk": 0, "store": IMAGES}


def test_the_waiting_that_it_saves(tree, tmp_path, monkeypatch):
    """One rank, 6 steps an epoch, a store of 12 ms a file: 24 files, 288 ms an epoch.

    Without a cache every epoch waits for that. With one, only the first does. With prefetch that
    one does not either: steps that sleep for 60 ms hide the 48 ms of the next one's files.
    """
    slow = dataclasses.replace(SLOW, alpha_s=0.012)
    step = training.GradientFlow.step
    slower = lambda *arguments: time.sleep(0.06) or step(*arguments)  # noqa: E731
    monkeypatch.setattr(training.GradientFlow, "step", slower)
    waited_s = {}
    for name, (share, depth) in training.LOADERS.items():
        rows, _, _ = threads.run(1, trained, tree, tmp_path, (share, 0, depth, slow))[0]
        waited_s[name] = [row["waited_s"] for row in rows]
        assert all(0 <= row["waited_s"] <= row["seconds"] for row in rows)
    least_s = IMAGES * slow.alpha_s
    assert min(waited_s["no cache"]) >= least_s and waited_s["memory"][0] >= least_s
    assert waited_s["memory"][1] < least_s
    assert waited_s["memory, prefetch"][0] < least_s


def epochs_of_crops(comm, root, folder, cached):
    """Bytes of all batches of two epochs of 64 x 64 crops, of this rank."""
    data, _ = image_folder(str(root), SIZE, memory_limit_bytes=0)
    if cached:
        read, decode = FolderStore(data.fetch.paths), decoder(data.fetch.paths, SIZE, 3)
        settings, shape = CacheSettings(1 << 30), (SIZE, SIZE, 3)
        cache = node_cache(comm, NODES[comm.size], read, decode, data.size, shape, settings)
        data = dataclasses.replace(data, fetch=cache)
    views = (augmented(data, Augmentation(64, seed=1), epoch) for epoch in range(2))
    found = [
        images.tobytes()
        for epoch, view in enumerate(views)
        for images, _, _ in batches(view, 8, epoch, 1, comm.rank, comm.size)
    ]
    return found, cache.hits["memory"] if cached else 0


def test_crops_are_cut_from_cached_samples(tree, tmp_path):
    """The cache holds one copy of an image for all epochs, and the views have the same bits."""
    plain = threads.run(3, epochs_of_crops, tree, tmp_path, False)
    cached = threads.run(3, epochs_of_crops, tree, tmp_path, True)
    assert [found for found, _ in cached] == [found for found, _ in plain]
    assert all(hits > 0 for _, hits in cached)


def test_the_lesson_says_what_it_saved():
    epochs = {"no cache": 0.9, "half memory": 0.5}
    rows = [
        {"store": "slow", "name": name, "epochs": [{"seconds": s}] * 2}
        for name, s in epochs.items()
    ]
    result = {"rows": rows, "sweep": []}
    assert claims.answer(result) == "1.8 times as fast"
    swept = [{"share": share, "store": {"seconds": [s]}} for share, s in ((0.0, 1.0), (0.9, 0.1))]
    assert claims.answer(result | {"sweep": swept}) == (
        "1.8 times as fast; with nine tenths 10.0 times"
    )


def test_images_too_small_for_the_network_are_not_trained():
    said = []
    run = SimpleNamespace(section=said.append, say=said.append)
    place = SimpleNamespace(data=digits(66)[0])
    assert compare(run, place) == {} and "at least 67 pixels" in said[-1]
