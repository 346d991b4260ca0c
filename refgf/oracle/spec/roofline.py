"""Lesson 15: the roofline, and the batch from which flops limit a layer. It has no statement."""

from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np

from refgf.oracle.spec.exercise import Arguments, Exercise

# ---- fully_connected(batch, inputs, outputs): given in the starter ----


def fully_connected(batch: int, inputs: int, outputs: int) -> tuple[int, int]:
    """-> (flops, bytes)"""
    flops = 2 * batch * inputs * outputs
    return flops, 4 * (batch * (inputs + outputs) + inputs * outputs)


def ones(random: np.random.Generator) -> list[Arguments]:
    return [(1, 64, 32), (8, 64, 1), (1, *random.integers(2, 500, 2).tolist())]


LAYER_15 = Exercise("15.1", fully_connected)
LAYER_15.part("several images", 1, lambda random: [tuple(random.integers(2, 500, 3).tolist())])
LAYER_15.part("one image, one output", 1, ones)


# ---- roofline(flops, nbytes, peak, bandwidth) ----

FLOPS, MEMORY = "flops limit the kernel", "memory limits the kernel"

RIDGE, NO_FLOPS = "exactly at the ridge point", "a kernel without flops"


def roofline(
    flops: float, nbytes: float, peak: float, bandwidth: float
) -> tuple[float, float, str]:
    compute_s, memory_s = flops / peak, nbytes / bandwidth
    seconds = max(compute_s, memory_s)
    return seconds, flops / seconds, "flops" if compute_s >= memory_s else "memory"


PEAK, BANDWIDTH = 8e12, 1e12  # the ridge point is at 8 flops a byte


def kernels(random: np.random.Generator, *flops_a_byte: float) -> list[Arguments]:
    """As many kernels, each of a random number of bytes."""
    rows = zip(random.integers(10**6, 10**8, len(flops_a_byte)).tolist(), flops_a_byte)
    return [(round(nbytes * x), nbytes, PEAK, BANDWIDTH) for nbytes, x in rows]


def limited_by_flops(random: np.random.Generator) -> list[Arguments]:
    return kernels(random, 9, 12, float(random.uniform(10, 200)))


def limited_by_memory(random: np.random.Generator) -> list[Arguments]:
    return kernels(random, 0.25, 7, float(random.uniform(1.5, 6)))


def kernels_at_the_ridge(random: np.random.Generator) -> list[Arguments]:
    both = 1, int(random.integers(3, 999))
    return [(2**20 * k, 2**17 * k, 2.0**43, 2.0**40) for k in both]


def no_flops(random: np.random.Generator) -> list[Arguments]:
    return [(0, n, PEAK, BANDWIDTH) for n in (10**6, int(random.integers(1, 10**8)))]


# the operations may be in another order: a few roundings of 1e-16
ROOFLINE_15 = Exercise("15.2", roofline, relative=1e-12)
ROOFLINE_15.part(FLOPS, 2, limited_by_flops)
ROOFLINE_15.part(MEMORY, 2, limited_by_memory)
ROOFLINE_15.part(RIDGE, 1, kernels_at_the_ridge)
ROOFLINE_15.part(NO_FLOPS, 1, no_flops)


@ROOFLINE_15.mistake(
    "you add both times, but a kernel computes while it reads and writes: the longer time counts"
)
def one_after_the_other(flops, nbytes, peak, bandwidth):
    seconds = flops / peak + nbytes / bandwidth
    return seconds, flops / seconds, roofline(flops, nbytes, peak, bandwidth)[2]


@ROOFLINE_15.mistake("you take the shorter time; the slower resource limits the kernel")
def the_shorter_time(flops, nbytes, peak, bandwidth):
    seconds = min(flops / peak, nbytes / bandwidth)
    return seconds, flops / seconds if seconds else 0.0, roofline(flops, nbytes, peak, bandwidth)[2]


@ROOFLINE_15.mistake("your flop/s are the peak even where memory limits the kernel")
def always_peak(flops, nbytes, peak, bandwidth):
    seconds, _, limit = roofline(flops, nbytes, peak, bandwidth)
    return seconds, peak, limit


@ROOFLINE_15.mistake("you return bytes per second; wanted flop/s")
def bytes_a_second(flops, nbytes, peak, bandwidth):
    seconds, _, limit = roofline(flops, nbytes, peak, bandwidth)
    return seconds, nbytes / seconds, limit


@ROOFLINE_15.mistake(
    "you compare flops with bytes; compare their times, at the peak and at the bandwidth"
)
def more_flops_than_bytes(flops, nbytes, peak, bandwidth):
    seconds, rate, _ = roofline(flops, nbytes, peak, bandwidth)
    return seconds, rate, "flops" if flops >= nbytes else "memory"


