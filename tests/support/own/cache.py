"""Shards and cache levels under the names and arguments of SPEC.md. Part of own.py."""

import tempfile

import numpy as np

from refgf.machine import threads
from refgf.papers.datacache import LEVELS, CacheSettings, node_cache, shards
from refgf.papers.datacache.disk import HEADER_BYTES, RECORD_BYTES
from refgf.papers.datacache.memory import table_bytes

node_shards = shards.node_shards


def node_batches(order, nodes, batch_size):
    return shards.node_batches(np.array(order, np.int64), nodes, batch_size)


def cache_levels(requests, file_bytes, sample_bytes, disk_limit, memory_limit):
    """A file costs its record too, and the levels have a header and a table of their own."""
    n, shape = len(file_bytes), (sample_bytes, 1, 1)

    def read(index):
        return bytes(file_bytes[index] - RECORD_BYTES)

    def body(comm, folder):
        memory, disk = table_bytes(n) + memory_limit, HEADER_BYTES + disk_limit
        settings = CacheSettings(memory, disk, folder, bytes(32))
        cache = node_cache(
            comm, [[0]], read, lambda i, data: np.full(shape, i, np.uint8), n, shape, settings
        )
        levels = []
        for index in requests:
            cache.reset()
            assert (cache(np.array([index])) == index).all()
            levels.append(next(number for number, level in enumerate(LEVELS) if cache.hits[level]))
        return levels

    with tempfile.TemporaryDirectory() as folder:
        return threads.run(1, body, folder)[0]
