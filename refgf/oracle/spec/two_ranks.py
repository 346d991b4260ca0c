"""Lesson 00: loss and gradient, a step on p ranks, the sum of all ranks through rank 0.

No statement asks for these, but for the sum, which is D1.
"""

from typing import Any

import numpy as np

from refgf.oracle.spec.direct import direct_allreduce
from refgf.oracle.spec.exercise import Arguments, Collective, Exercise, quarters
from refgf.oracle.spec.ring import Arrays

ROUNDING = 1e-9  # samples may be added in another order: some roundings of 1e-16

SEVERAL, ONE = "several samples", "one sample"


def samples(random: np.random.Generator, count: int, features: int) -> tuple[Any, ...]:
    """w (features,), x (count, features), y (count,)"""
    return quarters(random, features), *data(random, count, features)


def data(random: np.random.Generator, count: int, features: int) -> tuple[Any, ...]:
    return quarters(random, count, features), quarters(random, count)


# ---- loss(w, x, y): given in the starter ----


def loss(w: np.ndarray, x: np.ndarray, y: np.ndarray) -> float:
    return float(np.mean((x @ w - y) ** 2) / 2)


def several(random: np.random.Generator) -> list[Arguments]:
    return [samples(random, 3, 2), samples(random, int(random.integers(2, 20)), 4)]


LOSS_00 = Exercise("00.1", loss, relative=ROUNDING)
LOSS_00.part(SEVERAL, 1, several)
LOSS_00.part(ONE, 1, lambda random: [samples(random, 1, 1)])

# ---- gradient(w, x, y) ----


