"""The multi-level data cache: memory of the node first, its disk second, the slow store last (Shi et al. 2021, DataCache).

    nodes = topology.nodes(comm)
    store = FolderStore(paths)                                      # or RemoteStore, see stores.py
    cache = node_cache(comm, nodes, store, decoder(paths, 67, 3), train.size, (67, 67, 3),
                       memory_limit_bytes=1 << 30, disk_folder="/scratch/me", disk_limit_bytes=1 << 34, key=key)
    train = dataclasses.replace(train, fetch=cache)
    for images, labels, global_batch in shard_batches(train, 256, epoch, seed, comm.rank, nodes): ...

                 fetch(index)
                     |           has it                          keeps it while its limit allows
        memory of the node ----> decoded sample                  every sample that was decoded
                     | no
        disk of the node ------> file's bytes ----> decode       every file that came from the store
                     | no
        slow store ------------> file's bytes ----> decode

The first epoch fills while it trains. Nothing is ever thrown out for something else: when every sample is asked for once
an epoch, in an order that changes, any sample is as good as another, and what stays is a hit in every epoch; replacing
the least recently used one only moves the hits about, and at worst there are none. The disk also keeps what memory has:
then the next job starts from disk. Which ranks share what is said by shards.py.

Facts of DataCache are known from secondary sources only; that nothing is replaced, and that lower levels keep what upper
ones have, is chosen here.
"""

import time
from collections.abc import Callable

import numpy as np

from refgf.machine.images import decode
from refgf.papers.datacache.disk import HEADER_BYTES, DiskCache
from refgf.papers.datacache.memory import SharedSamples
from refgf.papers.datacache.shards import node_shards

LEVELS = ("memory", "disk", "store")


class Cache:
    """samples = cache(indices): the `fetch` of a Dataset, uint8 (N, *shape). One object a rank.

    read(index) -> bytes, decode(index, bytes) -> sample; memory and disk have get and put, or are None.
    hits, seconds     per level of LEVELS: samples served from it, and what they took, since `reset`
    """

    def __init__(
        self, read: Callable, decode: Callable, shape: tuple, memory=None, disk=None
    ) -> None:
        self.read, self.decode, self.shape, self.memory, self.disk = (
            read,
            decode,
            shape,
            memory,
            disk,
        )
        self.reset()

    def reset(self) -> None:
        self.hits, self.seconds = dict.fromkeys(LEVELS, 0), dict.fromkeys(LEVELS, 0.0)

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        samples = np.empty((len(indices), *self.shape), np.uint8)
        for row, index in enumerate(indices):
            start_s = time.perf_counter()
            level = self._fill(samples[row], int(index))
            self.hits[level] += 1
            self.seconds[level] += time.perf_counter() - start_s
        return samples

    def close(self) -> None:
        for level in filter(None, (self.memory, self.disk)):
            level.close()

    def _fill(self, out: np.ndarray, index: int) -> str:
        """Write the sample into `out`; where it came from."""
        kept = self.memory.get(index) if self.memory else None
        if kept is not None:
            out[...] = kept
            return "memory"
        content, level = self._file(index)
        out[...] = self.decode(index, content)
        if self.memory:
            self.memory.put(index, out)
        return level

    def _file(self, index: int) -> tuple[bytes, str]:
        content = self.disk.get(index) if self.disk else None
        if content is not None:
            return content, "disk"
        content = self.read(index)
        if self.disk:
            self.disk.put(index, content)
        return content, "store"


def decoder(names: list[str], image_size: int, channels: int) -> Callable:
    """decode(index, content) of images.py; names are for error messages."""
    return lambda index, content: decode(names[index], image_size, channels, content)


def node_cache(
    comm,
    nodes: list[list[int]],
    read: Callable,
    decode: Callable,
    n: int,
    shape: tuple,
    memory_limit_bytes: int = 0,
    disk_folder: str | None = None,
    disk_limit_bytes: int = 0,
    key: bytes = b"",
) -> Cache:
    """This rank's end of its node's cache. Collective. Limits are for a node, whatever the number of its ranks;
    a level whose limit holds nothing, or a disk without a folder, is left out. key: stores.data_set_key."""
    if memory_limit_bytes < 0 or disk_limit_bytes < 0:
        raise ValueError(
            f"node_cache, rank {comm.Get_rank()}: got limits of {memory_limit_bytes} and {disk_limit_bytes} bytes; "
            "wanted 0 or more; next: 0 leaves a level out"
        )
    node = next(i for i, ranks in enumerate(nodes) if comm.Get_rank() in ranks)
    shard = len(node_shards(n, nodes)[node])
    memory = SharedSamples(comm, nodes, n, shape, memory_limit_bytes, shard)
    disk = (
        DiskCache(disk_folder, key, disk_limit_bytes)
        if disk_folder and disk_limit_bytes >= HEADER_BYTES
        else None
    )
    return Cache(read, decode, shape, memory if memory.slots else None, disk)
