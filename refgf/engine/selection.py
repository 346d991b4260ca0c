"""The fastest allreduce for each size, measured.

    sides = candidates(comm, {"recursive doubling": recursive_doubling})    {name: Allreduce}
    allreduce = Fastest(sides, measure(comm, sides))
    allreduce.chosen                                                        {bytes: name} so far

On paper halving-doubling and the ring tie on long vectors. Measured they do not, because each
algorithm uses caches and links differently. `measure` times every candidate at some sizes, and
`Fastest` interpolates between them.
"""

import math
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import DTypeLike

from refgf.comm import ring
from refgf.comm.arguments import Comm
from refgf.comm.native import mpi_allreduce
from refgf.comm.schedule import Algorithm, collective
from refgf.device import Allreduce, Array
from refgf.engine.node_memory import share_memory
from refgf.engine.pipelined import pipelined
from refgf.engine.shared import SharedMemory

SIZES = [1 << k for k in range(10, 25, 2)]  # bytes that `measure` times: 1 KiB to 16 MiB
ROW_S, MOST_CALLS = 20e-3, 200  # a row has the calls that fit in this time, at most so many
TIE = 1.05  # two series of the same call on a full link differ by 3 %
OWN = "MPI's own"
ROUNDS = (3, 2.0), (4, 1.2), (10, 1.0)  # rows, and the largest ratio to the fastest that goes on


def candidates(
    comm: Comm, algorithms: dict[str, Algorithm], wire: DTypeLike | None = None
) -> dict[str, Allreduce]:
    """The ring and `algorithms`, bound to a communicator, and what else it offers. Collective.

    These are a pipelined ring, MPI's own call, and, if all ranks are on one node, "shared memory",
    which the caller closes.
    """
    algorithms = {"ring": ring.allreduce} | algorithms
    bound = {name: collective(comm, algorithm, wire) for name, algorithm in algorithms.items()}
    if hasattr(comm, "Isend"):  # an emulated link waits in Send
        bound["pipelined ring"] = pipelined(comm, ring.allreduce, wire)
    if hasattr(comm, "Allreduce"):
        bound[OWN] = mpi_allreduce(comm, wire)
    return bound | ({"shared memory": SharedMemory(comm, wire)} if share_memory(comm) else {})


def measure(
    comm: Comm,
    sides: dict[str, Allreduce],
    sizes: Sequence[int] = SIZES,
    rounds: Sequence[tuple[int, float]] = ROUNDS,
    zeros: Callable[..., Array] = np.zeros,
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


def _times(comm: Comm, sides: dict[str, Allreduce], x, rounds) -> dict[str, float]:
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


def _calls(comm: Comm, allreduce: Allreduce, x) -> int:
    """How many calls fit in ROW_S; a first row warms up."""
    few = max(1, min(20, (1 << 20) // max(1, x.nbytes)))
    _, call_s = (_row(comm, allreduce, x, few) for _ in range(2))
    return max(1, min(MOST_CALLS, round(ROW_S / call_s)))


def _row(comm: Comm, allreduce: Allreduce, x, calls: int) -> float:
    """Seconds a call on the slowest rank."""
    comm.Barrier()
    start_s = time.perf_counter()
    for _ in range(calls):
        allreduce(x)
    return max(comm.allgather((time.perf_counter() - start_s) / calls))


class Fastest:
    """An `Allreduce` that takes for each size the one of `sides` that was measured fastest.

    points    {name: [(bytes, seconds), ...]} with rising sizes, the same on all ranks (`measure`)
    chosen    {bytes: name} so far

    Between two sizes the time is interpolated; beyond the last it grows with the bytes. MPI's own
    call wins a tie: it is taken if its time is less than TIE times the fastest.
    """

    def __init__(
        self, sides: dict[str, Allreduce], points: dict[str, list[tuple[int, float]]]
    ) -> None:
        if set(points) != set(sides) or not all(points.values()):
            raise ValueError(
                f"Fastest: got measured {', '.join(points)}; wanted at least one point for each of "
                f"{', '.join(sides)}; next: measure(comm, sides)"
            )
        self.sides, self.points = sides, points
        self.chosen = {}

    def __call__(self, x) -> None:
        nbytes = x.nbytes
        if nbytes not in self.chosen:
            self.chosen[nbytes] = self.choose(nbytes)
        self.sides[self.chosen[nbytes]](x)

    def choose(self, nbytes: int) -> str:
        """The name of the fastest side for a vector of so many bytes."""
        times_s = {name: self.seconds(name, nbytes) for name in self.sides}
        fastest = min(times_s, key=lambda name: times_s[name])
        return OWN if times_s.get(OWN, math.inf) < TIE * times_s[fastest] else fastest

    def seconds(self, name: str, nbytes: int) -> float:
        """The interpolated time of `name`."""
        sizes, times_s = zip(*self.points[name])
        return float(np.interp(nbytes, sizes, times_s)) * max(1.0, nbytes / sizes[-1])
