"""Tree allreduce: reduce to rank 0 along a binomial tree, then broadcast back along it.

               rank 0    1    2    3    4    5        p = 6
    round 0         0 <- 1    2 <- 3    4 <- 5        distance 1, receiver adds
    round 1         0 <------ 2         4             distance 2
    round 2         0 <---------------- 4             distance 4
    rounds 3 to 5   the same messages backwards, the receiver copies

Rank 0 adds its children in the order 1, 2, 4, ..., each of which has added its own before; the sum is formed once, on
rank 0, so that all ranks end with the same bits. Without a wire type, and but for some p (5, 9, ...), these are the
bits of `doubling`.

Cost, empty messages included, all messages n elements: rank r sends one up (rank 0 none) and one down to each of its
children r+1, r+2, r+4, ... (below p, at distances below r's lowest set bit), so 2(p-1) messages on all ranks together;
2 ceil(log2 p) of them one after the other on rank 0. Scratch n elements. Half the ranks send only once, and most of the
time only few links are busy: good for short vectors and many ranks, bad for long ones.

Besch & Pohl (1995) sum gradients on MIMD computers along a "distributed logarithmic tree". Only the abstract is at
hand: that it is binomial, and rooted at rank 0, is this project's reading.
"""

from refgf.comm.schedule import Schedule, local, receive, send, way_back


def reduce(rank: int, size: int, n: int) -> Schedule:
    """The sum of all ranks' vectors is on rank 0 afterwards; the other ranks hold partial sums."""
    everything, distance, steps = slice(0, n), 1, []
    while distance < size:
        if rank & distance:
            return steps + [send(everything, rank - distance)]
        if rank + distance < size:
            steps.append(receive(everything, rank + distance, "add"))
        distance *= 2
    return steps + [local("finish", everything)]


def broadcast(rank: int, size: int, n: int) -> Schedule:
    """All ranks hold rank 0's vector afterwards."""
    return way_back(reduce(rank, size, n))


def allreduce(rank: int, size: int, n: int) -> Schedule:
    """Up, then down: 1 message up (but on rank 0) and one down to each child."""
    return reduce(rank, size, n) + broadcast(rank, size, n)
