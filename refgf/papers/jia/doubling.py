"""Allreduce in about log2 p rounds: recursive doubling (short vectors) and halving-doubling.

In a round every rank is paired with the rank whose number differs in one bit. q = 2**R ranks take
part, the largest power of two up to p. Each of the e = p - q extra ranks 1, 3, ..., 2e-1 first
sends its vector to the rank before it, and receives the sum from there at the end. p = 6, q = 4,
e = 2:

                rank       0       1       2       3       4       5
    extra                     <- all          <- all                    receiver adds
    number                 0               1               2       3
    round 0                |_______________|               |_______|    numbers differ in bit 0
    round 1                |_______________________________|            0 with 2, 1 with 3: bit 1
                                           |_______________________|
    extra                     all ->          all ->                    receiver copies

Recursive doubling: in a round both partners send all elements, and both add. They hold the same
bits afterwards because floating-point addition is commutative (it is not associative). With a wire
type each partner must round its own side too, otherwise a + round(b) would meet round(a) + b.

Halving-doubling (Rabenseifner 2004): in a round each partner owns one half of what it holds, sends
the other half and adds; after R rounds it owns one of q slices. Then the same messages are
reversed, with finished sums that are copied. The first, largest halves go to the nearest rank,
which is often on the same node.

Both form the same sums in the same order, so the bits are equal: ((x0+x1) + (x2+x3)) + ... over the
participants. Cost of a participant with n elements, empty messages included (B_j: the elements that
it holds after round j):

    recursive doubling    R messages, R n elements                                 scratch n
    halving-doubling      2R messages, n - |B_R| + |B_1| + ... + |B_R| elements    scratch ceil(n/2)

and one more message of n elements (scratch n) on ranks 0, 2, ..., 2e-2. Ranks 1, 3, ..., 2e-1 send
one message of n elements. If p = q divides n, halving-doubling sends 2 n (p-1)/p elements, as few
as the ring.

Source: Thakur, Rabenseifner, Gropp 2005, and MPICH, which is their code (read, not copied), for q
ranks. For other p, MPICH does it the other way round: of each pair the even rank sends to the rank
after it and receives the sum at the end. The odd ranks are the extra ones here so that the lower
rank adds, as in `tree`: chosen. Without a wire type the bits are equal, with one they are not. The
oracle accepts both (oracle/SPEC.md, H2).
"""

from refgf.comm.compose import receive, reversed_schedule, send
from refgf.comm.schedule import Schedule, Step, local
from refgf.comm.slices import slices


def recursive_doubling(rank: int, size: int, n: int) -> Schedule:
    """R messages of n elements, and two more in a row if p is not a power of two."""
    everything = slice(0, n)

    def participant(number: int) -> Schedule:
        partners = [_rank(number ^ (1 << bit), size) for bit in range(_rounds(size))]
        rounds = [step for rank in partners for step in _exchange(rank, everything, everything)]
        return rounds + [local("finish", everything)]

    return _with_extras(rank, size, n, participant)


def halving_doubling(rank: int, size: int, n: int) -> Schedule:
    """Reduce-scatter by halving, then allgather by doubling.

    2R messages of n/2, n/4, ... elements, and two more in a row if p is not a power of two.
    """

    def participant(number: int) -> Schedule:
        halving, own = _halving(number, size, n)
        return halving + [local("finish", own)] + reversed_schedule(halving)

    return _with_extras(rank, size, n, participant)


def _halving(number: int, size: int, n: int) -> tuple[Schedule, slice]:
    """The R rounds of the reduce-scatter, and the slice that the participant then owns."""
    bounds = [part.start for part in slices(n, 2 ** _rounds(size))] + [n]
    first, last, steps = 0, len(bounds) - 1, []  # holds bounds[first] .. bounds[last]
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


def _exchange(partner: int, given: slice, own: slice) -> Schedule:
    """Send `given`, receive and add `own`, rounded first because the partner's side is too."""
    return [local("finish", own), Step(partner, given, partner, own, "add")]


def _with_extras(rank: int, size: int, n: int, participant) -> Schedule:
    """`participant(number)` for the ranks that take part, between the extra ranks' messages."""
    everything, pairs = slice(0, n), 2 * _extras(size)
    if rank >= pairs:
        return participant(rank - pairs // 2)
    if rank % 2:
        return [send(everything, rank - 1), receive(everything, rank - 1, "copy")]
    return [
        receive(everything, rank + 1, "add"),
        *participant(rank // 2),
        send(everything, rank + 1),
    ]


def _rounds(size: int) -> int:
    """R = floor(log2 p)."""
    return size.bit_length() - 1


def _extras(size: int) -> int:
    """e = p - 2**R."""
    return size - 2 ** _rounds(size)


def _rank(number: int, size: int) -> int:
    """The rank of participant `number`: 0, 2, ..., 2e-2, then 2e, 2e+1, ..., p-1."""
    return number + min(number, _extras(size))
