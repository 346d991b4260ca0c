"""Direct allreduce: the owner of a slice receives it from all ranks and adds in rank order.

    round t = 1..p-1    rank r sends slice r+t to rank r+t, and buffers slice r of rank r-t
    then                rank r sums the buffered slices and its own in the order of ranks 0..p-1
    round t = 1..p-1    rank r sends the finished slice r to rank r+t, and copies slice r-t

The order of summation does not depend on how the vector was cut, so the bits are the same for every
theta, packing and slicing: lazy equals eager on any data. With a 16-bit wire type only inputs and
results are rounded, so the error does not grow with p. In exchange every rank has p-1 partners
instead of one, and stores p-1 slices.

Cost per rank r, empty messages included: 2(p-1) messages, (n - |slice r|) + (p-1) |slice r|
elements sent, scratch p |slice r| elements.
"""

import functools

from refgf.comm.schedule import Schedule, Step, collective, local
from refgf.comm.slices import slices


def allreduce(rank: int, size: int, n: int) -> Schedule:
    """2(p-1) messages, n + (p-2) |slice r| elements sent by rank r."""
    parts = slices(n, size)
    own = parts[rank]
    others = [((rank + t) % size, (rank - t) % size) for t in range(1, size)]
    collect = [Step(to, parts[to], sender, own, "buffer") for to, sender in others]
    publish = [Step(to, own, sender, parts[sender], "copy") for to, sender in others]
    return collect + [local("reduce", own), local("finish", own)] + publish


# direct_allreduce(comm, *, wire=None) -> Allreduce
direct_allreduce = functools.partial(collective, algorithm=allreduce)
