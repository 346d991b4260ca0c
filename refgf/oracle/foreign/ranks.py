"""Foreign code on p ranks that are threads, under MPI's rules, with a record of its messages.

It runs twice, because MPI has a choice where a right program has none: first each send waits until
its receive is posted, and a receive from any rank takes the lowest one's message; then no send
waits, and it takes the highest one's.
"""

import contextlib
import io
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from refgf.machine.threads import Aborted, Deadlock, Messages, Request, World

AllRanksBlocked = (Deadlock, Aborted)  # not the fault of the rank that raises it
DEADLOCK = "deadlock"
BUFFERED = (
    "MPI may wait in Send until the receive is posted, and this ends only where it does not; "
    "next: Sendrecv, or let some ranks receive first"
)


class Comm(Messages):
    """The calls of mpi4py's communicator that a collective needs.

    sends: [(peer, count, bytes, offset in x or None)]
    late: does the result depend on which of several messages comes first?
    """

    def __init__(self, world: World, rank: int, x: np.ndarray) -> None:
        super().__init__(world, rank)
        self.x, self.late = x, False
        self.sends: list[tuple[int, int, int, int | None]] = []

    def unfinished(self) -> list[str]:
        """["Isend to rank 2", ...]: the requests that this rank has never waited for."""
        return [request.name for request in self._world.open_requests(self.rank)]

    def _send(self, call: str, buf: np.ndarray, dest: int, tag: int) -> Request:
        request = super()._send(call, buf, dest, tag)
        array = request.array
        self.sends.append((request.peer, array.size, array.nbytes, offset(array, self.x)))
        return request

    def __getattr__(self, name: str) -> Any:
        calls = ", ".join(sorted(call for call in dir(Comm) if call[0].isupper()))
        raise AttributeError(f"comm.{name} is not there; wanted one of {calls}")


def offset(array: np.ndarray, x: np.ndarray) -> int | None:
    """The element of x that is the first one of array; None if it lies elsewhere."""
    start, own = (a.__array_interface__["data"][0] for a in (array, x))
    if 0 <= start - own <= x.nbytes and array.dtype == x.dtype:
        return (start - own) // x.itemsize
    return None


def run(
    xs: list[np.ndarray],
    function: Callable[[Comm, np.ndarray], None],
    timeout_s: float = 20.0,
    prints: bool = True,
) -> tuple[list[Comm], str | None]:
    """function(comm, x) on one thread per rank. -> (comms, what failed first or None)

    Where the two runs have different results, xs becomes the second's.
    prints: the function may print, and the second run must not repeat it. Stdout is the process's,
    so only one thread may run with it at a time.
    """
    stop_s = time.monotonic() + timeout_s

    def once(arrays: list[np.ndarray], eager_bytes: float, arrival: str):
        world = World(len(arrays), eager_bytes, arrival)
        comms = [Comm(world, rank, x) for rank, x in enumerate(arrays)]
        errors: dict[int, BaseException] = {}
        threads = world.start(lambda rank: function(comms[rank], comms[rank].x), errors)
        for thread in threads:
            thread.join(max(0.0, stop_s - time.monotonic()))
        late = any(thread.is_alive() for thread in threads)
        if late:
            world.fail(0, TimeoutError())  # ends those that communicate
        errors = world.broken | errors
        for rank in sorted(errors):  # the lowest one, whichever was first
            if not isinstance(errors[rank], AllRanksBlocked):
                error = errors[rank]
                return comms, f"rank {rank} raised {type(error).__name__}: {str(error)[:300]}"
        if late:
            return comms, f"did not end within {timeout_s:g} s"
        return comms, f"{DEADLOCK}: {world.failure[1]}" if world.failure else None

    again = [x.copy() for x in xs]
    comms, failure = once(xs, 0, "lowest")
    if failure and not failure.startswith(DEADLOCK):
        return comms, failure
    with contextlib.redirect_stdout(io.StringIO()) if prints else contextlib.nullcontext():
        others, other = once(again, np.inf, "highest")
    if failure or other:
        return comms, f"{failure}; {BUFFERED}" if not other else failure or other
    for comm, second in zip(comms, others):
        comm.late = comm.x.tobytes() != second.x.tobytes()
        comm.x[...] = second.x
    return comms, None
