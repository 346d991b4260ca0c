"""Lesson 14 against the definition: samples, bits and hits; and damaged cache files are noticed."""

import os

import numpy as np

import kit
from lab.cache import levels
from refgf.papers.datacache import Cache
from refgf.papers.datacache.disk import DiskCache
from refgf.papers.datacache.stores import FolderStore

EPOCHS, SHARE = 3, 0.5  # of the shard, in memory
FILES = 40  # of the damaged cache


def check(run: kit.Run, place: levels.Place) -> None:
    """Every sample once an epoch, on its node, with the bits of uncached reading; hits too."""
    run.section("The oracle")
    emulated = levels.EMULATED in place.stores
    read = FolderStore(place.paths) if emulated else next(iter(place.stores.values()))
    direct = Cache(read, place.decode, place.shape)
    cache = levels.make(run, place, read, place.room_for(SHARE), levels.PLENTY)
    for epoch in range(EPOCHS):
        cache.reset()
        seen = []
        for step in place.steps(run, epoch):
            seen += step[run.rank].tolist()
            if not np.array_equal(cache(step[run.rank]), direct(step[run.rank])):
                raise AssertionError(
                    f"cache on rank {run.rank}, epoch {epoch}: got other bits than without a cache"
                )
        require_own_samples(run, place, seen, epoch)
        levels.check_hits(run, place, cache, epoch, SHARE, True)
    run.say(f"{len(place.nodes)} shard(s); {EPOCHS} epochs: every sample once, on its node,")
    run.say("with the bits of uncached reading")
    run.say("hits: all from the store, then half from memory and the rest from disk, as predicted")
    run.plain.Barrier()
    cache.close()
    if run.rank == 0:
        check_damage(run, place)


def require_own_samples(run: kit.Run, place: levels.Place, seen: list[int], epoch: int) -> None:
    """seen: what this rank has loaded in an epoch. Collective."""
    everybody = run.plain.allgather(seen)
    got = [sorted(i for rank in ranks for i in everybody[rank]) for ranks in place.nodes]
    wanted = [[i for i in range(place.data.size) if i % run.size in ranks] for ranks in place.nodes]
    if got != wanted:
        raise AssertionError(
            f"epoch {epoch}: got other samples; wanted each exactly once, "
            "on the node of rank i mod p"
        )


def check_damage(run: kit.Run, place: levels.Place) -> None:
    """Truncated cache files and those of another data set are detected and refilled. One rank."""
    folder, files = os.path.join(place.folder, "damaged"), range(min(FILES, place.data.size))
    read = FolderStore(place.paths)

    def use(key: bytes) -> tuple[str, int]:
        disk, store_reads = DiskCache(folder, key, levels.PLENTY), 0
        for i in files:
            content = disk.get(i)
            if content is None:
                store_reads += 1
                disk.put(i, read(i))
            elif content != read(i):
                raise AssertionError(f"disk cache, file {i}: got other bytes than the store's")
        disk.close()
        return disk.found, store_reads

    use(place.key)
    data_file = os.path.join(folder, "refgf-cache.data")
    os.truncate(data_file, os.path.getsize(data_file) // 2)
    refilled = f"{use(place.key)[1]} of {len(files)} copies refilled"
    run.say(f"disk cache truncated to half: detected, {refilled}")
    use(bytes(32))
    found, store_reads = use(place.key)
    refilled = f"{store_reads} of {len(files)} copies refilled"
    run.say(f"disk cache of another data set: detected ({found}), {refilled}")
    assert use(place.key) == ("reused", 0)
