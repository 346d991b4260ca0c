"""Direct allreduce: the owner of a slice receives it from everybody and adds in rank order 0, 1, ..., p-1.

    round t = 1..p-1    rank r sends slice r+t to rank r+t, and puts aside slice r of rank r-t
    then                rank r sums what it put aside and its own, in rank order
    round t = 1..p-1    rank r sends the finished slice r to rank r+t, and copies slice r-t of rank r-t

The order of summation does not depend on how the vector was cut, so the bits are the same for every theta, packing
and slicing: lazy equals eager on any data. With a 16-bit wire type only inputs and results are rounded, so that the
error does not grow with p. The price: p-1 partners a rank instead of one, and n elements of scratch.

Cost per rank r, empty messages included: 2(p-1) messages, (n - |slice r|) + (p-1) |slice r| elements sent.
"""

from refgf.comm.schedule import Schedule, Step, local
from refgf.comm.slices import slices


def allreduce(rank: int, size: int, n: int) -> Schedule:
    """2(p-1) messages, n + (p-2) |slice r| elements sent by rank r."""
    parts = slices(n, size)
    own = parts[rank]
    others = [((rank + t) % size, (rank - t) % size) for t in range(1, size)]
    collect = [Step(to, parts[to], sender, own, "keep") for to, sender in others]
    publish = [Step(to, own, sender, parts[sender], "copy") for to, sender in others]
    return collect + [local("fold", own), local("finish", own)] + publish
