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
    """3. The sum is p times the mean, so each step is p times as long, and training may diverge.
    The rate divided by p gives the same weights."""
    p, rate = 4, 0.5
    gradients = [np.arange(3.0) + rank for rank in range(p)]
    mean, total = sum(gradients) / p, sum(gradients)
    assert np.array_equal(rate * mean, rate / p * total)
    weight = {"mean": 1.0, "sum": 1.0}
    for _ in range(20):  # half a square: its gradient is the weight itself
        weight["mean"] -= rate * weight["mean"]
        weight["sum"] -= rate * p * weight["sum"]
    assert abs(weight["mean"]) < 1e-5 and abs(weight["sum"]) >= 1  # 1 - 0.5 p = -1: no progress


if __name__ == "__main__":
    for exercise in (the_order_of_messages, the_load_of_rank_0, the_sum_of_gradients):
        exercise()
        print(exercise.__doc__.strip() + "\n")
