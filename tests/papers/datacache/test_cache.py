"""Caches give the bits of uncached reading, respect their limits, and count each level's hits."""

import dataclasses
import os
import threading
import time
from collections import Counter

import numpy as np
import pytest

from refgf.launch import leftovers
from refgf.machine import threads
from refgf.machine.folders import image_folder
from refgf.machine.images import decoder
from refgf.papers.datacache import Cache, CacheSettings, node_cache
from refgf.papers.datacache import disk as disk_level
from refgf.papers.datacache import memory as memory_level
from refgf.papers.datacache.disk import HEADER_BYTES, RECORD_BYTES, DiskCache
from refgf.papers.datacache.memory import SharedSamples
from refgf.papers.datacache.shards import node_batches, node_shards
from refgf.papers.datacache.stores import FolderStore, data_set_key
from tests.support.pictures import make_tree, special_files

N, SHAPE, SAMPLE_BYTES = 23, (3, 5, 2), 30
KEY, OTHER_KEY = b"k" * 32, b"o" * 32
TABLE_BYTES = 128  # 8 + 4 * 23, rounded up to 64s
EVERYTHING = 10**6
NODES = {1: [[0]], 2: [[0, 1]], 3: [[0, 2], [1]], 4: [[0, 1], [2, 3]], 5: [[0, 1, 2, 3], [4]]}


def content(index, salt=0):
    """A file in the store: the sample, and a tail so that the files' lengths differ."""
    sample = np.random.default_rng([salt, index]).integers(0, 256, SAMPLE_BYTES, np.uint8)
    return sample.tobytes() + bytes(index)


def decode(index, data):
    return np.frombuffer(data[:SAMPLE_BYTES], np.uint8).reshape(SHAPE)


def uncached(indices):
    return np.array([decode(i, content(i)) for i in indices], np.uint8).reshape(-1, *SHAPE)


def epochs_on_ranks(comm, folder, memory, disk, epochs=3):
    """Run epochs by shards and check the bits; (nodes, [(samples read, hits) by node] an epoch)."""
    nodes = NODES.get(comm.size) or [list(range(comm.size))]
    node = next(i for i, ranks in enumerate(nodes) if comm.rank in ranks)
    name = f"{comm.size}-{memory}-{disk}-node{node}"
    folder = os.path.join(comm.bcast(str(folder), root=0), name)
    settings = CacheSettings(memory, disk, folder, KEY)
    cache = node_cache(comm, nodes, content, decode, N, SHAPE, settings)
    rows = []
    for epoch in range(epochs):
        cache.reset()
        order, own = np.random.default_rng(epoch).permutation(N), []
        for step in node_batches(order, nodes, 2 * comm.size):
            assert np.array_equal(cache(step[comm.rank]), uncached(step[comm.rank]))
            own += step[comm.rank].tolist()
        comm.allgather(None)
        assert (cache.memory.nbytes if cache.memory else 0) <= memory
        on_disk = sum(e.stat().st_size for e in os.scandir(folder)) if os.path.isdir(folder) else 0
        assert on_disk <= disk
        results = comm.allgather((own, cache.hits))
        seen = [sum((results[rank][0] for rank in ranks), []) for ranks in nodes]
        hits = [sum((Counter(results[rank][1]) for rank in ranks), Counter()) for ranks in nodes]
        rows.append((seen, hits))
    comm.allgather(None)
    cache.close()
    return nodes, rows


LIMITS = [
    (0, 0),
    (EVERYTHING, 0),
    (0, EVERYTHING),
    (EVERYTHING, EVERYTHING),
    (TABLE_BYTES + 3 * SAMPLE_BYTES, 700),
    (TABLE_BYTES + SAMPLE_BYTES - 1, HEADER_BYTES - 1),
    (5, HEADER_BYTES),
]


@pytest.mark.parametrize("memory, disk", LIMITS)
def test_bits_hits_and_limits(on_ranks, tmp_path, memory, disk):
    for results in on_ranks(epochs_on_ranks, tmp_path, memory, disk, sizes=(1, 2, 3, 5)):
        nodes, rows = results[0]
        shards = node_shards(N, nodes)
        for epoch, (seen, hits) in enumerate(rows):
            # each sample once an epoch
            assert [sorted(s) for s in seen] == [shard.tolist() for shard in shards]
            for node, shard in enumerate(shards):
                check_hits(hits[node], epoch, len(shard), memory, disk)


