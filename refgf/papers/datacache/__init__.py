"""The multi-level data cache: the node's memory, its disk, then a slow store.

Source: DataCache of Shi et al. 2021. Their abstract says that it has several levels; that these are
memory, disk and store is unverified (oracle/SPEC.md, K4).

    nodes = topology.nodes(comm)
    store = FolderStore(paths)                      # or RemoteStore, see stores.py
    decode = images.decoder(paths, 67, 3)           # of refgf.machine
    settings = CacheSettings(1 << 30, 1 << 34, disk_folder="/scratch/me", key=key)
    cache = node_cache(comm, nodes, store, decode, train.size, (67, 67, 3), settings)
    train = dataclasses.replace(train, fetch=cache)
    for images, labels, global_batch in shard_batches(train, 256, epoch, seed, comm.rank, nodes):
        ...

                 fetch(index)
                     |           hit                             stores, while its limit allows,
        memory of the node ----> decoded sample                  every decoded sample
                     | miss
        disk of the node ------> file's bytes ----> decode       every file read from the store
                     | miss
        slow store ------------> file's bytes ----> decode

The first epoch fills the cache while it trains. No sample ever replaces another. Each sample is
read once an epoch, in an order that changes, so all samples are equally useful and a cached one is
a hit in every epoch. Replacing the least recently used sample would not add hits, and at worst
leaves none. The disk also stores what memory has, so the next job starts from disk. `shards.py`
assigns samples to nodes. That nothing is replaced, and that lower levels store what upper ones
have, are choices of this project.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from refgf.arguments import checked, require
from refgf.comm.arguments import Comm
from refgf.papers.datacache.disk import HEADER_BYTES, DiskCache
from refgf.papers.datacache.memory import SharedSamples
from refgf.papers.datacache.shards import node_shards

LEVELS = ("memory", "disk", "store")


@checked
@dataclass(frozen=True)
class CacheSettings:
    """Sizes of a node's cache, for all its ranks; a level that can hold nothing is omitted."""

    memory_bytes: int = 0
    disk_bytes: int = 0
    disk_folder: str | None = None  # None: no disk
    key: bytes = b""  # of the data set: stores.data_set_key


@checked
class Cache:
    """samples = cache(indices): the `fetch` of a Dataset, uint8 (N, *shape). One object a rank.

    read(index) -> bytes, decode(index, bytes) -> sample; memory and disk have get and put, or are
    None. hits, seconds: per level of LEVELS, samples served from it and the time that took, since
    `reset`. Errors: ValueError for indices that are no whole numbers of the data set, and for what
    `decode` returns in another shape or type.
    """

    def __init__(
        self,
        read: Callable[[int], bytes],
        decode: Callable[[int, bytes], np.ndarray],
        shape: tuple[int, ...],
        memory: SharedSamples | None = None,
        disk: DiskCache | None = None,
    ) -> None:
        self.read, self.decode, self.shape = read, decode, shape
        self.memory, self.disk = memory, disk
        self.reset()

    def reset(self) -> None:
        """Set the counters to zero."""
        self.hits, self.seconds = dict.fromkeys(LEVELS, 0), dict.fromkeys(LEVELS, 0.0)

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        numbers = np.asarray(indices)
        n = getattr(self.memory, "n", np.inf)  # what stands in need not say
        require(
            numbers.ndim == 1
            and (numbers.size == 0 or (numbers.dtype.kind in "iu" and numbers.min() >= 0))
            and (numbers.size == 0 or numbers.max() < n),
            "Cache",
            f"indices {str(indices)[:80]}",
            f"a flat array of whole numbers of 0 or more, below {n}",
            "the samples of node_batches",
        )
        samples = np.empty((len(indices), *self.shape), np.uint8)
        for row, index in enumerate(indices):
            start_s = time.perf_counter()
            level = self._fill(samples[row], int(index))
            self.hits[level] += 1
            self.seconds[level] += time.perf_counter() - start_s
        return samples

    def close(self) -> None:
        """Release memory and disk."""
        for level in filter(None, (self.memory, self.disk)):
            level.close()

    def _fill(self, out: np.ndarray, index: int) -> str:
        """Write the sample into `out`; return its level."""
        sample = self.memory.get(index) if self.memory else None
        if sample is not None:
            out[...] = sample
            return "memory"
        content, level = self._read_file(index)
        out[...] = self._sample(index, content)
        if self.memory:
            self.memory.put(index, out)
        return level

    def _sample(self, index: int, content: bytes) -> np.ndarray:
        sample = self.decode(index, content)
        shape, dtype = getattr(sample, "shape", None), getattr(sample, "dtype", None)
        require(
            shape == tuple(self.shape) and dtype == np.uint8,
            f"Cache, sample {index}",
            f"shape {shape}, type {dtype or type(sample).__name__} from decode",
            f"shape {tuple(self.shape)}, type uint8",
            "a decode that returns an image as images.decoder's does",
        )
        return sample

    def _read_file(self, index: int) -> tuple[bytes, str]:
        content = self.disk.get(index) if self.disk else None
        if content is not None:
            return content, "disk"
        content = self.read(index)
        if self.disk:
            self.disk.put(index, content)
        return content, "store"


@checked
def node_cache(
    comm: Comm,
    nodes: list[list[int]],
    read: Callable,
    decode: Callable,
    n: int,
    shape: tuple,
    settings: CacheSettings,
) -> Cache:
    """This rank's end of its node's cache for n samples of this shape. Collective.

    nodes: ranks of each node (topology.nodes). Cost: two allgathers of a few bytes.
    """
    if settings.memory_bytes < 0 or settings.disk_bytes < 0:
        raise ValueError(
            f"node_cache on rank {comm.Get_rank()}: got {settings}; "
            "wanted sizes of 0 bytes or more; next: 0 omits a level"
        )
    shards = node_shards(n, nodes)
    node = next((i for i, ranks in enumerate(nodes) if comm.Get_rank() in ranks), 0)
    memory = SharedSamples(comm, nodes, n, shape, settings.memory_bytes, len(shards[node]))
    disk = None
    if settings.disk_folder and settings.disk_bytes >= HEADER_BYTES:
        disk = DiskCache(settings.disk_folder, settings.key, settings.disk_bytes)
    return Cache(read, decode, shape, memory if memory.slots else None, disk)
