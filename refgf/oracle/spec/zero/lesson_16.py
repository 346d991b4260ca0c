"""Lesson 16: who owns a slice, what a rank holds, a step of ZeRO-1, what a step sends."""

import numpy as np

from refgf.oracle.spec.exercise import Arguments, Drawn, Exercise, tenths
from refgf.oracle.spec.momentum.sgd import momentum_step
from refgf.oracle.spec.ring import ANY, DIVIDES, FEW, Arrays, rounded_fold
from refgf.oracle.spec.zero.step import owner_early, zero_slice


def of_every_rank(p: int, rest: int) -> Drawn:
    def cases(random: np.random.Generator) -> list[Arguments]:
        n = p * int(random.integers(3, 99)) + rest
        return [(n, p, rank) for rank in range(p)]

    return cases


OWN_16 = Exercise("16.1", zero_slice, "own_slice")
OWN_16.part(DIVIDES, 1, of_every_rank(3, 0))
OWN_16.part(ANY, 1, of_every_rank(4, 1))
OWN_16.mistake("rank r owns slice r+1 (mod p) after the reduce-scatter, not slice r")(owner_early)


# ---- what a rank holds ----


def held(n: int, p: int, rank: int, stage: int, states: int) -> tuple[int, int, int]:
    """Elements of (weights, gradients, optimiser's state) that a rank holds with ZeRO-1 to 3."""
    start, stop = zero_slice(n, p, rank)
    own = stop - start
    return own if stage > 2 else n, own if stage > 1 else n, states * (own if stage else n)


def cases_of(stages: tuple[int, ...], states: tuple[int, ...] = (1, 2)) -> Drawn:
    """Every rank of a few vectors, one of them shorter than the number of ranks."""

    def cases(random: np.random.Generator) -> list[Arguments]:
        sizes = [(3, 5), (13, 4), (int(random.integers(20, 99)), 7)]
        return [
            (n, p, rank, stage, each)
            for n, p in sizes
            for rank in range(p)
            for stage in stages
            for each in states
        ]

    return cases


HELD_16 = Exercise("16.2", held)
HELD_16.part("plain data parallelism: every rank holds all", 1, cases_of((0,)))
HELD_16.part("ZeRO-1 with one state (momentum)", 1, cases_of((1,), (1,)))
HELD_16.part("ZeRO-1 with none or two states (Adam)", 1, cases_of((1,), (0, 2)))
HELD_16.part("ZeRO-2 and ZeRO-3", 1, cases_of((2, 3)))


@HELD_16.mistake("you count one state: Adam has two, plain SGD none")
def one_state(n, p, rank, stage, states):
    return held(n, p, rank, stage, 1)


@HELD_16.mistake("rank r owns slice r+1 (mod p) after the reduce-scatter, not slice r")
def held_early(n, p, rank, stage, states):
    return held(n, p, (rank - 1) % p, stage, states)


@HELD_16.mistake("n // p loses the rest where p does not divide n; the rank's own slice decides")
def held_in_the_mean(n, p, rank, stage, states):
    own = n // p
    return own if stage > 2 else n, own if stage > 1 else n, states * (own if stage else n)


