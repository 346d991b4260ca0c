"""Allreduce in about log2 p rounds: recursive doubling for short vectors, halving-doubling for longer ones.

Both pair every rank with the one whose number differs in one bit. q = 2**R ranks take part, the largest power of two
that is not above p; each of the e = p - q ranks 1, 3, ..., 2e-1 first hands its vector to the rank before it, and gets
the sum from there in the end. p = 6, q = 4, e = 2:

                rank       0       1       2       3       4       5
    extra                     <- all          <- all                    receiver adds
    number                 0               1               2       3
    round 0                |_______________|               |_______|    partners differ in bit 0
    round 1                |_______________________________|            0 with 2, 1 with 3: partners differ in bit 1
                                           |_______________________|
    extra                     all ->          all ->                    receiver copies

Recursive doubling: in a round both partners send everything and both add. That the two hold the same bits afterwards
rests on a + b = b + a, which floating-point addition keeps (a + (b + c) = (a + b) + c it does not). With a wire type
each partner must round its own side as well, or a + round(b) would meet round(a) + b.

Halving-doubling (Rabenseifner 2004): in a round each partner keeps one half of what it holds, sends the other half and
adds; after R rounds it owns one of q slices. Then the same messages go backwards, with finished sums, copied.
The first, largest halves go to the nearest rank, which is often on the same node.

Both form the same sums in the same order, so the bits are the same for either: ((x0+x1) + (x2+x3)) + ... over the
participants. Cost of a participant, empty messages included, n elements (B_j: what it holds after round j):

    recursive doubling    R messages, R n elements                                         scratch n
    halving-doubling      2R messages, n - |B_R| + |B_1| + ... + |B_R| elements            scratch ceil(n/2)

and one message of n elements more (scratch n) on ranks 0, 2, ..., 2e-2; ranks 1, 3, ..., 2e-1 send just one of n elements. If p
= q divides n, halving-doubling sends 2 n (p-1)/p elements, as few as the ring does.

Source: Thakur, Rabenseifner, Gropp 2005, whose handling of other p than powers of two this is.
"""

from refgf.comm.schedule import Schedule, Step, local, receive, send, way_back
from refgf.comm.slices import slices


def recursive_doubling(rank: int, size: int, n: int) -> Schedule:
    """Everything, R times: R messages (and two more in a row for p other than powers of two) of n elements."""
    everything = slice(0, n)
    return _with_extras(rank, size, n, lambda number: [
        step
        for bit in range(_rounds(size))
        for step in _exchange(_rank(number ^ (1 << bit), size), everything, everything)
    ] + [local("finish", everything)])  # fmt: skip


def halving_doubling(rank: int, size: int, n: int) -> Schedule:
    """Reduce-scatter by halving, allgather by doubling: 2R messages (and two more) of n/2, n/4, ... elements."""

    def participant(number: int) -> Schedule:
        halving, own = _halving(number, size, n)
        return halving + [local("finish", own)] + way_back(halving)

    return _with_extras(rank, size, n, participant)


def _halving(number: int, size: int, n: int) -> tuple[Schedule, slice]:
    """The R rounds of the reduce-scatter, and the slice that this participant owns after them."""
    bounds = [part.start for part in slices(n, 2 ** _rounds(size))] + [n]
    first, last, steps = 0, len(bounds) - 1, []  # it holds bounds[first] .. bounds[last]
    for bit in range(_rounds(size)):
        middle = (first + last) // 2
        lower, upper = slice(bounds[first], bounds[middle]), slice(bounds[middle], bounds[last])
        partner = _rank(number ^ (1 << bit), size)
        if number >> bit & 1:
            steps += _exchange(partner, lower, upper)
            first = middle
        else:
            steps += _exchange(partner, upper, lower)
            last = middle
    return steps, slice(bounds[first], bounds[last])


def _exchange(partner: int, give: slice, keep: slice) -> Schedule:
    """Send `give`, receive and add `keep`, whose own side has been rounded as the partner's is."""
    return [local("finish", keep), Step(partner, give, partner, keep, "add")]


def _with_extras(rank: int, size: int, n: int, participant) -> Schedule:
    """`participant(number)` for the ranks that take part, between the messages with those that are too many."""
    everything, pairs = slice(0, n), 2 * _extras(size)
    if rank >= pairs:
        return participant(rank - pairs // 2)
    if rank % 2:
        return [send(everything, rank - 1), receive(everything, rank - 1, "copy")]
    return [receive(everything, rank + 1, "add"), *participant(rank // 2), send(everything, rank + 1)]


def _rounds(size: int) -> int:
    """R = floor(log2 p)."""
    return size.bit_length() - 1


def _extras(size: int) -> int:
    """e = p - 2**R."""
    return size - 2 ** _rounds(size)


def _rank(number: int, size: int) -> int:
    """The rank of participant `number`: 0, 2, ..., 2e-2, and then 2e, 2e+1, ..., p-1."""
    return number + min(number, _extras(size))
