"""Lesson 01: slices, what a ring costs, the ring itself, what it should take."""

import numpy as np

from refgf.oracle.definitions import ring_allreduce, ring_traffic, slice_bounds
from refgf.oracle.grade.exercises.before import Collective, Exercise, Mistake, Part

DIVIDES, ANY, FEW = "p divides n", "p does not divide n", "fewer elements than ranks, one rank"

# ---- slices(n, p): given in the starter ----


def equal_slices(n, p):
    return [(i * (n // p), (i + 1) * (n // p)) for i in range(p)]


def rest_to_the_last(n, p):
    return [(i * (n // p), n if i == p - 1 else (i + 1) * (n // p)) for i in range(p)]


def few(random):
    drawn = int(random.integers(20)), int(random.integers(20, 60))
    return [(0, 3), (2, 5), (9, 1), (0, 1), drawn]


SLICES = Exercise(
    "slices",
    slice_bounds,
    (
        Part(DIVIDES, 1, lambda random: [(p * k, p) for p, k in random.integers(1, 9, (4, 2))]),
        Part(
            ANY, 1, lambda random: [(7, 3), (5, 2), (20, 7), (int(random.integers(50)) * 3 + 1, 3)]
        ),
        Part(FEW, 1, few),
    ),
    (
        Mistake("your last elements are lost when p does not divide n", equal_slices, (ANY, FEW)),
        Mistake("your last slice takes the whole rest", rest_to_the_last, (ANY, FEW)),
    ),
)

# ---- ring_cost(n, p, rank) ----


def cost_of_one_phase(n, p, rank):
    lengths = [stop - start for start, stop in slice_bounds(n, p)]
    return (p - 1, n - lengths[(rank + 1) % p]) if p > 1 else (0, 0)


def cost_of_equal_slices(n, p, rank):
    return (2 * (p - 1), 2 * (p - 1) * (n // p)) if p > 1 else (0, 0)


def cost_without_the_last_phase_shift(n, p, rank):
    lengths = [stop - start for start, stop in slice_bounds(n, p)]
    return (2 * (p - 1), 2 * n - 2 * lengths[(rank + 1) % p]) if p > 1 else (0, 0)


def costs(sizes, p, rest):
    """All ranks of these rings, and of one more of p ranks. rest: the ends of n mod p."""

    def cases(random):
        n = p * int(random.integers(1, 99)) + int(random.integers(*rest))
        return [(n, p, rank) for n, p in [*sizes, (n, p)] for rank in range(p)]

    return cases


def few_costs(random):
    n, p = int(random.integers(1, 20)), int(random.integers(20, 40))
    return [*costs([(3, 5), (0, 3), (6, 1)], 1, (0, 1))(random), (n, p, int(random.integers(p)))]


RING_COST = Exercise(
    "ring_cost",
    ring_traffic,
    (
        Part(DIVIDES, 2, costs([(12, 3), (8, 4), (10, 5)], 6, (0, 1))),
        Part(ANY, 2, costs([(13, 4), (7, 3), (20, 7)], 6, (1, 6))),
        Part(FEW, 1, few_costs),
    ),
    (
        Mistake(
            "you count one phase only: a ring has p-1 steps of reduce-scatter and p-1 of allgather",
            cost_of_one_phase,
            (DIVIDES, ANY, FEW),
        ),
        Mistake(
            "you take all slices as equally long, but the first n mod p have one element more",
            cost_of_equal_slices,
            (ANY, FEW),
        ),
        Mistake(
            "in the allgather a rank does not leave out the same slice as before, but the next one",
            cost_without_the_last_phase_shift,
            (ANY, FEW),
        ),
    ),
)

# ---- allreduce(comm, x) ----


def ring_sends(n, p, rank):
    """The messages of R5: to the right, slice r-t, then slice r+1-t."""
    bounds, right = slice_bounds(n, p), (rank + 1) % p
    order = [(rank - t) % p for t in range(p - 1)] + [(rank + 1 - t) % p for t in range(p - 1)]
    return [(right, *bounds[i]) for i in order]


def ring(comm, x, direction=1, wrong_slice=False, phases=2, late=0):
    """The ring of the lesson; the keywords make its typical mistakes."""
    rank, size = comm.Get_rank(), comm.Get_size()
    bounds = slice_bounds(x.size, size)
    right, left = (rank + direction) % size, (rank - direction) % size
    for phase in range(phases):
        for t in range(size - 1):
            send = (rank + direction * (phase - t)) % size
            receive = (rank + direction * (phase - t - 1 + late * phase)) % size
            start, stop = bounds[receive]
            incoming = np.empty(stop - start, x.dtype)
            comm.Sendrecv(x[slice(*bounds[send])], right, 0, incoming, left, 0)
            if phase == 0 and not wrong_slice:
                x[start:stop] += incoming
            else:
                x[start:stop] = incoming


def backwards(comm, x):
    ring(comm, x, direction=-1)


def one_phase(comm, x):
    ring(comm, x, phases=1)


def overwrites(comm, x):
    ring(comm, x, wrong_slice=True)


def through_rank_0(comm, x):
    other = np.empty_like(x)
    if comm.Get_rank():
        comm.Send(x, 0)
        comm.Recv(x, 0)
        return
    for source in range(1, comm.Get_size()):
        comm.Recv(other, source)
        x += other
    for dest in range(1, comm.Get_size()):
        comm.Send(x, dest)


def whole_vectors(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    outgoing, incoming = x.copy(), np.empty_like(x)
    for _ in range(size - 1):
        comm.Sendrecv(outgoing, (rank + 1) % size, 0, incoming, (rank - 1) % size, 0)
        x += incoming
        outgoing[...] = incoming


ALLREDUCE = Collective(
    "allreduce",
    ring_allreduce,
    ring_sends,
    ((1, 5), (2, 4), (3, 7), (4, 13), (5, 3), (3, 0), (8, 41)),
    {"values": 3, "bits": 1, "schedule": 2, "messages": 1, "bytes": 1},
    (
        Mistake("your ring runs backwards, to the left", backwards, ("bits", "schedule", "bytes")),
        Mistake(
            "you have the reduce-scatter only: the allgather is missing",
            one_phase,
            ("values", "bits", "schedule", "messages", "bytes"),
        ),
        Mistake(
            "you overwrite what you should add to, in the first phase",
            overwrites,
            ("values", "bits"),
        ),
        Mistake(
            "you sum on rank 0: its link carries all messages",
            through_rank_0,
            ("bits", "schedule", "messages", "bytes"),
        ),
        Mistake(
            "you send whole vectors round the ring: p/2 times the bytes",
            whole_vectors,
            ("bits", "schedule", "messages", "bytes"),
        ),
    ),
)

# ---- ring_seconds(nbytes, p, alpha, beta) ----


def ring_seconds(nbytes, p, alpha, beta):
    return 2 * (p - 1) * alpha + 2 * (p - 1) / p * nbytes * beta


def one_latency(nbytes, p, alpha, beta):
    return alpha + 2 * (p - 1) / p * nbytes * beta


def two_p_steps(nbytes, p, alpha, beta):
    return 2 * p * (alpha + nbytes / p * beta)


def all_bytes(nbytes, p, alpha, beta):
    return 2 * (p - 1) * (alpha + nbytes * beta)


def links(random):
    rows = [(0, 4, 1e-5, 1e-9), (10**6, 2, 0.0, 8e-9), (4096, 8, 5e-5, 1e-9)]
    return rows + [(int(random.integers(10**8)), int(random.integers(2, 64)), 2e-5, 8e-10)]


SECONDS = Exercise(
    "ring_seconds",
    ring_seconds,
    (
        Part("several ranks", 2, links),
        Part(
            "one rank takes no time",
            1,
            lambda random: [(n, 1, 1e-5, 1e-9) for n in (10**6, int(random.integers(10**8)))],
        ),
    ),
    (
        Mistake(
            "every one of the 2(p-1) steps pays the latency",
            one_latency,
            ("several ranks", "one rank takes no time"),
        ),
        Mistake("a step sends one slice, not all bytes", all_bytes, ("several ranks",)),
        Mistake(
            "you count 2p steps; a ring has 2(p-1), p-1 for each phase",
            two_p_steps,
            ("several ranks", "one rank takes no time"),
        ),
    ),
    relative=1e-12,  # the operations may be in another order: a few roundings of 1e-16
)

EXERCISES = (SLICES, RING_COST, ALLREDUCE, SECONDS)
