"""Answers to lessons/student/01.py: full marks."""

import numpy as np


def slices(n, p):
    length, longer = divmod(n, p)
    stops = [(i + 1) * length + min(i + 1, longer) for i in range(p)]
    return list(zip([0, *stops[:-1]], stops))


def ring_cost(n, p, rank):
    if p == 1:
        return 0, 0
    lengths = [stop - start for start, stop in slices(n, p)]
    return 2 * (p - 1), 2 * n - lengths[(rank + 1) % p] - lengths[(rank + 2) % p]


def allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    bounds, right, left = slices(x.size, size), (rank + 1) % size, (rank - 1) % size
    for first in (rank, rank + 1):
        for t in range(size - 1):
            sent, (start, stop) = bounds[(first - t) % size], bounds[(first - t - 1) % size]
            incoming = np.empty(stop - start, x.dtype)
            comm.Sendrecv(x[slice(*sent)], right, 0, incoming, left, 0)
            x[start:stop] = incoming + x[start:stop] if first == rank else incoming


def ring_seconds(nbytes, p, alpha, beta):
    return 2 * (p - 1) * (alpha + beta * nbytes / p)
