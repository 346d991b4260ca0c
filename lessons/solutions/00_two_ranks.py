"""Solutions of lesson 00. The code below each answer checks it.

python lessons/solutions/00_two_ranks.py
"""

import numpy as np

from refgf.machine import threads


def the_order_of_messages() -> None:
    """1. Rank 1 receives first, then sends. For more ranks: Sendrecv, which does both at once."""

    def exchange(comm) -> float:
        mine, theirs = np.full(4, float(comm.Get_rank())), np.empty(4)
        if comm.Get_rank() == 0:
            comm.Send(mine, 1)
            comm.Recv(theirs, 1)
        else:
            comm.Recv(theirs, 0)
            comm.Send(mine, 0)
        return float(theirs[0])

    assert threads.run(2, exchange) == [1.0, 0.0]  # it raises Deadlock where both send first


def the_load_of_rank_0() -> None:
    """2. Rank 0 receives (p-1) n numbers and sends (p-1) n, the others n each. While its link is
    busy, all others wait: the time grows with p. The ring of lesson 01 loads all links alike."""
    p, n, sent = 4, 10, [0, 0, 0, 0]

    def body(comm) -> None:
        x = np.zeros(n)
        if comm.Get_rank() == 0:
            for source in range(1, p):
                comm.Recv(x, source)
            for dest in range(1, p):
                comm.Send(x, dest)
                sent[0] += x.size
        else:
            comm.Send(x, 0)
            sent[comm.Get_rank()] += x.size
            comm.Recv(x, 0)

    threads.run(p, body)
    assert sent == [(p - 1) * n, n, n, n]


def the_sum_of_gradients() -> None:
    """3. The sum is p times the mean, so each step is p times as long; the rate divided by p gives
    the same weights. On 8 ranks training does not diverge, but it loses what the mean gains: the
    noise is multiplied as well, and the weights end as far from the true ones as one rank's. It
    diverges once a step goes past the minimum by more than it was away from it: between 32 and 64
    ranks here."""
    far = {p: from_the_true_weights(p, 0.05 * p) for p in (1, 8, 32, 64)}
    assert from_the_true_weights(8, 0.05) < far[1] / 2 and 0.8 * far[1] < far[8] < 2 * far[1]
    assert far[32] < 0.02 and far[64] > 1e100


def from_the_true_weights(p: int, rate: float) -> float:
    """As the lesson trains: 32 weights, 16 samples a rank; over the last 100 of 300 steps."""
    random, truth = np.random.default_rng(2019), np.linspace(-1, 1, 32)
    w, squares = np.zeros(32), []
    for _ in range(300):
        x = random.standard_normal((16 * p, 32))
        w -= rate * x.T @ (x @ (w - truth) - 0.1 * random.standard_normal(len(x))) / len(x)
        squares.append(np.mean((w - truth) ** 2))
    return float(np.mean(squares[-100:])) ** 0.5


if __name__ == "__main__":
    for exercise in (the_order_of_messages, the_load_of_rank_0, the_sum_of_gradients):
        exercise()
        print(exercise.__doc__.strip() + "\n")
