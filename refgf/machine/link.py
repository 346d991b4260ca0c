"""A communicator that emulates a link by waiting, for machines that cannot run an emulated cluster.

    comm = LinkComm(comm, parse_link("1gbit,50us"))

Each rank has one link, as if it were a node of its own. A message of m bytes occupies the sender's
side of the link for m * beta seconds and arrives alpha seconds later. Sends of one rank queue
behind each other; duplicates of the communicator share the link. Sending and receiving are
concurrent. So a `Sendrecv` ends after

    max(own start + own cost, sender's start + sender's cost)          cost = alpha + m * beta

This is the alpha-beta model of refgf/predict/cost.py. A measurement on this communicator therefore
tests a prediction's bookkeeping, never the model. Not modelled: two senders that share a receiver's
link, protocol headers, lost packets. The real message is sent after the wait. Its time adds, which
matters only for a link faster than this machine. `Barrier` and the lower-case collectives are not
delayed, because they are control and not data.
"""

import threading
import time
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from refgf.comm.arguments import Comm
from refgf.machine.units import parse_rate, parse_time
from refgf.predict.cost import Link

SPIN_S = 200e-6  # sleep() may return this much too late; the rest of a wait is spent yielding


def parse_link(text: str) -> Link:
    """'1gbit,50us' -> Link(alpha_s=5e-05, beta_s_per_byte=8e-09)."""
    rate, comma, latency = text.partition(",")
    if not comma:
        wanted = "a rate and a latency with a comma between; next: try 1gbit,50us"
        raise ValueError(f"link: got {text!r}; wanted {wanted}")
    return Link(parse_time(latency), 1 / parse_rate(rate))


class LinkComm:
    """Wraps a communicator. Blocking messages take the link's time; MPI's collectives raise.

    near: ranks of the same node, whose messages do not cross the link
    """

    def __init__(
        self, comm: Comm, link: Link, near: Collection[int] = (), line: "_Line | None" = None
    ) -> None:
        self._comm, self.link, self.host_only = comm, link, getattr(comm, "host_only", False)
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self._near, self._line = frozenset(near), line or _Line()

    def Get_rank(self) -> int:
        return self.rank

    def Get_size(self) -> int:
        return self.size

    def Send(self, buf: np.ndarray, dest: int, tag: int = 0) -> None:
        self._wait(buf, dest)
        self._comm.Send(buf, dest, tag)

    def Recv(self, buf: np.ndarray, source: int, tag: int = 0) -> None:
        self._comm.Recv(buf, source, tag)

    def Sendrecv(
        self,
        sendbuf: np.ndarray,
        dest: int,
        sendtag: int = 0,
        recvbuf: np.ndarray | None = None,
        source: int | None = None,
        recvtag: int = 0,
    ) -> None:
        self._wait(sendbuf, dest)
        self._comm.Sendrecv(sendbuf, dest, sendtag, recvbuf, source, recvtag)

    def _wait(self, buf: np.ndarray, dest: int) -> None:
        if dest not in self._near:
            self._line.wait(self.link, buf.nbytes, dest)

    def Barrier(self) -> None:
        self._comm.Barrier()

    def allgather(self, obj: Any) -> list[Any]:
        return self._comm.allgather(obj)

    def bcast(self, obj: Any = None, root: int = 0) -> Any:
        return self._comm.bcast(obj, root)

    def allreduce(self, obj: Any, *op: Any) -> Any:
        return self._comm.allreduce(obj, *op)

    def Dup(self) -> "LinkComm":
        """A duplicate shares this rank's link: their messages queue behind each other."""
        return self.over(lambda comm: comm.Dup())

    def over(self, wrap: Callable) -> "LinkComm":
        """A LinkComm over wrap(the wrapped communicator) that shares this rank's link."""
        return LinkComm(wrap(self._comm), self.link, self._near, self._line)

    def Free(self) -> None:
        self._comm.Free()

    def Abort(self, errorcode: int = 1) -> None:
        self._comm.Abort(errorcode)

    def __getattr__(self, name: str):
        raise AttributeError(
            f"LinkComm on rank {self.rank}: got {name}; wanted one of Send, Recv, Sendrecv, "
            "Barrier, allgather, bcast, allreduce, Dup, because only these emulate the link; "
            "next: use a schedule of refgf.comm, or run without --link"
        )


class _Line:
    """The sending side of one rank's link, and the time when it is free again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free_s = 0.0

    def wait(self, link: Link, nbytes: int, dest: int) -> None:
        """Return when a message posted now arrives; at once for dest < 0, MPI's PROC_NULL."""
        if dest < 0:
            return
        with self._lock:
            self._free_s = max(self._free_s, time.perf_counter()) + nbytes * link.beta_s_per_byte
            arrival_s = self._free_s + link.alpha_s
        wait_until(arrival_s)


def wait_until(deadline_s: float) -> None:
    """Return at deadline_s on time.perf_counter's clock, or at once; exact to microseconds."""
    remaining_s = deadline_s - time.perf_counter()
    if remaining_s > SPIN_S:
        time.sleep(remaining_s - SPIN_S)
    while time.perf_counter() < deadline_s:
        time.sleep(0)  # let another rank have the core
