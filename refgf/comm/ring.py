"""Ring allreduce: every rank talks only to its neighbours, and all links carry the same bytes.

The vector is cut into p slices. First every slice goes once round the ring and is summed on the way
(reduce-scatter), then every finished slice goes round once more (allgather). p = 4, what each rank
sends:

               rank 0     rank 1     rank 2     rank 3
    step 0   slice 0 ->  slice 1 ->  slice 2 ->  slice 3 ->     receiver adds
    step 1   slice 3 ->  slice 0 ->  slice 1 ->  slice 2 ->     receiver adds
    step 2   slice 2 ->  slice 3 ->  slice 0 ->  slice 1 ->     receiver adds; rank r owns slice r+1
    step 3   slice 1 ->  slice 2 ->  slice 3 ->  slice 0 ->     receiver copies
    step 4   slice 0 ->  slice 1 ->  slice 2 ->  slice 3 ->     receiver copies
    step 5   slice 3 ->  slice 0 ->  slice 1 ->  slice 2 ->     receiver copies

Slice s is the left fold over ranks s, s+1, ..., s+p-1 (mod p): ((x[s] + x[s+1]) + x[s+2]) + ...
The order is part of the answer, because float addition is not associative; with a wire type every
partial sum is rounded when it is sent. All ranks end with the same bits.

Cost per rank r, empty messages included: 2(p-1) messages and 2n - |slice r+1| - |slice r+2|
elements sent; scratch ceil(n/p) elements. The ring is bandwidth-optimal (Patarasuk & Yuan
2009), about 2n elements for every p, but it pays 2(p-1) latencies.

Source: GradientFlow (Sun et al. 2019) uses a ring; the algorithm is older than deep learning.
"""

import functools

from refgf.comm.schedule import Schedule, Step, collective, local
from refgf.comm.slices import slices


def reduce_scatter(rank: int, size: int, n: int) -> Schedule:
    """p-1 steps; rank r then holds the sum of slice r+1 (mod p). Sends n - |slice r+1| elements."""
    parts = slices(n, size)
    right, left = (rank + 1) % size, (rank - 1) % size
    return [
        Step(right, parts[(rank - k) % size], left, parts[(rank - k - 1) % size], "add")
        for k in range(size - 1)
    ]


def allgather(rank: int, size: int, n: int) -> Schedule:
    """p-1 steps; rank r contributes slice r+1 (mod p). Sends n - |slice r+2| elements."""
    parts = slices(n, size)
    right, left = (rank + 1) % size, (rank - 1) % size
    return [local("finish", parts[(rank + 1) % size])] + [
        Step(right, parts[(rank + 1 - k) % size], left, parts[(rank - k) % size], "copy")
        for k in range(size - 1)
    ]


def allreduce(rank: int, size: int, n: int) -> Schedule:
    """Reduce-scatter, then allgather. 2(p-1) messages, 2n - |slice r+1| - |slice r+2| elements."""
    return reduce_scatter(rank, size, n) + allgather(rank, size, n)


# ring_allreduce(comm, *, wire=None) -> Allreduce
ring_allreduce = functools.partial(collective, algorithm=allreduce)
