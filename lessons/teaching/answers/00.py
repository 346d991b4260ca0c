"""Answers to lessons/student/00.py: full marks."""

import numpy as np


def loss(w, x, y):
    error = x @ w - y
    return float(np.mean(error**2) / 2)


def gradient(w, x, y):
    return x.T @ (x @ w - y) / len(y)


def step_on_ranks(w, xs, ys, rate):
    samples = sum(len(y) for y in ys)
    mine = [x.T @ (x @ w - y) / samples for x, y in zip(xs, ys)]  # each rank's share of the mean
    total = sum(mine)  # the allreduce
    return [w - rate * total for _ in xs]


def sum_of_ranks(comm, x):
    rank, size, other = comm.Get_rank(), comm.Get_size(), np.empty_like(x)
    if rank == 0:
        for source in range(1, size):
            comm.Recv(other, source)
            x += other
        for dest in range(1, size):
            comm.Send(x, dest)
    else:
        comm.Send(x, 0)
        comm.Recv(x, 0)