def check_hits(hits, epoch, size, memory, disk):
    """The hits that do not depend on the ranks' order; the exact levels: test_oracle_own.py."""
    assert sum(hits.values()) == size
    slots = max(0, min(size, (memory - TABLE_BYTES) // SAMPLE_BYTES))
    assert hits["memory"] == (slots if epoch else 0)
    if epoch and disk >= EVERYTHING:
        assert hits["store"] == 0
    if epoch and disk <= HEADER_BYTES:
        assert hits["disk"] == 0


def test_no_samples_and_a_limit_below_0(tmp_path):
    assert Cache(content, decode, SHAPE)(np.zeros(0, np.int64)).shape == (0, *SHAPE)
    wrong = CacheSettings(memory_bytes=-1)
    with pytest.raises(ValueError, match="memory_bytes=-1.*wanted sizes of 0 bytes or more"):
        threads.run(1, lambda comm: node_cache(comm, [[0]], content, decode, N, SHAPE, wrong))
    with pytest.raises(ValueError, match="a key of 3 bytes"):
        DiskCache(str(tmp_path), b"abc", 1000)
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="wanted a writable folder"):
        DiskCache(str(tmp_path / "file"), KEY, 1000)


@pytest.mark.timeout(20)
def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path):
    for name in special_files(tmp_path):
        for file in ("refgf-cache.manifest", "refgf-cache.data"):
            folder = tmp_path / f"{name}-{file}"
            folder.mkdir()
            (folder / file).symlink_to(tmp_path / name)
            with pytest.raises(ValueError, match="DiskCache: got .*wanted a writable folder"):
                DiskCache(str(folder), KEY, EVERYTHING)
        with pytest.raises(OSError):
            FolderStore([str(tmp_path / name)])(0)


@pytest.mark.parametrize("file", ["refgf-cache.data", "refgf-cache.manifest"])
@pytest.mark.parametrize("way", ["symbolic link", "second name", "another user's"])
def test_the_disk_destroys_nothing_that_it_did_not_make(tmp_path, file, way):
    """Whoever may write to the folder could name another file there, which would be emptied."""
    thesis = tmp_path / "thesis.txt"
    thesis.write_text("years of work")
    (tmp_path / "cache").mkdir()
    place = tmp_path / "cache" / file
    if way == "another user's":
        if os.geteuid():
            pytest.skip("only root can give a file away")
        place.write_text("theirs")
        os.chown(place, 65534, 65534)
    else:
        (place.symlink_to if way == "symbolic link" else place.hardlink_to)(thesis)
    with pytest.raises(ValueError, match="without links or files of others; next: "):
        DiskCache(str(tmp_path / "cache"), KEY, EVERYTHING).put(0, b"x")
    assert thesis.read_text() == "years of work" and place.read_text() != "x"


WRONG_CALLS = {
    "decode gives floats": (lambda i, b: np.full(SHAPE, 0.5), [0], "type float64 from decode"),
    "decode gives nothing": (lambda i, b: None, [0], "type NoneType from decode"),
    "decode gives another shape": (lambda i, b: np.zeros((3, 3), np.uint8), [0], "from decode"),
    "an index below 0": (decode, [-1], "got indices"),
    "an index above all": (decode, [N], "got indices"),
    "an index between": (decode, [1.5], "got indices"),
    "a shape of nothing": (decode, (0, 5, 2), "got n=23"),
    "nodes without a rank": (decode, [[0]], "got nodes"),
}


@pytest.mark.parametrize("name", WRONG_CALLS)
def test_wrong_calls_of_a_cache_are_sentences(name):
    decoding, wrong, message = WRONG_CALLS[name]
    shape = wrong if name == "a shape of nothing" else SHAPE
    nodes = wrong if name == "nodes without a rank" else NODES[2]

    def body(comm):
        settings = CacheSettings(memory_bytes=EVERYTHING)
        node_cache(comm, nodes, content, decoding, N, shape, settings)(np.array(wrong))

    with pytest.raises(ValueError, match=f"{message}.*; wanted .*; next: "):
        threads.run(2, body)


# ---- the disk ----


def filled(folder, limit=EVERYTHING, key=KEY, salt=0):
    disk = DiskCache(str(folder), key, limit)
    for index in range(N):
        disk.put(index, content(index, salt))
    return disk


def all_there(disk, salt=0):
    return [disk.get(index) in (None, content(index, salt)) for index in range(N)]