@HELD_16.mistake("n / p rounded up is the longest slice; the rank's own slice decides")
def held_at_most(n, p, rank, stage, states):
    own = -(-n // p)
    return own if stage > 2 else n, own if stage > 1 else n, states * (own if stage else n)


@HELD_16.mistake("ZeRO-1 shares the state alone; gradients follow in ZeRO-2, weights in ZeRO-3")
def all_at_once(n, p, rank, stage, states):
    return held(n, p, rank, 3 if stage else 0, states)


# ---- a step ----


def sharded_step(
    w: np.ndarray, velocities: Arrays, gradients: Arrays, rate: float, momentum: float
) -> tuple[np.ndarray, Arrays]:
    """Z2 without decay; velocities[r] has the elements of rank r's own slice only."""
    p, w, after = len(gradients), w.copy(), []
    for rank in range(p):
        own = slice(*zero_slice(len(w), p, rank))
        total = rounded_fold([gradients[(rank + 1 + k) % p][own] for k in range(p)])
        w[own], v = momentum_step(w[own], velocities[rank], total, rate, momentum)
        after.append(v)
    return w, after


def steps(*sizes: tuple[int, int], moving: bool = True) -> Drawn:
    """(w, velocities, gradients, rate, momentum) of each (n, p). moving: from velocities not 0."""

    def cases(random: np.random.Generator) -> list[Arguments]:
        found = []
        for n, p in sizes:
            lengths = [stop - start for start, stop in (zero_slice(n, p, r) for r in range(p))]
            vs = [tenths(random, k) * np.float32(moving) for k in lengths]
            gs, rates = [tenths(random, n) for _ in range(p)], random.integers(1, 10, 2) / 10
            found.append((tenths(random, n), vs, gs, *map(float, rates)))
        return found

    return cases


STEP_16 = Exercise("16.3", sharded_step, relative=1e-5)  # sums in any order
STEP_16.part("the first step: velocities are 0", 1, steps((6, 3), (8, 2), moving=False))
STEP_16.part("later steps", 2, steps((6, 3), (8, 4)))
STEP_16.part(ANY, 1, steps((7, 3), (13, 4)))
STEP_16.part(FEW, 1, steps((2, 5), (0, 3), (4, 1)))


@STEP_16.mistake("a rank updates with the sum of all ranks' gradients, not with its own gradient")
def step_of_own_gradients(w, velocities, gradients, rate, momentum):
    p, alone = len(gradients), [np.zeros_like(w) for _ in gradients]
    for rank in range(p):
        own = slice(*zero_slice(len(w), p, rank))
        alone[rank][own] = gradients[rank][own]
    return sharded_step(w, velocities, alone, rate, momentum)


@STEP_16.mistake("do not divide by p: the losses are already divided by the global batch")
def step_of_means(w, velocities, gradients, rate, momentum):
    mean = [g / np.float32(len(gradients)) for g in gradients]
    return sharded_step(w, velocities, mean, rate, momentum)


@STEP_16.mistake("rank r owns slice r+1 (mod p) after the reduce-scatter, not slice r")
def step_early(w, velocities, gradients, rate, momentum):
    """Slice r+1 moves by the velocity of rank r+1."""
    w, after = sharded_step(w, velocities[1:] + velocities[:1], gradients, rate, momentum)
    return w, after[-1:] + after[:-1]


@STEP_16.mistake("the old velocity is lost: v <- momentum v + g")
def velocity_lost(w, velocities, gradients, rate, momentum):
    return sharded_step(w, [0 * v for v in velocities], gradients, rate, momentum)


@STEP_16.mistake("the weights take the new velocity: update v first, then w <- w - rate v")
def step_with_old_velocity(w, velocities, gradients, rate, momentum):
    _, after = sharded_step(w, velocities, gradients, rate, momentum)
    w = w.copy()
    for rank, v in enumerate(velocities):
        w[slice(*zero_slice(len(w), len(gradients), rank))] -= np.float32(rate) * v
    return w, after


# ---- what a step sends ----


def step_elements(n: int, p: int, stage: int) -> float:
    """Elements that a rank sends in a step where p divides n: two halves of a ring, or three."""
    return (3 if stage > 2 else 2) * n * (p - 1) / p


def sends_of(stages: tuple[int, ...]) -> Drawn:
    def cases(random: np.random.Generator) -> list[Arguments]:
        ps = (2, 4, int(random.integers(5, 40)))
        return [(p * int(random.integers(1, 99)), p, stage) for p in ps for stage in stages]

    return cases


SENT_16 = Exercise("16.4", step_elements, relative=1e-12)
SENT_16.part("all hold all, ZeRO-1, ZeRO-2", 1, sends_of((0, 1, 2)))
SENT_16.part("ZeRO-3", 1, sends_of((3,)))
SENT_16.part("one rank sends nothing", 1, lambda random: [(int(random.integers(9, 999)), 1, 3)])


@SENT_16.mistake("ZeRO-1 sends no more than an allreduce, whose two halves it takes apart")
def a_third_half(n, p, stage):
    return (3 if stage else 2) * n * (p - 1) / p


@SENT_16.mistake("ZeRO-3 gathers the weights twice, before forward and before backward")
def gathered_once(n, p, stage):
    return 2 * n * (p - 1) / p


@SENT_16.mistake("ZeRO-3 reduce-scatters the gradients and does not gather their sums")
def sums_gathered(n, p, stage):
    return (4 if stage > 2 else 2) * n * (p - 1) / p


@SENT_16.mistake("each message is one slice, n/p elements, not the whole vector")
def without_slices(n, p, stage):
    return float((3 if stage > 2 else 2) * n * (p - 1))


@SENT_16.mistake("a rank sends p-1 of p slices in each half, not all of them")
def whole_vectors(n, p, stage):
    return (3 if stage > 2 else 2) * float(n) * (p > 1)
