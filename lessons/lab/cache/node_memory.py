"""Lesson 14: the memory that the cache of each node uses, by its own count and by the kernel's."""

import contextlib
import os

import kit
from lab.cache import levels

KINDS = {  # keys of a row, and the table's columns
    "limit": "limit",
    "file": "file",
    "Pss": "each page once (Pss)",
    "Rss": "once for each rank (Rss)",
}


def measure(run: kit.Run, place: levels.Place) -> list[dict]:
    """A row for each node, in bytes; AssertionError if a node uses more than its limit."""
    run.section("Memory used by a node")
    limit, read = place.room_for(1.0), next(iter(place.stores.values()))
    cache = levels.make(run, place, read, limit)
    for step in place.steps(run, 0):  # fills it
        cache(step[run.rank])
    run.plain.Barrier()
    cache(place.shards[place.node])  # every rank reads all samples of its node
    run.plain.Barrier()
    everybody = run.plain.allgather((os.getpid(), mapped_bytes(), cache.memory.nbytes))
    rows = [row_of([everybody[rank] for rank in ranks], limit) for ranks in place.nodes]
    cache.close()
    run.table(
        ["node", "ranks", *KINDS.values()],
        [
            [i, row["ranks"], *(kit.number_of_bytes(row[kind]) for kind in KINDS)]
            for i, row in enumerate(rows)
        ],
    )
    run.say("Pss and Rss are the kernel's counts: Pss is the memory in use; copies would take Rss")
    return rows


def row_of(ranks: list[tuple], limit: int) -> dict:
    """ranks: (process, mapped bytes, bytes of the shared file) of each rank of a node."""
    processes = {process: mapped for process, mapped, _ in ranks}  # threads are one process
    sums = {kind: sum(mapped[kind] for mapped in processes.values()) for kind in ("Pss", "Rss")}
    row = {"limit": limit, "file": ranks[0][2], "ranks": len(ranks)} | sums
    if row["file"] > limit:
        raise AssertionError(f"memory level: got {row['file']} bytes; wanted at most {limit}")
    return row


def mapped_bytes() -> dict:
    """{"Rss": ..., "Pss": ...} of this process's cache mappings, from /proc; zeros if none."""
    found, inside = {"Rss": 0, "Pss": 0}, False
    with contextlib.suppress(OSError), open("/proc/self/smaps") as file:
        for line in file:
            kind = line.split(":")[0]
            if "-" in kind and " " in kind:  # a mapping's first line: addresses, rights, name
                inside = "refgf_cache_" in line
            elif inside and kind in found:
                found[kind] += 1024 * int(line.split()[1])
    return found
