"""Lesson 14: a training through the cache, and how long its steps wait for their images.

epochs, hash = train(comm, data, nodes, Settings(batch=64, depth=1))
found = compare(run, place)        on the slow store: without a cache, with one, and with prefetch
"""

import dataclasses
import time
from functools import partial
from types import ModuleType

import numpy as np

import kit
from lab.cache import levels
from refgf.machine.prefetch import Prefetch
from refgf.nn.alexnet import SMALLEST_IMAGE, AlexNet
from refgf.nn.workspace import Workspace
from refgf.papers.datacache.shards import shard_batches
from refgf.training.data import Dataset
from refgf.training.gradientflow import GradientFlow
from refgf.training.sgd import MomentumSGD
from refgf.training.step import replica

RATE, WIDTH = 0.02, 1 / 8
TRAININGS = 3  # of each loader, in turn
LOADERS = {  # name: share of the shard that memory may hold, batches loaded ahead
    "no cache": (0.0, 0),
    "memory": (1.0, 0),
    "memory, prefetch": (1.0, 1),
}


@dataclasses.dataclass(frozen=True)
class Settings:
    """batch: of all ranks. depth: batches that a thread loads ahead; 0: no thread."""

    batch: int
    depth: int = 0
    epochs: int = 2
    seed: int = levels.SEED


def train(
    comm, data: Dataset, nodes: list[list[int]], settings: Settings, xp: ModuleType = np
) -> tuple[list, str]:
    """Train a small AlexNet from scratch: ([seconds and waited_s of this rank's epochs], hash).

    The hash is that of the parameters, alike on all ranks. Collective.
    """
    rank, epochs = comm.Get_rank(), []
    shape, how = (data.num_classes, data.image_size, WIDTH), {"channels": data.channels}
    network = AlexNet(*shape, dropout=0, workspace=Workspace(xp), **how)
    model = replica(network, partial(MomentumSGD, momentum=0.9), seed=settings.seed)
    with GradientFlow(comm, model) as flow:
        for epoch in range(settings.epochs):
            batches = shard_batches(data, settings.batch, epoch, settings.seed, rank, nodes)
            flow.require_same_parameters()  # all ranks start the epoch together
            start_s = time.perf_counter()
            with Prefetch(batches, settings.depth) as loaded:
                for images, labels, global_batch in loaded:
                    flow.step(images, labels, global_batch, RATE)
            took_s = time.perf_counter() - start_s
            epochs.append({"seconds": took_s, "waited_s": loaded.waited_s})
        return epochs, flow.require_same_parameters()


def slowest(run: kit.Run, trainings: list[list[dict]]) -> list[dict]:
    """The Timings of each epoch over several trainings of this rank. Collective."""
    return [
        {kind: run.slowest([epoch[kind] for epoch in same]) for kind in same[0]}
        for same in zip(*trainings, strict=True)
    ]


def compare(run: kit.Run, place: levels.Place) -> dict:
    """{loader: its epochs}, Timings of the slowest rank and of the rank that waited most.

    AssertionError unless all loaders give the same parameters, bit for bit. {} for images smaller
    than AlexNet takes. Collective.
    """
    run.section("Training through the cache")
    if place.data.image_size < SMALLEST_IMAGE:
        run.say(f"left out: AlexNet needs images of at least {SMALLEST_IMAGE} pixels")
        return {}
    if run.on_gpu:
        run.say("This training computes on the GPU; stores and caches are the processor's.")
    store = next(iter(place.stores))
    settings = Settings(run.options.batch * run.size)
    mine, hashes, table = {name: [] for name in LOADERS}, {}, []
    for number in range(run.quick(1, TRAININGS)):
        for name, (share, depth) in LOADERS.items():
            cache = levels.make(run, place, place.stores[store], place.room_for(share))
            data = dataclasses.replace(place.data, fetch=cache)
            how = dataclasses.replace(settings, depth=depth)
            epochs, hashes[name, number] = train(run.comm, data, place.nodes, how, run.xp)
            mine[name].append(epochs)
            run.plain.Barrier()
            cache.close()
    found = {name: slowest(run, trainings) for name, trainings in mine.items()}
    for name, epochs in found.items():
        times = (epoch[kind].median_s for epoch in epochs for kind in ("seconds", "waited_s"))
        table.append([name, *map(kit.seconds, times)])
    if len(set(hashes.values())) > 1:
        raise AssertionError(f"training: got parameters {hashes}; wanted the same with every cache")
    heads = [f"epoch {e + 1}{what}" for e in range(settings.epochs) for what in ("", ", waiting")]
    run.table(["loader", *heads], table)
    run.say(f"store: {store}; waiting: for images, on the rank that waits most")
    run.say("the same parameters after every one of these trainings, bit for bit")
    return found
