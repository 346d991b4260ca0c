"""A communicator that behaves like a stated link, by waiting: for machines on which no cluster can be emulated.

    comm = LinkComm(comm, parse_link("1gbit,50us"))

Each rank has one link, as if every rank were a node of its own. A message of m bytes occupies the sender's side of the
link for m * beta seconds and arrives alpha seconds later; sends of one rank queue behind each other (duplicates of the
communicator share the link), sending and receiving go on at the same time. So a `Sendrecv` ends after

    max(own start + own cost, sender's start + sender's cost)          cost = alpha + m * beta

which is the alpha-beta model of `predict/cost.py`, word for word: a measurement on this communicator tests the
prediction's bookkeeping, never the model. Not modelled: two senders that share a receiver's link, protocol headers,
lost packets. The real message moves in no time after the wait; where it takes long itself (a link faster than this
machine), it adds. `Barrier` and the lower-case collectives are not slowed: they are control, not data.
"""

import threading
import time

from refgf.machine.units import Link

SPIN_S = 200e-6  # sleep() may come back this much too late; the rest of a wait is spent yielding


class LinkComm:
    """Wraps a communicator; blocking messages take as long as `link` says. MPI's own collectives are refused."""

    def __init__(self, comm, link: Link, line: "_Line | None" = None) -> None:
        self._comm, self.link, self.host_only = comm, link, getattr(comm, "host_only", False)
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self._line = line or _Line()

    def Get_rank(self) -> int:
        return self.rank

    def Get_size(self) -> int:
        return self.size

    def Send(self, buf, dest: int, tag: int = 0) -> None:
        self._line.carry(self.link, buf.nbytes, dest)
        self._comm.Send(buf, dest, tag)

    def Recv(self, buf, source: int, tag: int = 0) -> None:
        self._comm.Recv(buf, source, tag)

    def Sendrecv(self, sendbuf, dest, sendtag=0, recvbuf=None, source=None, recvtag=0) -> None:
        self._line.carry(self.link, sendbuf.nbytes, dest)
        self._comm.Sendrecv(sendbuf, dest, sendtag, recvbuf, source, recvtag)

    def Barrier(self) -> None:
        self._comm.Barrier()

    def allgather(self, obj) -> list:
        return self._comm.allgather(obj)

    def bcast(self, obj=None, root: int = 0):
        return self._comm.bcast(obj, root)

    def allreduce(self, obj, *op):
        return self._comm.allreduce(obj, *op)

    def Dup(self) -> "LinkComm":
        """A duplicate shares this rank's link: their messages queue behind each other."""
        return LinkComm(self._comm.Dup(), self.link, self._line)

    def Free(self) -> None:
        self._comm.Free()

    def Abort(self, errorcode: int = 1) -> None:
        self._comm.Abort(errorcode)

    def __getattr__(self, name: str):
        raise AttributeError(
            f"LinkComm on rank {self.rank}: got {name}; wanted one of Send, Recv, Sendrecv, Barrier, allgather, bcast, "
            f"allreduce, Dup, as only these know the stated link; next: use a schedule of refgf.comm, or run without --link"
        )


class _Line:
    """The sending side of one rank's link: when it is free again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free_s = 0.0

    def carry(self, link: Link, nbytes: int, dest: int) -> None:
        """Return when a message of nbytes that is handed over now has arrived. dest < 0 is MPI's PROC_NULL: at once."""
        if dest < 0:
            return
        with self._lock:
            self._free_s = max(self._free_s, time.perf_counter()) + nbytes * link.beta_s_per_byte
            arrival_s = self._free_s + link.alpha_s
        wait_until(arrival_s)


def wait_until(deadline_s: float) -> None:
    """Return at deadline_s on time.perf_counter's clock, or at once if it has passed; exact to some microseconds."""
    remaining_s = deadline_s - time.perf_counter()
    if remaining_s > SPIN_S:
        time.sleep(remaining_s - SPIN_S)
    while time.perf_counter() < deadline_s:
        time.sleep(0)  # let another rank have the core
