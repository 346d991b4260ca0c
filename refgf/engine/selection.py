"""Which allreduce is fastest for a size? Chosen from alpha and beta or by measuring, and recorded.

    algorithm = BySize(alpha_s=20e-6, beta_s_per_byte=0.3e-9, itemsize=4)
    allreduce = collective(comm, algorithm)         like any other algorithm
    algorithm.chosen                                {n: name} for every size so far
    algorithm.explain(8, 1000)                      all candidates with their predicted times

The candidates, on p = 2**R + e ranks, N bytes. A message of m bytes takes alpha + beta m, and
adding m bytes takes gamma m; x = 1 if e > 0, q = 2**R:

    recursive doubling    (R + 2x) alpha + (R + 2x) beta N + (R + x) gamma N
    halving-doubling      (2R + 2x) alpha + (2(q-1)/q + 2x) beta N + ((q-1)/q + x) gamma N
    ring                  2(p-1) alpha + 2(p-1)/p beta N + (p-1)/p gamma N

These are the forms of the literature (Thakur, Rabenseifner, Gropp 2005) for slices of equal length;
the schedules' own counts are in their modules. All ranks must be given the same numbers: measure on
one rank and broadcast them.

In these forms halving-doubling and the ring tie on long vectors. Measured they do not, because each
algorithm uses caches and links differently. `measure` times every candidate at some sizes, and
`Fastest` takes the fastest:

    sides = candidates(comm)        {name: Allreduce}: those above, two-level, pipelined, MPI's ...
    allreduce = Fastest(sides, measure(comm, sides))
"""

import math
import statistics
import time
from dataclasses import dataclass

import numpy as np

from refgf.comm import ring, topology
from refgf.comm.native import mpi_allreduce
from refgf.comm.schedule import Algorithm, Allreduce, Schedule, collective
from refgf.engine.node_memory import share_memory
from refgf.engine.pipelined import pipelined
from refgf.engine.shared import SharedMemory
from refgf.papers.jia import doubling, hierarchical

CANDIDATES: dict[str, Algorithm] = {
    "recursive doubling": doubling.recursive_doubling,
    "halving-doubling": doubling.halving_doubling,
    "ring": ring.allreduce,
}
SIZES = [1 << k for k in range(10, 25, 2)]  # bytes that `measure` times: 1 KiB to 16 MiB
ROW_S, MOST_CALLS = 20e-3, 200  # a row has the calls that fit in this time, at most so many
TIE = 1.05  # two series of the same call on a full link differ by 3 %
OWN = "MPI's own"
ROUNDS = (3, 2.0), (4, 1.2), (10, 1.0)  # rows, and the largest ratio to the fastest that goes on


@dataclass(frozen=True)
class Terms:
    """Time on the slowest rank = messages alpha + (sent beta + added gamma) bytes."""

    messages: float
    sent: float
    added: float

    def seconds(
        self,
        nbytes: float,
        alpha_s: float,
        beta_s_per_byte: float,
        gamma_s_per_byte: float = 0.0,
    ) -> float:
        per_byte_s = self.sent * beta_s_per_byte + self.added * gamma_s_per_byte
        return self.messages * alpha_s + per_byte_s * nbytes


def terms(name: str, size: int) -> Terms:
    """The line of the table above for `name`."""
    rounds = size.bit_length() - 1
    extra = int(size > 2**rounds)
    if name == "recursive doubling":
        return Terms(rounds + 2 * extra, rounds + 2 * extra, rounds + extra)
    if name == "halving-doubling":
        share = 1 - 1 / 2**rounds
        return Terms(2 * rounds + 2 * extra, 2 * share + 2 * extra, share + extra)
    if name == "ring":
        return Terms(2 * (size - 1), 2 * (size - 1) / size, (size - 1) / size)
    raise ValueError(
        f"selection: got algorithm {name!r}; wanted one of {', '.join(CANDIDATES)}; "
        "next: leave out `always`"
    )


