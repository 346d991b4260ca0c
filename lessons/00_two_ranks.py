"""Lesson 00: two ranks - one training, on two processes.

    mpiexec -n 2 python lessons/00_two_ranks.py      two processes
    python lessons/00_two_ranks.py --threads 2       two threads of one process, no MPI needed
    options: --predict "8 times", -v (all tables), --quick, --plot, ...

QUESTION    A job is p copies of one program. Each copy has a number, its rank, and memory of its
            own: to know something of another rank, it needs a message. How do p ranks train one
            network together?
IDEA        Every rank computes the gradient of its own share of the batch. The mean of these
            gradients is the gradient of the whole batch, so every rank takes the step that one
            rank with the whole batch would take. Summing over all ranks and giving everyone the
            sum is called an *allreduce*. All of this course is about making it fast.
            (drawing: lessons/drawings/00.svg; `sgd`, `sgd_on_ranks` and `mean_of_ranks` below)

MESSAGES    comm.Send(x, 1) sends the array x to rank 1; comm.Recv(y, 0) waits for an array from
            rank 0. Each Send needs its Recv. A rank that waits for a message that never comes waits
            for ever, and so does the job: a deadlock. The program below looks harmless:

                rank 0    Send(x, 1)   Recv(y, 1)
                rank 1    Send(x, 0)   Recv(y, 0)

            MPI may copy a short message and let Send return at once. A long one has to wait until
            the other rank calls Recv. So this program ends or not, as its message is short or long.

PREDICTION  After n steps all ranks hold the same weights, and they are those of one rank with the
            whole batch: mean of p gradients over b samples = gradient over p b samples. They differ
            in rounding only, because the samples are added in another order. What is that worth?
            Samples are noisy, and so is a gradient: it leads past the true weights. Of p
            independent gradients the mean has 1/sqrt(p) of the noise.

Before you run it, write down: 8 ranks train on samples of their own, whose true weights are known.
Once they take the mean of their gradients in each step, once each takes its own and sends nothing.
How many times closer to the true weights do they get with messages? And will the program with two
Sends end with 256 numbers, with 1,048,576? (2 KiB and 8 MiB: the last table of -v)

This is weak scaling: each rank brings its own samples, whatever p is. The words of the course are
in lessons/glossary.md. After this lesson you can say what a rank, a message and a deadlock are, why
the mean of gradients trains like one rank, and what it gains.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/00_two_ranks.py)
    1. Mend the program above without changing its order on rank 0. Its first lines are
           import numpy; from mpi4py import MPI
           comm, x, y = MPI.COMM_WORLD, numpy.zeros(n), numpy.zeros(n)
       and `mpiexec -n 2` starts it. Choose n: 100, then 1,000,000. If it does not end, press
       Ctrl-C twice.
    2. `mean_of_ranks` sends 2(p-1) messages, all of them to or from rank 0. Each rank sends and
       receives n numbers, except rank 0. How many does rank 0 send and receive? (Lesson 01)
    3. In `step`, take the *sum* of the gradients: size times the mean. How far are the weights then
       from those of one rank? Which change of the rate, in the same line, mends it? On how many
       ranks does training diverge without that change?
    If a change makes this lesson stand still: Ctrl-C, then --threads 2 names the ranks that wait.

A COLLEAGUE SAYS the following, and is wrong. Show it. (answers: lessons/teaching/00.md)
    a. "MPI always buffers, so Send returns at once." The last table of -v, under mpiexec and with
       --threads 2.
    b. "Ranks see similar samples, so messages gain little." -v: the distances to the true weights.
    c. "Equal up to rounding is equal to the bit." 3 ranks, -v: which two rows differ, and why?
"""

import refgf.launch  # noqa: F401  before MPI starts

from collections.abc import Iterator
import numpy as np

import kit
from lab.two_ranks import picture, training
from lab.two_ranks.claims import REVEAL

# ---- the idea, for all ranks in one process ----


def gradient(w: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Of half the mean squared error of x @ w. x: (samples, features), y: (samples,)."""
    return x.T @ (x @ w - y) / len(y)


def sgd(x: np.ndarray, y: np.ndarray, rate: float) -> np.ndarray:
    """One rank. x: (steps, samples, features), y: (steps, samples) -> weights (features,)."""
    w = np.zeros(x.shape[-1])
    for batch, wanted in zip(x, y):
        w -= rate * gradient(w, batch, wanted)
    return w


def sgd_on_ranks(xs: list[np.ndarray], ys: list[np.ndarray], rate: float) -> list[np.ndarray]:
    """p ranks with as many samples each. -> the weights of every rank, all the same."""
    ws = [np.zeros(x.shape[-1]) for x in xs]
    for batches in zip(*xs, *ys):
        mine = list(zip(ws, batches[: len(xs)], batches[len(xs) :]))
        mean = sum(gradient(w, x, y) for w, x, y in mine) / len(ws)  # the allreduce
        ws = [w - rate * mean for w in ws]
    return ws


# ---- one step of one rank ----


def mean_of_ranks(comm, x: np.ndarray) -> None:
    """Replace x by the mean over all ranks. Through rank 0: it receives p-1 arrays, sends p-1."""
    rank, size, other = comm.Get_rank(), comm.Get_size(), np.empty_like(x)
    if rank == 0:
        for source in range(1, size):
            comm.Recv(other, source)
            x += other
        x /= size
        for dest in range(1, size):
            comm.Send(x, dest)
    else:
        comm.Send(x, 0)
        comm.Recv(x, 0)


def step(comm, w: np.ndarray, x: np.ndarray, y: np.ndarray, rate: float) -> None:
    """One step of data-parallel SGD. x, y: this rank's samples."""
    mine = gradient(w, x, y)
    mean_of_ranks(comm, mine)
    w -= rate * mine


# ---- the lesson ----


def measure(run: kit.Run) -> Iterator[dict]:
    training.check(run, mean_of_ranks)
    yield training.measure(run, sgd, step, gradient)
    yield training.sends(run)


if __name__ == "__main__":
    lesson = kit.Lesson(__file__, __doc__, REVEAL)
    lesson.main(measure, picture.draw)