def reopen(folder):
    """Open the folder again: no wrong copy is read, and after one epoch all copies are intact."""
    disk = DiskCache(str(folder), KEY, EVERYTHING)
    missing = [index for index in range(N) if disk.get(index) is None]
    assert all(all_there(disk))
    cache = Cache(content, decode, SHAPE, disk=disk)
    assert np.array_equal(cache(np.arange(N)), uncached(range(N)))
    assert cache.hits == {"memory": 0, "disk": N - len(missing), "store": len(missing)}
    cache.reset()
    assert np.array_equal(cache(np.arange(N)), uncached(range(N)))
    assert cache.hits["disk"] == N
    return len(missing)


def test_the_next_job_starts_from_disk(tmp_path):
    assert filled(tmp_path).found == "empty"
    assert reopen(tmp_path) == 0 and DiskCache(str(tmp_path), KEY, EVERYTHING).found == "reused"


@pytest.mark.parametrize("name", ["manifest", "data"])
def test_truncated_files(tmp_path, name):
    for cut in (1, 7, 48, 49, 400, 10**9):
        filled(tmp_path / str(cut))
        file = tmp_path / str(cut) / f"refgf-cache.{name}"
        os.truncate(file, max(0, file.stat().st_size - cut))
        assert reopen(tmp_path / str(cut)) >= (1 if cut < 10**9 else N)


@pytest.mark.parametrize("name", ["manifest", "data"])
def test_a_flipped_bit_anywhere(tmp_path, name):
    filled(tmp_path / "whole")
    names = ("manifest", "data")
    whole = {n: (tmp_path / "whole" / f"refgf-cache.{n}").read_bytes() for n in names}
    for place in range(0, len(whole[name]), 61):
        folder = tmp_path / str(place)
        folder.mkdir()
        for each, data in whole.items():
            damaged = bytearray(data)
            damaged[place % len(data)] ^= 4 * (each == name)
            (folder / f"refgf-cache.{each}").write_bytes(damaged)
        assert reopen(folder) >= 1, place


def test_another_data_set_is_detected_and_replaced(tmp_path):
    filled(tmp_path, key=OTHER_KEY, salt=9)
    assert DiskCache(str(tmp_path), KEY, EVERYTHING).found == "foreign"
    assert reopen(tmp_path) == N


def test_copies_of_another_data_set_under_the_right_header(tmp_path):
    """Only the data file was copied: same lengths, other bytes."""
    filled(tmp_path / "a"), filled(tmp_path / "b", key=OTHER_KEY, salt=9)
    other = (tmp_path / "b" / "refgf-cache.data").read_bytes()
    (tmp_path / "a" / "refgf-cache.data").write_bytes(other)
    assert reopen(tmp_path / "a") == N


@pytest.mark.parametrize("limit", [HEADER_BYTES, 200, 700, 1000])
def test_the_disk_respects_its_limit(tmp_path, limit):
    def used():
        return sum(entry.stat().st_size for entry in os.scandir(tmp_path))

    disk = filled(tmp_path, limit)
    assert used() == disk.nbytes <= limit
    smallest = min(RECORD_BYTES + len(content(i)) for i in range(N) if disk.get(i) is None)
    assert used() + smallest > limit  # every copy that still fitted was stored
    assert not disk.put(N, bytes(limit))  # a file larger than the limit
    assert DiskCache(str(tmp_path), KEY, EVERYTHING).found == "reused"
    smaller = DiskCache(str(tmp_path), KEY, max(HEADER_BYTES, used() - 1))  # with a lower limit
    assert used() == HEADER_BYTES and (smaller.found == "too large" or limit == HEADER_BYTES)


def test_a_full_disk_is_a_miss(tmp_path, monkeypatch):
    disk = DiskCache(str(tmp_path), KEY, EVERYTHING)
    monkeypatch.setattr(disk_level, "_write", lambda *arguments: False)
    assert not disk.put(3, content(3)) and disk.get(3) is None


@pytest.mark.parametrize("keys", [(KEY, KEY), (KEY, OTHER_KEY)])
def test_two_concurrent_jobs_in_one_folder(tmp_path, keys):
    """Jobs of one data set share the folder; of two data sets, the later one takes it.

    The bits are right and the limit holds in both cases.
    """
    wrong, limit = [], 1000

    def job(salt, key):
        disk = DiskCache(str(tmp_path), key, limit)
        cache = Cache(lambda i: content(i, salt), decode, SHAPE, disk=disk)
        for epoch in range(20):
            for index in np.random.default_rng([salt, epoch]).permutation(N):
                sample = cache(np.array([index]))[0]
                if not np.array_equal(sample, decode(index, content(index, salt))):
                    wrong.append((salt, epoch, index))

    salts = [0, int(keys[0] != keys[1])]
    jobs = [threading.Thread(target=job, args=pair) for pair in zip(salts, keys)]
    for each in jobs:
        each.start()
    for each in jobs:
        each.join()
    assert not wrong
    assert sum(entry.stat().st_size for entry in os.scandir(tmp_path)) <= limit


