"""Lesson 01: ring allreduce - the sum of all ranks, and alpha and beta of this machine.

    mpiexec -n 8 python lessons/01_ring_allreduce.py         waits like a link of 1gbit,500us
    python -m refgf.cluster run --nodes 4 --ranks-per-node 2 --rate 1gbit -- \\
        python lessons/01_ring_allreduce.py                  on a network: the committed figure
    options: --predict "1000 times", -v (all tables), --link 1gbit,5ms (another link), --link none
             (memory alone: latency is then a rank's wait for a core), --quick, --full, ...

QUESTION    Each of p ranks has a vector of n elements, the gradient of its own images, and each
            rank needs the sum of all p. How long does the sum take, and what does that time depend
            on?
IDEA        Cut the vector into p slices and send every slice round a ring twice: once to add to
            it, once to distribute the sum. Every rank sends to its right neighbour only, and no
            rank sends more than twice the vector: `ring_sums` below, for real in
            refgf/comm/ring.py. What 3 ranks send (drawing: lessons/drawings/01.svg):

                          rank 0     rank 1     rank 2
                step 0   slice 0 -> slice 1 -> slice 2 ->    the receiver adds
                step 1   slice 2 -> slice 0 -> slice 1 ->    it adds; slice r+1 is done on rank r
                step 2   slice 1 -> slice 2 -> slice 0 ->    the receiver copies
                step 3   slice 0 -> slice 1 -> slice 2 ->    the receiver copies

            Naive is lesson 00: rank 0 receives all vectors and sends the sum to all. By hand, 8
            ranks with 8 MiB each on 1 Gbit/s (8.4 ms a MiB): its link receives 56 MiB, then sends
            56: 940 ms. In a ring each link carries 2 x 7/8 of 8 MiB, 14 MiB: 117 ms. The lesson
            measures the naive sum up to 4 MiB, and the ring up to 64.

PREDICTION  A message of m bytes takes alpha + beta m. The ring takes 2(p-1) messages of n/p
            elements, one after another:

                T(n) = 2(p-1) alpha  +  2 (p-1)/p  4n beta          float32: 4n bytes

            alpha is the time of an empty message, in a ring of an empty vector: where ranks share
            cores, it includes a rank's wait for one. beta is measured with messages of 1 and 4 MiB
            between all neighbours; an idle link may send shorter ones faster. The formula leaves
            out the additions, which -v measures by themselves. "Off by" in the table is
            |predicted / measured - 1|; above a factor of two, that factor.

Before you run it, write down: the longest vector has 64 MiB, 65,536 times as many bytes as 1 KiB
(with --quick 256 KiB, 256 times; with --full 256 MiB). How many times as long does its sum take?

This is weak scaling: each rank brings a vector of n elements, whatever p is. After this lesson you
can derive T(n) from the steps of a ring, say which of its two terms decides for a vector, and why
all ranks hold the same bits.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/01_ring_allreduce.py)
    1. Reverse the direction of your ring, `allreduce` in student/01.py: neighbours and slice
       numbers turn round (+ for -, - for +). Measure it on 2 and on 3 ranks, with --mine
       lessons/student/01.py --wrong-anyway: the oracle rejects it, because the bits change. For
       which p do they? In which order are the ranks added now? (The project's is in
       refgf/comm/ring.py. What stands still ends after 2 minutes, with --quick after 20 s.)
    2. A colleague sends the whole vector p-1 times round the ring. Which check of this lesson
       catches the mistake, values, bytes or messages: for p = 2, and for p >= 3?
    3. For which p do ring and direct (refgf/comm/direct.py) always give the same bits? Why?

A COLLEAGUE SAYS the following, and is wrong. Show it. (answers: lessons/teaching/01.md)
    a. "Time is proportional to bytes." Run it on 4 ranks with --link 1gbit,50us, then with
       1gbit,5ms.
    b. "With more ranks each rank has to send more and more." --link 1gbit,50us -v on 2 and on 8
       ranks: what grows, bytes or messages?
    c. "Addition is associative, so every allreduce gives the same bits." 3 ranks, -v: "Why the bits
       depend on p and the algorithm".
"""

import refgf.launch  # noqa: F401  before MPI starts

import numpy as np

import kit
from lab.ring import oracle, picture, schedules, times
from lab.ring.claims import REVEAL
from refgf.comm import ring
from refgf.comm.replay import check
from refgf.comm.schedule import Allreduce, collective

# ---- the idea, for all ranks in one process ----


def ring_sums(xs: list[np.ndarray]) -> list[np.ndarray]:
    """xs[rank], each (n,) -> what each rank holds afterwards: the sum, with the same bits."""
    p = len(xs)
    held = [np.array_split(x.copy(), p) for x in xs]  # held[rank][slice]
    for step in range(p - 1):  # reduce-scatter
        sent = [held[rank][(rank - step) % p].copy() for rank in range(p)]
        for rank in range(p):
            held[rank][(rank - step - 1) % p] += sent[rank - 1]  # from the left; sent[-1]: the last
    for step in range(p - 1):  # allgather: rank r starts with the finished slice r+1
        sent = [held[rank][(rank + 1 - step) % p].copy() for rank in range(p)]
        for rank in range(p):
            held[rank][(rank - step) % p][:] = sent[rank - 1]
    return [np.concatenate(slices) for slices in held]


# ---- one step ----


def new_allreduce(run: kit.Run) -> Allreduce:
    """The same with messages: a list of steps for each rank, one Sendrecv for each step.

    First all ranks' lists take turns in this process: `check` names a send without its receive,
    where MPI would wait for ever or truncate a message.
    """
    for n in oracle.sizes(run.size):
        check([ring.allreduce(rank, run.size, n) for rank in range(run.size)])
    return collective(run.comm, ring.allreduce)


# ---- the lesson ----


def measure(run: kit.Run) -> dict:
    schedules.show_ring(run)
    allreduce = new_allreduce(run)
    oracle.check(run, allreduce)
    schedules.show_blocked_sends(run)
    schedules.show_order_of_summation(run)
    return times.measure(run, allreduce)


if __name__ == "__main__":
    lesson = kit.Lesson(__file__, __doc__, REVEAL, probe=True, link="1gbit,500us")
    lesson.main(measure, picture.draw)