class BySize:
    """An `Algorithm`: the fastest candidate for each n. `always` names one for all sizes."""

    __name__ = "BySize"

    def __init__(
        self,
        alpha_s: float,
        beta_s_per_byte: float,
        itemsize: int,
        gamma_s_per_byte: float = 0.0,
        always: str | None = None,
    ) -> None:
        if not (alpha_s >= 0 and beta_s_per_byte >= 0 and gamma_s_per_byte >= 0 and itemsize > 0):
            raise ValueError(
                f"BySize: got alpha {alpha_s} s, beta {beta_s_per_byte} s/byte, "
                f"gamma {gamma_s_per_byte} s/byte, itemsize {itemsize}; wanted times >= 0 and the "
                "bytes of an element on the wire; next: measure again"
            )
        if always is not None:
            terms(always, 1)  # refuses an unknown name
        self.link = alpha_s, beta_s_per_byte, gamma_s_per_byte
        self.itemsize, self.always = itemsize, always
        self.chosen = {}  # n -> name

    def __call__(self, rank: int, size: int, n: int) -> Schedule:
        self.chosen[n] = self.choose(size, n)
        return CANDIDATES[self.chosen[n]](rank, size, n)

    def choose(self, size: int, n: int) -> str:
        """The name of the algorithm for n elements; a tie goes to the first in CANDIDATES."""
        return self.always or min(CANDIDATES, key=lambda name: self.seconds(name, size, n))

    def seconds(self, name: str, size: int, n: int) -> float:
        """The predicted time of `name`."""
        return terms(name, size).seconds(n * self.itemsize, *self.link)

    def explain(self, size: int, n: int) -> str:
        """One line: the choice for n elements, and the predicted times of all candidates."""
        chosen = self.choose(size, n)
        order = sorted(CANDIDATES, key=lambda name: (name != chosen, self.seconds(name, size, n)))
        times = ", ".join(f"{name} {1e3 * self.seconds(name, size, n):.3g} ms" for name in order)
        reason = "as asked" if self.always else "fastest"
        nbytes = n * self.itemsize
        return f"{nbytes} B on {size} ranks: {chosen} ({reason}); predicted: {times}"


def candidates(comm, wire=None) -> dict[str, Allreduce]:
    """The algorithms to choose from, bound to a communicator. Collective.

    Includes MPI's own call if the communicator has one; two-level algorithms if the nodes have the
    same number of ranks, more than one; and "shared memory", which the caller closes, if all ranks
    are on one node.
    """
    algorithms, nodes = dict(CANDIDATES), topology.nodes(comm)
    if len(nodes) > 1 and len(nodes[0]) > 1 and len({len(node) for node in nodes}) == 1:
        algorithms |= {
            "two-level ring": hierarchical.two_level_ring(nodes),
            "log phases": hierarchical.log_phases(nodes),
            "doubling phases": hierarchical.log_phases(nodes, doubling.recursive_doubling),
        }
    bound = {name: collective(comm, algorithm, wire) for name, algorithm in algorithms.items()}
    if hasattr(comm, "Isend"):  # an emulated link waits in Send
        bound["pipelined ring"] = pipelined(comm, ring.allreduce, wire)
    if hasattr(comm, "Allreduce"):
        bound[OWN] = mpi_allreduce(comm, wire)
    return bound | ({"shared memory": SharedMemory(comm, wire)} if share_memory(comm) else {})


