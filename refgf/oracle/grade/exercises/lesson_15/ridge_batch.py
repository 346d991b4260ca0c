"""Exercise ridge_batch(inputs, outputs, peak, bandwidth)."""

from fractions import Fraction
from math import ceil

from refgf.oracle.grade.exercises.before import Exercise, Mistake, Part
from refgf.oracle.grade.exercises.lesson_15.fully_connected import fully_connected

BETWEEN, EXACTLY = "a batch between 2 and 200", "a batch that is exactly at the ridge point"
ENDS = "one image is enough, no batch is large enough"


def exact_batch(inputs, outputs, ratio, activations=True):
    """The batch at which the layer has `ratio` flops a byte, a fraction; None: it never has."""
    ratio = Fraction(ratio)
    weights, moved = inputs * outputs, (inputs + outputs) * activations
    per_image = 2 * weights - 4 * ratio * moved
    return 4 * ratio * weights / per_image if per_image > 0 else None


def ridge_batch(inputs, outputs, peak, bandwidth):
    batch = exact_batch(inputs, outputs, Fraction(peak) / Fraction(bandwidth))
    return batch and ceil(batch)


def beyond_the_ridge(inputs, outputs, peak, bandwidth):
    batch = exact_batch(inputs, outputs, Fraction(peak) / Fraction(bandwidth))
    return batch and int(batch) + 1


def last_of_memory(inputs, outputs, peak, bandwidth):
    batch = ridge_batch(inputs, outputs, peak, bandwidth)
    return batch and batch - 1


def weights_only(inputs, outputs, peak, bandwidth):
    ratio = Fraction(peak) / Fraction(bandwidth)
    return ceil(exact_batch(inputs, outputs, ratio, activations=False))


def not_rounded_up(inputs, outputs, peak, bandwidth):
    batch = exact_batch(inputs, outputs, Fraction(peak) / Fraction(bandwidth))
    return batch and float(batch)


def bandwidth_over_peak(inputs, outputs, peak, bandwidth):
    return ridge_batch(inputs, outputs, bandwidth, peak)


def flops_a_byte(batch, inputs, outputs):
    flops, nbytes = fully_connected(batch, inputs, outputs)
    return flops / nbytes


def between(random):
    """The ridge is half-way between two batches, so roundings do not matter."""
    rows = [(8, 8, 1.25e9, 1e9)]
    for largest in (40, 200):
        inputs, outputs = random.integers(300, 900, 2).tolist()
        batch = int(random.integers(10, largest))
        a, b = (flops_a_byte(n, inputs, outputs) for n in (batch - 1, batch))
        rows.append((inputs, outputs, (a + b) / 2 * 2.0**30, 2.0**30))
    return rows


def at_the_ridge(random):
    """Layers of 6, 8 or 12 times the ridge's flops a byte, at 6, 4 or 3 times as many images."""
    ratio, times = 2 ** int(random.integers(1, 6)), int(random.choice([6, 8, 12]))
    drawn = (times * ratio, times * ratio, ratio * 2.0**30, 2.0**30)
    return [(8, 8, 2.0**30, 2.0**30), drawn, (16, 48, 4.0, 1.0)]


def ends(random):
    """Where no batch of 1000 images is large enough, none is, so that nobody searches for ever."""
    rows = [(64, 64, 2.0**30, 2.0**32), (8, 8, 2.0**31, 2.0**30), (16, 20, 2.0**34, 2.0**30)]
    return [*rows, (*random.integers(64, 999, 2).tolist(), 2.0**30, 2.0**32)]


BATCH = Exercise(
    "ridge_batch",
    ridge_batch,
    (Part(BETWEEN, 2, between), Part(EXACTLY, 1, at_the_ridge), Part(ENDS, 1, ends)),
    (
        Mistake(
            "at the ridge point itself flops count as the limit: >=, not >",
            beyond_the_ridge,
            (EXACTLY,),
        ),
        Mistake(
            "you return the last batch that memory limits; the next one is wanted",
            last_of_memory,
            (BETWEEN, EXACTLY, ENDS),
        ),
        Mistake(
            "you count the weights only, but inputs and outputs are read and written too",
            weights_only,
            (BETWEEN, EXACTLY, ENDS),
        ),
        Mistake("a batch is a whole number: round up", not_rounded_up, (BETWEEN, ENDS)),
        Mistake(
            "you have the ridge point upside down: it is the peak over the bandwidth",
            bandwidth_over_peak,
            (BETWEEN, EXACTLY, ENDS),
        ),
    ),
)
