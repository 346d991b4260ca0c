"""R5, R6: what each rank of a ring holds after each step, and what it sends.

Lesson 01 asks for a ring of one's own, its cost and its time. slices() is in ring.py.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from refgf.oracle.spec.calls import TRAFFIC, traffic_of
from refgf.oracle.spec.exercise import Arguments, Collective, Drawn, Exercise
from refgf.oracle.spec.precision.wire import on_wire
from refgf.oracle.spec.ring import (
    ANY,
    DIVIDES,
    FEW,
    R4,
    Arrays,
    equal_slices,
    ring_allreduce,
    shape_says,
    slice_bounds,
)
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement

# ---- R5: the steps ----


def ring_states(xs: Arrays, wire: str | None = None) -> list[Arrays]:
    """R5: after step t of the first p-1, rank r has added slice r-t-1 from rank r-1, as it was when
    sent; it then rounds slice r+1, which it finished; after step t of the last p-1 it holds the
    finished slice r-t.

    Source: the ring.

    All slice numbers are mod p.
      step t of the first p-1   rank r sends slice r-t to rank r+1, receives slice r-t-1, adds it
      between                   rank r rounds slice r+1, which it has finished, to the wire type
      step t of the last p-1    rank r sends slice r+1-t to rank r+1, receives slice r-t, copies it

    -> list of 2(p-1) + 1 lists of p arrays; number p-1 is the state after the rounding
    """
    p, bounds = len(xs), slice_bounds(len(xs[0]), len(xs))
    held, states = [x.copy() for x in xs], []
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for t in range(p - 1):
            sent = [on_wire(held[r][slice(*bounds[(r - t) % p])], wire) for r in range(p)]
            for r in range(p):
                held[r][slice(*bounds[(r - t - 1) % p])] += sent[(r - 1) % p]
            states.append([x.copy() for x in held])
    for r in range(p):
        own = slice(*bounds[(r + 1) % p])
        held[r][own] = on_wire(held[r][own], wire)
    states.append([x.copy() for x in held])
    for t in range(p - 1):
        sent = [held[r][slice(*bounds[(r + 1 - t) % p])].copy() for r in range(p)]
        for r in range(p):
            held[r][slice(*bounds[(r - t) % p])] = sent[(r - 1) % p]
        states.append([x.copy() for x in held])
    return states


R5 = Statement("R5", ring_states)


@R4.mistake("the allgather stops one step early: rank r misses slice r+2", ring_allreduce)
def allgather_short(xs, wire=None):
    return ring_states(xs, wire)[-2] if len(xs) > 1 else ring_allreduce(xs, wire)


@R5.mistake("the whole tensor goes round the ring")
def whole_tensor(xs, wire=None):
    p, held, sent = len(xs), [x.copy() for x in xs], [x.copy() for x in xs]
    states = []
    for _ in range(p - 1):
        sent = [on_wire(sent[(r - 1) % p], wire) for r in range(p)]
        with np.errstate(over="ignore", invalid="ignore"):
            held = [a + b for a, b in zip(held, sent)]
        states.append([x.copy() for x in held])
    return [*states, held, *states] if p > 1 else [held]


@R5.mistake("reduce-scatter sends slice r+1 first")
def states_off_by_one(xs, wire=None):
    states = ring_states([xs[-1], *xs[:-1]], wire)
    return [[*state[1:], state[0]] for state in states]


# ---- R6: what each rank sends ----


def ring_traffic(n: int, p: int, rank: int) -> tuple[int, int]:
    """R6: rank r sends 2(p-1) messages, empty ones too, and 2n - len(slice r+1) - len(slice r+2)
    elements; nothing for p = 1.

    Source: follows from R5.

    -> (messages, elements)
    """
    if p == 1:
        return 0, 0
    lengths = [stop - start for start, stop in slice_bounds(n, p)]
    return 2 * (p - 1), 2 * n - lengths[(rank + 1) % p] - lengths[(rank + 2) % p]


R6 = Statement("R6", ring_traffic)
SENDS = JudgedFunction(ring_traffic, "R6", TRAFFIC, run=traffic_of("ring_traffic"))
SENDS.fresh(lambda d: {"n": d.n, "p": d.p})


@SENDS.golden
def sends() -> Cases:
    yield from traffic_cases(SENDS)


def traffic_cases(function: JudgedFunction) -> Cases:
    """The same sizes for ring and direct."""
    for n, p in ((5, 1), (0, 4), (3, 5), (13, 4), (1000, 9)):
        why = f"messages and elements that each rank sends; {shape_says(p, n)}"
        yield function.case(f"{function.name.replace('_', '-')}-n{n}-p{p}", why, n=n, p=p)


def costs(sizes: list[tuple[int, int]], p: int, rest: tuple[int, int]) -> Drawn:
    """All ranks of these rings, and of one more of p ranks. rest: the ends of n mod p."""

    def cases(random: np.random.Generator) -> list[Arguments]:
        n = p * int(random.integers(1, 99)) + int(random.integers(*rest))
        return [(n, p, rank) for n, p in [*sizes, (n, p)] for rank in range(p)]

    return cases


def few_costs(random: np.random.Generator) -> list[Arguments]:
    n, p = int(random.integers(1, 20)), int(random.integers(20, 40))
    return [*costs([(3, 5), (0, 3), (6, 1)], 1, (0, 1))(random), (n, p, int(random.integers(p)))]


IN_BYTES = "you count bytes, 4 for each element; wanted elements"
COST_01 = Exercise("01.2", ring_traffic, "ring_cost")
COST_01.part(DIVIDES, 2, costs([(12, 3), (8, 4), (10, 5)], 6, (0, 1)))
COST_01.part(ANY, 2, costs([(13, 4), (7, 3), (20, 7), (15, 2)], 6, (1, 6)))
COST_01.part(FEW, 1, few_costs)


@R6.mistake("the whole tensor goes round the ring: p-1 messages of n elements")
def traffic_whole(n, p, rank):
    return (p - 1, (p - 1) * n)


@COST_01.mistake(
    "you count one phase only: a ring has p-1 steps of reduce-scatter and p-1 of allgather"
)
def cost_of_one_phase(n, p, rank):
    lengths = [stop - start for start, stop in slice_bounds(n, p)]
    return (p - 1, n - lengths[(rank + 1) % p]) if p > 1 else (0, 0)


@R6.mistake("2(p-1) messages of n // p elements: the tail is lost")
@COST_01.mistake("you take all slices as equally long, but the first n mod p have one element more")
def traffic_without_tail(n, p, rank):
    return 2 * (p - 1), 2 * (p - 1) * (n // p)


@COST_01.mistake(
    "in the allgather a rank does not leave out the same slice as before, but the next one"
)
def cost_without_the_last_phase_shift(n, p, rank):
    lengths = [stop - start for start, stop in slice_bounds(n, p)]
    return (2 * (p - 1), 2 * n - 2 * lengths[(rank + 1) % p]) if p > 1 else (0, 0)


@COST_01.mistake(
    "2n (p-1) / p is the mean over the ranks; where p does not divide n, a rank's slices decide"
)
def cost_of_the_mean(n, p, rank):
    return 2 * (p - 1), 2 * n * (p - 1) // p


@COST_01.mistake(
    "you leave out the slices rank and rank + 1: a rank does not send slice rank + 1 in the "
    "reduce-scatter, and slice rank + 2 in the allgather"
)
def cost_one_slice_early(n, p, rank):
    lengths = [stop - start for start, stop in slice_bounds(n, p)]
    return (2 * (p - 1), 2 * n - lengths[rank] - lengths[(rank + 1) % p]) if p > 1 else (0, 0)


@COST_01.mistake("you count 2p messages; a ring has 2(p-1), p-1 for each phase")
def cost_of_two_p(n, p, rank):
    return 2 * p, ring_traffic(n, p, rank)[1]


@COST_01.mistake(IN_BYTES)
def cost_in_bytes(n, p, rank):
    messages, elements = ring_traffic(n, p, rank)
    return messages, 4 * elements


@R6.mistake("empty messages are left out")
def traffic_without_empty(n, p, rank):
    sent = [stop - start for _, start, stop in ring_sends(n, p, rank)]
    return sum(length > 0 for length in sent), sum(sent)


# ---- allreduce(comm, x) ----


def ring_sends(n: int, p: int, rank: int) -> list[tuple[int, int, int]]:
    """The messages of R5, (peer, start, stop): to the right, slice r-t, then slice r+1-t."""
    bounds, right = slice_bounds(n, p), (rank + 1) % p
    order = [(rank - t) % p for t in range(p - 1)] + [(rank + 1 - t) % p for t in range(p - 1)]
    return [(right, *bounds[i]) for i in order]


ALLREDUCE_01 = Collective(
    "01.3",
    "allreduce",
    ring_allreduce,
    ring_sends,
    ((1, 5), (2, 4), (3, 7), (4, 13), (5, 3), (3, 0), (8, 41)),
    {"values": 3, "bits": 1, "schedule": 2, "messages": 1, "bytes": 1},
)


def ring(
    comm: Any,
    x: np.ndarray,
    direction: int = 1,
    adds: tuple[bool, ...] = (True, False),
    moved: int = 1,
    cut: Callable[..., Any] = slice_bounds,
    to: int = 1,
    expects: int = -1,
) -> None:
    """The ring of the lesson; the keywords make its typical mistakes."""
    rank, size = comm.Get_rank(), comm.Get_size()
    bounds = cut(x.size, size)
    right, left = (rank + to * direction) % size, (rank - to * direction) % size
    for phase, add in enumerate(adds):
        for t in range(size - 1):
            send = (rank + direction * (phase * moved - t)) % size
            other = expects if add else -1
            receive = (rank + direction * (phase * moved - t + other)) % size
            start, stop = bounds[receive]
            incoming = np.empty(stop - start, x.dtype)
            comm.Sendrecv(x[slice(*bounds[send])], right, 0, incoming, left, 0)
            if add:
                x[start:stop] += incoming
            else:
                x[start:stop] = incoming


@ALLREDUCE_01.mistake("your ring runs backwards, to the left")
def backwards(comm, x):
    ring(comm, x, direction=-1)


@ALLREDUCE_01.mistake(
    "your neighbours are swapped: you send to the rank from which you should receive, and receive "
    "from the one to which you should send"
)
def other_way(comm, x):
    ring(comm, x, to=-1)


@ALLREDUCE_01.mistake(
    "in the reduce-scatter you expect the slice after the one that you send; what arrives is the "
    "one before it"
)
def expects_next(comm, x):
    ring(comm, x, expects=1)


@ALLREDUCE_01.mistake("you have the reduce-scatter only: the allgather is missing")
def one_phase(comm, x):
    ring(comm, x, adds=(True,))


@ALLREDUCE_01.mistake(
    "your allgather begins with slice rank, as the reduce-scatter did; the slice that this rank "
    "has summed is slice rank + 1"
)
def allgather_one_early(comm, x):
    ring(comm, x, moved=0)


@ALLREDUCE_01.mistake("you overwrite what you should add to, in the first phase")
def overwrites(comm, x):
    ring(comm, x, adds=(False, False))


@ALLREDUCE_01.mistake("you add in the allgather, too: what arrives there is a finished sum")
def adds_twice(comm, x):
    ring(comm, x, adds=(True, True))


@ALLREDUCE_01.mistake("your slices are all n // p long: the last n mod p elements are not summed")
def cuts_equally(comm, x):
    ring(comm, x, cut=equal_slices)


@ALLREDUCE_01.mistake("you sum on rank 0: its link carries all messages")
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


@ALLREDUCE_01.mistake("you send whole vectors round the ring: p/2 times the bytes")
def whole_vectors(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    outgoing, incoming = x.copy(), np.empty_like(x)
    for _ in range(size - 1):
        comm.Sendrecv(outgoing, (rank + 1) % size, 0, incoming, (rank - 1) % size, 0)
        x += incoming
        outgoing[...] = incoming


# ---- ring_seconds(nbytes, p, alpha, beta) ----


def ring_seconds(nbytes: float, p: int, alpha: float, beta: float) -> float:
    """The time of a ring of equal slices."""
    return 2 * (p - 1) * alpha + 2 * (p - 1) / p * nbytes * beta


def links(random: np.random.Generator) -> list[Arguments]:
    """(nbytes, p, alpha, beta): p divides nbytes, as the starter says."""
    rows = [(0, 4, 1e-5, 1e-9), (10**6, 2, 0.0, 8e-9), (4096, 8, 5e-5, 1e-9)]
    p = int(random.integers(2, 64))
    return rows + [(p * int(random.integers(10**8 // p)), p, 2e-5, 8e-10)]


# the operations may be in another order: a few roundings of 1e-16
SECONDS_01 = Exercise("01.4", ring_seconds, relative=1e-12)
SECONDS_01.part("several ranks", 2, links)
SECONDS_01.part(
    "one rank takes no time",
    1,
    lambda random: [(n, 1, 1e-5, 1e-9) for n in (10**6, int(random.integers(10**8)))],
)


@SECONDS_01.mistake("every one of the 2(p-1) steps pays the latency")
def one_latency(nbytes, p, alpha, beta):
    return alpha + 2 * (p - 1) / p * nbytes * beta


@SECONDS_01.mistake("a step sends one slice, not all bytes")
def all_bytes(nbytes, p, alpha, beta):
    return 2 * (p - 1) * (alpha + nbytes * beta)


@SECONDS_01.mistake("you count 2p steps; a ring has 2(p-1), p-1 for each phase")
def two_p_steps(nbytes, p, alpha, beta):
    return 2 * p * (alpha + nbytes / p * beta)
