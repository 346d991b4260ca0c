"""The data set of lesson 14 on a slow store, and the caches of its nodes.

place = levels.prepare(run, stack)             the data set, its file names, nodes, stores
cache = levels.make(run, place, read, ...)     an empty cache of this rank's node
levels.check_hits(run, place, cache, ...)      are the hits those that the limits imply?
"""

import contextlib
import dataclasses
import os
import shutil
from pathlib import Path

import numpy as np
from PIL import Image

import kit
from kit import memory
from lab.cache import scratch_folder
from refgf.comm.topology import nodes as nodes_of
from refgf.machine.digits import digits
from refgf.machine.folders import image_folder
from refgf.machine.images import decoder
from refgf.machine.link import parse_link
from refgf.papers.datacache import LEVELS, Cache, CacheSettings, node_cache
from refgf.papers.datacache.memory import table_bytes
from refgf.papers.datacache.shards import node_batches, node_shards
from refgf.papers.datacache.stores import FolderStore, RemoteStore, Throttled, data_set_key
from refgf.papers.jia.hierarchical import consecutive_nodes
from refgf.training.data import Dataset, shuffled

SEED = 1  # of the orders
PLENTY = 1 << 40  # bytes: no data set here reaches this limit
PICTURE_SIZE = 128  # of the files written for this lesson
COPIES = 9  # bytes of a number of a batch: as uint8, and twice as float32
EMULATED = "rate-limited reader (EMULATED)"


def estimated_bytes(options, batch: int | None = None) -> int:
    """Memory of a rank: its share of all samples is left out, which the cache checks itself."""
    images = options.batch if batch is None else batch
    return memory.process_bytes(options) + 3 * options.image_size**2 * COPIES * images


def arguments(lesson: kit.Lesson) -> None:
    add, lesson.estimate = lesson.argument, estimated_bytes
    add(
        "--data",
        type=Path,
        metavar="PATH",
        help="images as PATH/train/CLASS/*.jpg; default: the bundled digits as files",
    )
    add("--skip-bad-images", action="store_true", help="skip images that cannot be read")
    add(
        "--image-size",
        type=kit.positive,
        default=67,
        metavar="PIXELS",
        help="of the decoded samples",
    )
    add("--batch", type=kit.positive, default=8, help="images per rank and step")
    add(
        "--slow-store",
        default="200mbit,5ms",
        metavar="RATE,LATENCY",
        help="rate and latency of the emulated slow store, for each rank",
    )
    add("--ranks-per-node", type=kit.positive, metavar="K", help="treat blocks of K ranks as nodes")


@dataclasses.dataclass
class Place:
    """The data set without a fetch function, its files, and where they are.

    nodes    the ranks of each node
    folder   this node's folder for copies
    stores   {name: store}
    """

    data: Dataset
    paths: list[str]
    key: bytes
    nodes: list[list[int]]
    folder: str
    stores: dict
    rank: int

    @property
    def node(self) -> int:
        return next(i for i, ranks in enumerate(self.nodes) if self.rank in ranks)

    @property
    def leads(self) -> bool:
        return self.rank == self.nodes[self.node][0]

    @property
    def shape(self) -> tuple:
        return self.data.image_size, self.data.image_size, self.data.channels

    @property
    def shards(self) -> list[np.ndarray]:
        return node_shards(self.data.size, self.nodes)

    def steps(self, run: kit.Run, epoch: int) -> list[list[np.ndarray]]:
        """[step][rank] -> samples of an epoch, in the order of that epoch."""
        order = shuffled(self.data.size, SEED, epoch)
        return node_batches(order, self.nodes, run.options.batch * run.size)

    @property
    def decode(self):
        return decoder(self.paths, self.data.image_size, self.data.channels)

    def slots(self, share: float) -> int:
        """The number of samples in this share of the largest shard."""
        return int(share * max(map(len, self.shards)))

    def room_for(self, share: float) -> int:
        """The memory limit in bytes for `slots(share)` samples."""
        samples = self.slots(share) * int(np.prod(self.shape))
        return table_bytes(self.data.size) + samples if share else 0