def measure(
    comm, sides: dict[str, Allreduce], sizes=SIZES, rounds=ROUNDS, zeros=np.zeros
) -> dict[str, list[tuple]]:
    """{name: [(bytes of a float32 vector, seconds a call), ...]}. Collective.

    A time is the slowest rank's, the median of all rows of calls.
    rounds: ((rows, slack), ...), slack >= 1. Sides take turns for so many rows; those within
    `slack` of the fastest go on to the next round.
    zeros(n, dtype) makes the vectors; those of `SharedMemory.zeros` are summed faster.
    Short vectors are summed many times in a row, because ranks that slept are spread over the cores
    first, a link's first bytes may be sent on credit, and a few microseconds are noise.
    """
    points, longest = {name: [] for name in sides}, zeros(max(sizes) // 4, np.float32)
    for nbytes in sizes:
        for name, seconds in _times(comm, sides, longest[: nbytes // 4], rounds).items():
            points[name].append((nbytes, seconds))
    return points


def _times(comm, sides: dict[str, Allreduce], x, rounds) -> dict[str, float]:
    """{name: seconds a call}, the same on all ranks.

    An eliminated side keeps its ratio to that round's fastest.
    """
    calls = {name: _calls(comm, allreduce, x) for name, allreduce in sides.items()}
    rows, close, slower = {name: [] for name in sides}, list(sides), {}
    for repeats, slack in rounds:
        for _ in range(repeats):
            for name in close:
                rows[name].append(_row(comm, sides[name], x, calls[name]))
        times = {name: statistics.median(rows[name]) for name in close}
        fastest = min(times.values())
        slower |= {name: seconds / fastest for name, seconds in times.items()}
        close = [name for name in close if slower[name] <= slack]
    return {name: fastest * ratio for name, ratio in slower.items()}


def _calls(comm, allreduce: Allreduce, x) -> int:
    """How many calls fit in ROW_S; a first row warms up."""
    few = max(1, min(20, (1 << 20) // max(1, x.nbytes)))
    _, call_s = (_row(comm, allreduce, x, few) for _ in range(2))
    return max(1, min(MOST_CALLS, round(ROW_S / call_s)))


def _row(comm, allreduce: Allreduce, x, calls: int) -> float:
    """Seconds a call on the slowest rank."""
    comm.Barrier()
    start_s = time.perf_counter()
    for _ in range(calls):
        allreduce(x)
    return max(comm.allgather((time.perf_counter() - start_s) / calls))


class Fastest:
    """An `Allreduce` that takes for each size the one of `sides` that was measured fastest.

    points    {name: [(bytes, seconds), ...]} with rising sizes, the same on all ranks (`measure`)
    always    the name of a side to take for all sizes
    chosen    {bytes: name} so far

    Between two sizes the time is interpolated; beyond the last it grows with the bytes. MPI's own
    call wins a tie: it is taken if its time is less than TIE times the fastest.
    """

    def __init__(
        self,
        sides: dict[str, Allreduce],
        points: dict[str, list[tuple[int, float]]],
        always: str | None = None,
    ) -> None:
        unknown = set(points) ^ set(sides) or {always} - {None, *sides}
        if unknown or not all(points.values()):
            raise ValueError(
                f"Fastest: got measured {', '.join(points)}, always {always!r}; wanted at least "
                f"one point for each of {', '.join(sides)}; next: measure(comm, sides)"
            )
        self.sides, self.points, self.always = sides, points, always
        self.chosen = {}

    def __call__(self, x) -> None:
        nbytes = x.nbytes
        if nbytes not in self.chosen:
            self.chosen[nbytes] = self.choose(nbytes)
        self.sides[self.chosen[nbytes]](x)

    def choose(self, nbytes: int) -> str:
        if self.always:
            return self.always
        times_s = {name: self.seconds(name, nbytes) for name in self.sides}
        fastest = min(times_s, key=times_s.get)
        return OWN if times_s.get(OWN, math.inf) < TIE * times_s[fastest] else fastest

    def seconds(self, name: str, nbytes: int) -> float:
        """The interpolated time of `name`."""
        sizes, times_s = zip(*self.points[name])
        return float(np.interp(nbytes, sizes, times_s)) * max(1.0, nbytes / sizes[-1])


def crossover_bytes(short: tuple[float, float], long: tuple[float, float]) -> float:
    """Where two lines a_s + b_s_per_byte * bytes cross; `short` is faster below.

    short, long: (a_s, b_s_per_byte). Infinity if `short` is always faster, 0 if it never is.
    """
    (a_short, b_short), (a_long, b_long) = short, long
    if b_short <= b_long:
        return float("inf") if a_short <= a_long else 0.0
    return max(0.0, (a_long - a_short) / (b_short - b_long))