@ROOFLINE_15.mistake('where both take equally long, wanted "flops"')
def memory_at_the_ridge(flops, nbytes, peak, bandwidth):
    seconds, rate, _ = roofline(flops, nbytes, peak, bandwidth)
    return seconds, rate, "flops" if flops / peak > nbytes / bandwidth else "memory"


# ---- ridge_batch(inputs, outputs, peak, bandwidth) ----

BETWEEN, EXACTLY = "a batch between 2 and 200", "a batch that is exactly at the ridge point"

ENDS = "one image is enough, 1000 are, or no batch is"


def exact_batch(
    inputs: int, outputs: int, ratio: Fraction, activations: bool = True
) -> Fraction | None:
    """The batch at which the layer has `ratio` flops a byte, a fraction; None: it never has."""
    weights, moved = inputs * outputs, (inputs + outputs) * activations
    per_image = 2 * weights - 4 * ratio * moved
    return 4 * ratio * weights / per_image if per_image > 0 else None


def ridge_batch(inputs: int, outputs: int, peak: float, bandwidth: float) -> int | None:
    batch = exact_batch(inputs, outputs, Fraction(peak) / Fraction(bandwidth))
    return None if batch is None else ceil(batch)


def flops_a_byte(batch: int, inputs: int, outputs: int) -> float:
    flops, nbytes = fully_connected(batch, inputs, outputs)
    return flops / nbytes


def between(random: np.random.Generator) -> list[Arguments]:
    """The ridge is half-way between two batches, so roundings do not matter."""
    rows = [(8, 8, 1.25e9, 1e9)]
    for largest in (40, 200):
        inputs, outputs = random.integers(300, 900, 2).tolist()
        rows.append(layer(inputs, outputs, int(random.integers(10, largest))))
    return rows


def layer(inputs: int, outputs: int, batch: int) -> tuple[Any, ...]:
    """A case whose answer is this batch."""
    a, b = (flops_a_byte(n, inputs, outputs) for n in (batch - 1, batch))
    return inputs, outputs, (a + b) / 2 * 2.0**30, 2.0**30


def at_the_ridge(random: np.random.Generator) -> list[Arguments]:
    """Layers of 6, 8 or 12 times the ridge's flops a byte, at 6, 4 or 3 times as many images."""
    ratio, times = 2 ** int(random.integers(1, 6)), int(random.choice([6, 8, 12]))
    drawn = (times * ratio, times * ratio, ratio * 2.0**30, 2.0**30)
    return [(8, 8, 2.0**30, 2.0**30), drawn, (16, 48, 4.0, 1.0)]


def ends(random: np.random.Generator) -> list[Arguments]:
    """Where no batch of 1000 images is large enough, none is, so that nobody searches for ever."""
    rows = [(64, 64, 2.0**30, 2.0**32), (8, 8, 2.0**31, 2.0**30), (16, 20, 2.0**34, 2.0**30)]
    return [*rows, layer(8, 8, 1000), (*random.integers(64, 999, 2).tolist(), 2.0**30, 2.0**32)]


BATCH_15 = Exercise("15.3", ridge_batch)
BATCH_15.part(BETWEEN, 2, between)
BATCH_15.part(EXACTLY, 1, at_the_ridge)
BATCH_15.part(ENDS, 1, ends)


@BATCH_15.mistake("at the ridge point itself flops count as the limit: >=, not >")
def beyond_the_ridge(inputs, outputs, peak, bandwidth):
    batch = exact_batch(inputs, outputs, Fraction(peak) / Fraction(bandwidth))
    return batch and int(batch) + 1


@BATCH_15.mistake("you return the last batch that memory limits; the next one is wanted")
def last_of_memory(inputs, outputs, peak, bandwidth):
    batch = ridge_batch(inputs, outputs, peak, bandwidth)
    return batch and batch - 1


@BATCH_15.mistake("you count the weights only, but inputs and outputs are read and written too")
def weights_only(inputs, outputs, peak, bandwidth):
    ratio = Fraction(peak) / Fraction(bandwidth)
    batch = exact_batch(inputs, outputs, ratio, activations=False)
    return None if batch is None else ceil(batch)


@BATCH_15.mistake("a batch is a whole number: round up")
def not_rounded_up(inputs, outputs, peak, bandwidth):
    batch = exact_batch(inputs, outputs, Fraction(peak) / Fraction(bandwidth))
    return batch and float(batch)


@BATCH_15.mistake("you have the ridge point upside down: it is the peak over the bandwidth")
def bandwidth_over_peak(inputs, outputs, peak, bandwidth):
    return ridge_batch(inputs, outputs, bandwidth, peak)
