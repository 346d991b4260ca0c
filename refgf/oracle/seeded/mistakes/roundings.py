"""Mistakes that parameters which are powers of two hide: a factor that is rounded elsewhere."""

import numpy as np

from refgf.oracle.definitions import (
    daso_phases,
    dropout,
    heat_phases,
)
from refgf.oracle.seeded.mistakes.registry import mistake


def float32(value):
    return float(np.float32(value))


@mistake("N7", "dropout", "the rate is rounded to float32")
def dropout_rounded(x, kept, rate):
    return dropout(x, kept, float32(rate))


def rounded_up(largest):
    """The next power of two: what halves of it are, a bit shift would take."""
    return 1 << (largest - 1).bit_length() if largest > 0 else largest


@mistake("A9", "daso_phases", "the largest B becomes a power of two")
def daso_power_of_two(losses, epochs, warmup, cooldown, largest=8, threshold=0.05, patience=2):
    return daso_phases(losses, epochs, warmup, cooldown, rounded_up(largest), threshold, patience)


@mistake("A19", "heat_phases", "the largest B becomes a power of two")
def heat_power_of_two(losses, epochs, warmup, cooldown, largest=8, threshold=0.05, patience=2):
    return heat_phases(losses, epochs, warmup, cooldown, rounded_up(largest), threshold, patience)
