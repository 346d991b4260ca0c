"""Lesson 17: low rank - which compressed gradients can be summed on the way?

    mpiexec -n 8 python lessons/17_low_rank.py
    options: --predict "20 ranks", -v (all tables), --epochs E, --full, --quick, ...

QUESTION    An allreduce adds up what comes along while it sends. Which compressed gradients can be
            added like that, and which must all be brought to every rank first?
IDEA        A sum of compressed gradients must be the compressed sum. So compressing must be linear,
            and the same on all ranks. PowerSGD (Vogels et al. 2019) looks at a layer's gradient as
            a matrix M and sends two thin ones: `low_rank_sum` below, for real in
            refgf/papers/powersgd (drawing: lessons/drawings/17.svg).

                P = sum of M Q            the same Q on all ranks: linear        allreduce
                P <- orthogonal(P)        each rank for itself, the same bits
                Q = sum of M^T P          linear again                           allreduce
                the sum of M is about P Q^T; a rank keeps its error, M - P (M^T P)^T

            In the next step a rank adds its error to its gradient (error feedback), and all start
            with this Q (warm start). What is left out adds up, until Q turns to it.

            Naive is to add up whatever was compressed. By hand: rank 0 has gradients 5 and 1, rank
            1 has -1 and 3. Times Q = (1, 1) they are 6 and 2; 6 + 2 = 8 is the summed gradients, 4
            and 4, times Q. But their signs add up to 0 and 2. Two signs can make -2, 0 or 2, and
            one bit does not hold three values.

            CSC's chunks are summed, too: all ranks choose the same ones (lesson 06). Top-k's places
            differ from rank to rank, so its pairs are gathered, and so are signs. A majority vote
            is summed if each vote gets a counter of 16 bits: `Vote`.
PREDICTION  n gradients, p ranks. k: elements of all factors, r (rows + columns) of each matrix, and
            of the vectors, which are sent as they are. Bytes:

                                a rank sends              p = 2     p = 8     p = 64
                dense           2 (p-1)/p 4 n             4 n       7 n       7.9 n
                PowerSGD r=1    2 (p-1)/p 4 k             0.13 n    0.23 n    0.26 n
                PowerSGD r=4    2 (p-1)/p 4 k             0.43 n    0.76 n    0.85 n
                CSC 10 %        2 (p-1)/p (0.4 n + 8 C)   0.57 n    1 n       1.1 n
                votes           2 (p-1)/p 2 n             2 n       3.5 n     3.9 n
                signs           (p-1) n/8                 0.12 n    0.87 n    7.9 n
                top-k 1 %       (p-1) 0.08 n              0.08 n    0.56 n    5 n

            k is 0.034 n here with r = 1, and 0.11 n with r = 4. CSC has C chunks, each with a norm
            of 8 bytes. C is here n / 47. (In lesson 06 it is n / 32,768.)

Before you run it, write down: from how many ranks on do gathered signs send more bytes than summed
votes? How many points of accuracy does PowerSGD of rank 1 lose against dense, and how many if its
error is dropped?

This is weak scaling: each rank brings its own batch, for any p. Nothing is timed here. After this
lesson you can say for a compressor whether it may be summed, and predict its bytes for any p.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/17_low_rank.py)
    1. Feed M = a matrix of rank 2 to PowerSGD of rank 2. What is the error after one step?
    2. Each rank draws another Q to begin with. Is the first step's sum wrong? The second step's?
    3. A majority of majorities: groups of ranks vote first. Is the result that of all ranks?

A COLLEAGUE SAYS the following, and is wrong. Show it. (answers: lessons/teaching/17.md)
    a. "Signs are 32 times smaller than floats, so they send 32 times less." -v: bytes.
    b. "What is not sent must be fed back, always." -v: accuracy, with and without the error.
    c. "A vote is a sum, so one bit a vote is enough for an allreduce." -v: bytes of votes.
"""

import refgf.launch  # noqa: F401  before MPI starts

from collections.abc import Iterator

import numpy as np

import kit
from kit import images
from lab.low_rank import learning, oracle, sent
from lab.low_rank.claims import REVEAL
from lab.low_rank.picture import draw
from refgf.comm.ring import ring_allreduce
from refgf.exchange.compressor import Compressor

# ---- the idea, for all ranks in one process ----


def orthogonal(p: np.ndarray) -> np.ndarray:
    """Columns of p (rows, r), each without those before it, of length 1; 0 if nothing is left."""
    columns: list[np.ndarray] = []
    for given in p.T:
        rest = given - sum((column @ given) * column for column in columns)
        length = np.linalg.norm(rest)
        columns.append(0 * rest if length <= 2**-20 * np.linalg.norm(given) else rest / length)
    return np.stack(columns, axis=1)


def low_rank_sum(ms: list[np.ndarray], q: np.ndarray):
    """ms: each rank's (rows, columns), q (columns, r). -> (about their sum, next q, errors)"""
    p = orthogonal(sum(m @ q for m in ms))  # an allreduce of r rows elements
    own = [m.T @ p for m in ms]
    total = sum(own)  # an allreduce of r columns elements
    errors = [m - p @ mine.T for m, mine in zip(ms, own)]
    return p @ total.T, np.where(total.any(axis=0), total, q), errors


class Vote(Compressor):
    """signSGD with majority vote: the sign of the sum of signs, as large as the mean magnitude.

    Nothing is fed back. Bernstein et al. 2019; the magnitude, in place of a rate of its own: ours.
    """

    def __init__(self, comm, wire=None) -> None:
        self.allreduce = ring_allreduce(comm)

    def start(self, gradients) -> None:
        self.votes = np.zeros(gradients.size, np.float16)  # counts to 2048 exactly

    def sum(self, x, elements: slice) -> None:
        scale = np.array([np.abs(x).mean()], np.float32)
        votes = self.votes[elements]
        votes[...] = np.where(np.isfinite(x), np.sign(x), np.nan)
        self.allreduce(votes)
        self.allreduce(scale)
        x[...] = scale[0] * np.sign(votes)

    def end(self, accepted: bool) -> None:
        pass

    @property
    def state(self) -> dict:
        return {}


# ---- the lesson ----


def measure(run: kit.Run) -> Iterator[dict]:
    train, held_out = images.load(run)
    oracle.check(run, Vote)
    yield {"sent": sent.measure(run, train, Vote)}
    yield {"learning": learning.measure(run, train, held_out, Vote)}


if __name__ == "__main__":
    lesson = kit.Lesson(__file__, __doc__, REVEAL)
    images.arguments(lesson)
    lesson.parser.set_defaults(width=1 / 16)
    lesson.main(measure, draw)