def gradient(w: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Also for no samples, which have the gradient 0."""
    return x.T @ (x @ w - y) / max(1, len(y))


GRADIENT_00 = Exercise("00.2", gradient, relative=ROUNDING)
GRADIENT_00.part(SEVERAL, 3, several)
GRADIENT_00.part(ONE, 1, lambda random: [samples(random, 1, 3)])


@GRADIENT_00.mistake("you return the sum over the samples; the mean divides it by their number")
def gradient_of_the_sum(w, x, y):
    return x.T @ (x @ w - y)


@GRADIENT_00.mistake(
    "you divide by the number of all elements of x; wanted the number of samples, len(y)"
)
def mean_of_all_numbers(w, x, y):
    return x.T @ (x @ w - y) / x.size


@GRADIENT_00.mistake(
    "your gradient is twice as long: the loss has a factor 1/2, which cancels the 2 of the square"
)
def twice_the_gradient(w, x, y):
    return 2 * gradient(w, x, y)


@GRADIENT_00.mistake("you multiply the errors by x; wanted x.T, its transpose")
def not_transposed(w, x, y):
    return x @ (x @ w - y) / len(y)


@GRADIENT_00.mistake("your gradient has the wrong sign: the error is x @ w - y")
def uphill(w, x, y):
    return -gradient(w, x, y)


# ---- step_on_ranks(w, xs, ys, rate) ----


def step_on_ranks(w: np.ndarray, xs: Arrays, ys: Arrays, rate: float) -> Arrays:
    """The step of one rank with all samples, once for each rank."""
    step = rate * gradient(w, np.concatenate(xs), np.concatenate(ys))
    return [w - step for _ in xs]


EQUAL, UNEQUAL = "as many samples on each rank", "more samples on some ranks"

FEW, KEEPS = "one rank, a rank without samples", "w and the samples stay as they are"


def shards(random: np.random.Generator, counts: list[int], features: int = 3) -> tuple[Any, ...]:
    """The arguments of a step, with counts[r] samples on rank r."""
    pairs = [data(random, count, features) for count in counts]
    w, rate = quarters(random, features), random.integers(1, 5).item() / 8
    return w, [x for x, _ in pairs], [y for _, y in pairs], rate


def equal(random: np.random.Generator) -> list[Arguments]:
    return [shards(random, [2, 2], 2), shards(random, [4, 4, 4])]


STEP_00 = Exercise("00.3", step_on_ranks, relative=ROUNDING)
STEP_00.part(EQUAL, 2, equal)
STEP_00.part(UNEQUAL, 2, lambda random: [shards(random, [1, 3], 2), shards(random, [5, 4, 4, 1])])
STEP_00.part(FEW, 1, lambda random: [shards(random, [2], 2), shards(random, [3, 0, 2], 2)])
STEP_00.part(KEEPS, 1, equal, keeps=True)


@STEP_00.mistake(
    "you step with the sum of the ranks' gradients, so your step is p times as long; "
    "wanted the mean"
)
def steps_with_the_sum(w, xs, ys, rate):
    total = sum(gradient(w, x, y) for x, y in zip(xs, ys))
    return [w - rate * total for _ in xs]


@STEP_00.mistake(
    "you step with the sum over all samples; wanted the mean: divide by the number of all samples"
)
def sum_over_samples(w, xs, ys, rate):
    return step_on_ranks(w, xs, ys, rate * sum(map(len, ys)))


@STEP_00.mistake(
    "you divide the sum over all samples by the number of ranks; wanted the number of all samples"
)
def divided_by_ranks(w, xs, ys, rate):
    return sum_over_samples(w, xs, ys, rate / len(xs))


@STEP_00.mistake(
    "each of your ranks steps with its own gradient, so their weights become different"
)
def own_steps(w, xs, ys, rate):
    return [w - rate * gradient(w, x, y) for x, y in zip(xs, ys)]


@STEP_00.mistake(
    "your mean of p gradients counts a rank with few samples as much as one with many; "
    "wanted the mean over all samples"
)
def mean_of_means(w, xs, ys, rate):
    return steps_with_the_sum(w, xs, ys, rate / len(xs))


STEP_00.given(
    "you add the gradient, so the loss grows; a step goes against it", rate=lambda rate: -rate
)


@STEP_00.mistake("only your rank 0 takes the step; the mean has to reach all ranks")
def only_rank_0_steps(w, xs, ys, rate):
    return [step_on_ranks(w, xs, ys, rate)[0], *[w for _ in xs[1:]]]


@STEP_00.mistake(
    "a rank without samples divides by 0 and makes every weight nan; it contributes "
    "nothing to the sum"
)
def divides_by_no_samples(w, xs, ys, rate):
    """The mean of no samples is 0 / 0, which is nan."""
    total = sum(x.T @ (x @ w - y) / len(y) * len(y) for x, y in zip(xs, ys))
    return [w - rate * total / sum(map(len, ys)) for _ in xs]


# ---- sum_of_ranks(comm, x) ----


def sends(n: int, p: int, rank: int) -> list[tuple[int, int, int]]:
    """Rank 0 sends the sum to ranks 1, 2, ...; every other rank sends its x to rank 0."""
    return [(dest, 0, n) for dest in range(1, p)] if rank == 0 else [(0, 0, n)]


def through_rank_0(
    comm: Any,
    x: np.ndarray,
    last_first: bool = False,
    overwrite: bool = False,
    partial: bool = False,
    back: bool = True,
) -> None:
    """The messages of the lesson; the keywords make their typical mistakes."""
    if comm.Get_rank():
        comm.Send(x, 0)
        if back:
            comm.Recv(x, 0)
        return
    others, other = range(1, comm.Get_size()), np.empty_like(x)
    for source in reversed(others) if last_first else others:
        comm.Recv(x if overwrite else other, source)
        if not overwrite:
            x += other
        if partial:
            comm.Send(x, source)
    for dest in others if back and not partial else ():
        comm.Send(x, dest)


SUM_00 = Collective(
    "00.4",
    "sum_of_ranks",
    direct_allreduce,
    sends,
    ((1, 5), (2, 4), (3, 7), (4, 13), (5, 3), (3, 0), (8, 41)),
    {"values": 3, "bits": 1, "schedule": 1, "messages": 1, "bytes": 1},
)


@SUM_00.mistake("your rank 0 has the sum, but does not send it back")
def nothing_back(comm, x):
    through_rank_0(comm, x, back=False)


@SUM_00.mistake("your x ends as the mean; wanted the sum")
def mean_of_ranks(comm, x):
    through_rank_0(comm, x)
    x /= np.float32(comm.Get_size())


@SUM_00.mistake("your rank 0 adds the last rank first; wanted ranks 1, 2, ... in this order")
def last_rank_first(comm, x):
    through_rank_0(comm, x, last_first=True)


@SUM_00.mistake("your rank 0 receives into x itself, so its own numbers are overwritten")
def overwritten(comm, x):
    through_rank_0(comm, x, overwrite=True)


@SUM_00.mistake("your rank 0 answers each rank at once, with a sum that is not finished")
def partial_sums(comm, x):
    through_rank_0(comm, x, partial=True)


@SUM_00.mistake("your ranks all send to all: p(p-1) messages, where 2(p-1) are enough")
def each_to_each(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    own, other = x.copy(), np.empty_like(x)
    for distance in range(1, size):
        comm.Sendrecv(own, (rank + distance) % size, 0, other, (rank - distance) % size, 0)
        x += other