# ---- memory ----


def names_in_shared_memory():
    prefix = memory_level.PREFIX
    return [name for name in os.listdir(memory_level.FOLDER) if name.startswith(prefix)]


def test_ranks_of_a_node_share_one_copy(on_ranks):
    def body(comm):
        nodes = NODES.get(comm.size) or [list(range(comm.size))]
        ranks = next(ranks for ranks in nodes if comm.rank in ranks)
        memory = SharedSamples(comm, nodes, N, SHAPE, EVERYTHING)
        first = comm.rank == ranks[0]
        stored = [memory.put(i, decode(i, content(i))) for i in range(0, N, 2)] if first else [True]
        comm.allgather(None)
        there = [i for i in range(N) if memory.get(i) is not None]
        right = all(np.array_equal(memory.get(i), decode(i, content(i))) for i in there)
        comm.allgather(None)
        return all(stored), there == list(range(0, N, 2)), right, memory.taken == len(there)

    for results in on_ranks(body):
        assert all(all(result) for result in results)


def test_all_ranks_put_everything_at_once(on_ranks):
    """No sample takes two slots, no slot has two samples, and the limit of 7 samples holds."""

    def body(comm):
        nodes = [list(range(comm.size))]
        memory = SharedSamples(comm, nodes, N, SHAPE, TABLE_BYTES + 7 * SAMPLE_BYTES + 29)
        for index in np.random.default_rng(comm.rank).permutation(N):
            memory.put(int(index), decode(index, content(index)))
        comm.allgather(None)
        there = [i for i in range(N) if memory.get(i) is not None]
        comm.allgather(None)
        right = all(np.array_equal(memory.get(i), decode(i, content(i))) for i in there)
        return memory.taken, len(there), right

    for results in on_ranks(body):
        assert set(results) == {(7, 7, True)}


def test_shared_memory_has_no_name(on_ranks):
    def body(comm):
        memory = SharedSamples(comm, [list(range(comm.size))], N, SHAPE, EVERYTHING)
        comm.allgather(None)
        return memory.nbytes, names_in_shared_memory()

    before = set(names_in_shared_memory())
    for results in on_ranks(body, sizes=(3,)):
        assert all(set(names) <= before for _, names in results)


def test_a_name_left_by_a_kill_is_removed_at_the_next_start():
    assert memory_level.PREFIX in leftovers.PREFIXES


def test_too_little_shared_memory():
    with pytest.raises(ValueError, match="on rank 0: got .* next: a smaller limit_bytes"):
        threads.run(3, lambda comm: SharedSamples(comm, [[0, 1, 2]], 2**20, (2**20, 2**10), 2**60))
    files = [os.path.join(memory_level.FOLDER, name) for name in names_in_shared_memory()]
    assert not [file for file in files if time.time() - os.stat(file).st_mtime < 1]


# ---- images ----


def test_real_files_through_all_levels(tmp_path):
    tree = make_tree(tmp_path / "tree", per_class=7)
    train, _ = image_folder(str(tree), 16)
    paths = train.fetch.paths
    wanted = train.fetch(np.arange(train.size))

    key = data_set_key(str(tree), paths)
    settings = CacheSettings(5 * 768 + 200, 10**6, str(tmp_path / "disk"), key)
    read, decode_image = FolderStore(paths), decoder(paths, 16, 3)

    def body(comm):
        nodes, shape = [[0, 1, 2]], (16, 16, 3)
        cache = node_cache(comm, nodes, read, decode_image, train.size, shape, settings)
        cached = dataclasses.replace(train, fetch=cache)
        for _ in range(2):
            assert np.array_equal(cached.fetch(np.arange(train.size)), wanted)
            comm.allgather(None)
        return cache.hits

    hits = threads.run(3, body)
    assert all(h["memory"] >= 5 and h["store"] <= train.size for h in hits)
    (tree / "train" / "ant" / "001.jpg").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"001\.jpg: is neither JPEG nor PNG"):
        Cache(FolderStore(paths), decoder(paths, 16, 3), (16, 16, 3))(np.arange(train.size))