def prepare(run: kit.Run, stack: contextlib.ExitStack) -> Place:
    """Rank 0 has the files. The other ranks get the names, and read only through a store."""
    run.section("The data set")
    found = None
    if run.rank == 0:
        root = run.options.data
        if root is None:
            folder = stack.enter_context(scratch_folder.folder())
            root = write_tree(folder, run.quick(150, 10**6))
        root, size, skip = str(root), run.options.image_size, run.options.skip_bad_images
        train, _ = image_folder(root, size, skip_bad_images=skip, memory_limit_bytes=0)
        paths = train.fetch.paths
        found = (dataclasses.replace(train, fetch=None), paths, data_set_key(root, paths))
    data, paths, key = run.plain.bcast(found, root=0)
    if data.size < 2 * run.size:
        raise ValueError(
            f"data set: got {data.size} images for {run.size} ranks; wanted at least two a rank; "
            "next: fewer ranks"
        )
    place = Place(data, paths, key, placement(run), "", {}, run.rank)
    note = data.note.replace(" (", "\n(")
    run.say(f"{note}\nshards of {', '.join(str(len(shard)) for shard in place.shards)} samples")
    mine = stack.enter_context(scratch_folder.folder()) if place.leads else None
    place.folder = run.plain.allgather(mine)[place.nodes[place.node][0]]
    place.stores = slow_stores(run, paths, stack)
    return place


def placement(run: kit.Run) -> list[list[int]]:
    if not run.options.ranks_per_node:
        return nodes_of(run.plain)
    nodes = consecutive_nodes(run.size, run.options.ranks_per_node)
    run.say(f"nodes, PRETENDED: {nodes}")
    return nodes


def write_tree(folder: str, count: int) -> Path:
    """Write the bundled digits as JPEG files, which have to be read and decoded."""
    source, root = digits(PICTURE_SIZE)[0], Path(folder) / "images"
    for i in range(min(count, source.size)):
        path = root / "train" / source.class_names[source.labels[i]] / f"{i:04d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(source.fetch(np.array([i]))[0]).save(path, quality=90)
    return root


def slow_stores(run: kit.Run, paths: list[str], stack: contextlib.ExitStack) -> dict:
    """The rate-limited reader if every rank can open the files; another node's folder if any."""
    found, link = {}, parse_link(run.options.slow_store)
    if all(run.plain.allgather(os.path.exists(paths[-1]))):
        found[EMULATED] = Throttled(FolderStore(paths), link)
        run.say(f"slow store: a {EMULATED} of {run.options.slow_store} for each rank")
    if len(nodes_of(run.plain)) > 1:
        remote = RemoteStore(run.plain, paths if run.rank == 0 else None)
        stack.callback(remote.close)
        found["folder of another node"], run.opaque = remote, True  # its bytes are not sent by MPI
        run.say("another store: the folder of rank 0's node, which sends the files over TCP")
        run.say("(also to ranks of its own node)")
    return found


def make(run: kit.Run, place: Place, read, memory: int = 0, disk: int = 0) -> Cache:
    """An empty cache of this node, with these limits in bytes. Collective."""
    folder = os.path.join(place.folder, "disk")
    run.plain.Barrier()
    if place.leads:
        shutil.rmtree(folder, ignore_errors=True)
    run.plain.Barrier()
    settings = CacheSettings(memory, disk, folder, place.key)
    return node_cache(
        run.plain, place.nodes, read, place.decode, place.data.size, place.shape, settings
    )


def check_hits(
    run: kit.Run, place: Place, cache: Cache, epoch: int, share: float, disk: bool
) -> dict:
    """The share of hits by level, over all ranks. Collective.

    On each node the hits must be exactly those that the limits imply.
    """
    everybody = run.plain.allgather(dict(cache.hits))
    for node, ranks in enumerate(place.nodes):
        samples = len(place.shards[node])
        memory = min(samples, place.slots(share)) if epoch else 0
        below = "disk" if disk and epoch else "store"
        wanted = dict.fromkeys(LEVELS, 0) | {"memory": memory, below: samples - memory}
        got = {level: sum(everybody[rank][level] for rank in ranks) for level in LEVELS}
        if got != wanted:
            raise AssertionError(f"node {node}, epoch {epoch}: got hits {got}; predicted {wanted}")
    return {level: sum(hits[level] for hits in everybody) / place.data.size for level in LEVELS}
