"""Other rules for lesson 01: where the ring runs and which slice is first, what counts, a start."""

import textwrap
from functools import partial

from refgf.oracle.spec.change import CHANGES, Change
from refgf.oracle.spec.ring_steps import ALLREDUCE_01, COST_01, IN_BYTES, SECONDS_01, ring

# ---- the ring: rank r acts as rank turn * r + moved of the published one ----


def other_ring(function, turn, moved):
    def allreduce(comm, x):
        size = comm.Get_size()

        def actual(rank):
            return turn * (rank - moved) % size

        class Ring:
            Get_size = staticmethod(lambda: size)
            Get_rank = staticmethod(lambda: (turn * comm.Get_rank() + moved) % size)
            Send = staticmethod(lambda x, dest: comm.Send(x, actual(dest)))
            Recv = staticmethod(lambda x, source: comm.Recv(x, actual(source)))

            @staticmethod
            def Sendrecv(sent, dest, sendtag, received, source, recvtag):
                comm.Sendrecv(sent, actual(dest), sendtag, received, actual(source), recvtag)

        return function(Ring, x)

    return allreduce


def other_rank(function, turn, moved):
    return lambda n, p, rank: function(n, p, (turn * rank + moved) % p)


def acts_as(rank, p, turn, moved):
    return (turn * rank + moved) % p


PUBLISHED = """\
Reduce-scatter: in step t = 0 .. p-2 send slice (rank - t) mod p to the right neighbour, receive
    slice (rank - t - 1) mod p from the left one, and add it to x's own.
    Allgather: in step t send slice (rank + 1 - t) mod p to the right neighbour, receive slice
    (rank - t) mod p from the left one, and put it into x."""
STEPS = (
    "Reduce-scatter: in step t = 0 .. p-2 send slice {} mod p to the {} neighbour, receive "
    "slice {} mod p from the {} one, and add it to x's own.",
    "Allgather: in step t send slice {} mod p to the {} neighbour, receive slice "
    "{} mod p from the {} one, and put it into x.",
)
LEFT_OUT = (
    "you leave out the slices {} and {}: a rank does not send slice {} in the reduce-scatter, "
    "and slice {} in the allgather"
)
BEGINS = (
    "your allgather begins with slice {}, as the reduce-scatter did; the slice that this rank has "
    "summed is slice {}"
)


def slices(turn, moved):
    """The numbers of a rank's slices before, at and after the one with which it begins."""
    return [
        "-" * (turn < 0) + "rank" + (f" {'+' if c > 0 else '-'} {abs(c)}" if c else "")
        for c in (moved - 1, moved, moved + 1, moved + 2)
    ]


def steps(turn, moved):
    before, first, after, _ = (f"({slice_} - t)" for slice_ in slices(turn, moved))
    to, source = ("right", "left") if turn > 0 else ("left", "right")
    phases = (first, to, before, source), (after, to, first, source)
    texts = (text.format(*given) for text, given in zip(STEPS, phases))
    return "\n    ".join(textwrap.fill(text, 96).replace("\n", "\n    ") for text in texts)


def words(turn, moved):
    _, first, after, last = slices(turn, moved)
    return {
        PUBLISHED: steps(turn, moved),
        BEGINS.format("rank", "rank + 1"): BEGINS.format(first, after),
        "your ring runs backwards, to the left": "your ring runs the other way round",
        "you sum on rank 0: its": "you sum on one rank: its",
    }, {
        "Empty slices are": "The ring is that of exercise 3. Empty slices are",
        LEFT_OUT.format("rank", "rank + 1", "rank + 1", "rank + 2"): LEFT_OUT.format(
            first, after, after, last
        ),
    }


def ring_by(turn, moved):
    how, (of_ring, of_cost) = {"turn": turn, "moved": moved}, words(turn, moved)
    begins = slices(turn, moved)[1]
    says = f"here rank sends to the {'right' if turn > 0 else 'left'}, slice {begins} first"
    return [
        Change(
            ALLREDUCE_01,
            says,
            partial(other_ring, **how),
            words=of_ring,
            published=ring,
            acts_as=partial(acts_as, **how),
        ),
        Change(COST_01, says, partial(other_rank, **how), words=of_cost),
    ]


# ---- what counts ----


def in_bytes(function, itemsize):
    def ring_cost(n, p, rank):
        messages, elements = function(n, p, rank)
        return messages, itemsize * elements

    return ring_cost


def both_ways(function):
    def ring_cost(n, p, rank):
        return tuple(map(sum, zip(function(n, p, rank), function(n, p, (rank - 1) % p))))

    return ring_cost


SENT = "(messages, elements) that this rank sends in a ring allreduce of n elements over p ranks."


def bytes_of(itemsize):
    text = f"(messages, bytes) that this rank sends in a ring allreduce of n float{8 * itemsize}s"
    return [
        Change(
            COST_01,
            f"here an element counts as its {itemsize} bytes",
            partial(in_bytes, itemsize=itemsize),
            words={SENT: f"{text} over p\n    ranks.", IN_BYTES: ""},
        )
    ]


BOTH = {
    SENT: "(messages, elements) that this rank sends and receives, together, in a ring allreduce\n"
    "    of n elements over p ranks.",
    "One rank sends nothing.": "One rank sends and receives nothing.",
}

# ---- a start ----


def started(function):
    return lambda nbytes, p, alpha, beta: alpha + function(nbytes, p, alpha, beta)


def copied_first(function):
    return lambda nbytes, p, alpha, beta: beta * nbytes + function(nbytes, p, alpha, beta)


LINKS = "all links work at the same time."
START = {
    LINKS: f"{LINKS}\n    To start the allreduce takes alpha more seconds, for one rank too.",
    "one rank takes no time": "one rank",
}
COPY = {
    LINKS: f"{LINKS}\n    Before it a rank copies its nbytes, in beta seconds a byte; one rank "
    "does that, too.",
    "one rank takes no time": "one rank",
}

# The change of what counts stands before that of the ring: neighbours are the new ring's.
CHANGES["01"] = [
    [
        bytes_of(4),
        bytes_of(2),
        [Change(COST_01, "here what is received counts, too", both_ways, words=BOTH)],
    ],
    [ring_by(*how) for how in ((1, 1), (1, -1), (-1, 0), (-1, 1), (-1, -1))],
    [
        [Change(SECONDS_01, "here the start takes alpha", started, words=START)],
        [Change(SECONDS_01, "here a copy comes first", copied_first, words=COPY)],
    ],
]
