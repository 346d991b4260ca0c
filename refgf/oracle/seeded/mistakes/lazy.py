"""Mistakes in exact sums and bounds."""

import numpy as np

from refgf.oracle.seeded.mistakes.registry import mistake


@mistake("S1", "exact_sum", "summed in float64, term by term")
def sum_in_float64(xs):
    with np.errstate(over="ignore", invalid="ignore"):
        return np.sum(np.asarray(xs, np.float64), axis=0)


@mistake("S2", "summation_bound", "a bound without the roundings of the wire")
def bound_without_wire(xs, wire=None):
    u, p = np.finfo(xs[0].dtype).eps / 2, len(xs)
    return (p - 1) * u / (1 - (p - 1) * u) * np.abs(np.asarray(xs, np.float64)).sum(axis=0)
