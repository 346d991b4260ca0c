"""Tree allreduce: reduce to rank 0 along a binomial tree, then broadcast along the same tree.

               rank 0    1    2    3    4    5        p = 6
    round 0         0 <- 1    2 <- 3    4 <- 5        distance 1, receiver adds
    round 1         0 <------ 2         4             distance 2
    round 2         0 <---------------- 4             distance 4
    rounds 3 to 5   the same messages reversed, receiver copies

Rank 0 adds its children in the order 1, 2, 4, ..., and each child has added its own before. The sum
is formed once, on rank 0, so all ranks end with the same bits. Without a wire type, and except for
some p (5, 9, ...), these are the bits of recursive doubling.

Cost, empty messages included, all messages n elements: rank r sends one message up (rank 0 none)
and one down to each of its children r+1, r+2, r+4, ... (below p, at distances below r's lowest set
bit). All ranks together send 2(p-1) messages; 2 ceil(log2 p) of them follow each other on rank 0.
Scratch n elements. Half of the ranks send only once, and few links are busy at a time: the tree is
fast for short vectors and many ranks, slow for long vectors.

Source: the abstract of Besch & Pohl (1995) names a "distributed logarithmic tree" on MIMD
computers. That it sums gradients, is binomial and is rooted at rank 0 is inferred.
"""

from refgf.comm.compose import receive, reversed_schedule, send
from refgf.comm.schedule import Schedule, local


def reduce(rank: int, size: int, n: int) -> Schedule:
    """Rank 0 then holds the sum, the other ranks partial sums."""
    everything, distance, steps = slice(0, n), 1, Schedule()
    while distance < size:
        if rank & distance:
            return steps + [send(everything, rank - distance)]
        if rank + distance < size:
            steps.append(receive(everything, rank + distance, "add"))
        distance *= 2
    return steps + [local("finish", everything)]


def broadcast(rank: int, size: int, n: int) -> Schedule:
    """All ranks then hold rank 0's vector."""
    return reversed_schedule(reduce(rank, size, n))


def allreduce(rank: int, size: int, n: int) -> Schedule:
    """Reduce, then broadcast: 1 message up (none from rank 0) and one down to each child."""
    return reduce(rank, size, n) + broadcast(rank, size, n)
