"""Blocking messages that sleep while they wait, so that other ranks compute meanwhile.

    comm = sleeping(comm.Dup())

MPI busy-waits. Yielding between polls does not help on oversubscribed cores: the next time slice
goes to polling again. Here a message is started without blocking, polled after SLEEP_S, and then
every LONG_SLEEP_S, because each poll takes the core from a rank that computes (0.02 ms, and what
the caches lose). Cost: the same messages and bytes, with the same bits; a message may be noticed
one sleep late. Many short messages in a row become slow.

MPI promises progress of a non-blocking call only inside MPI calls. The polls are such calls, and
between two of them the system's buffers keep a link busy (0.2 ms are 25 kB at 1 Gbit/s).
"""

import time
from typing import Any

SLEEP_S, LONG_SLEEP_S = 0.1e-3, 0.2e-3


class SleepingComm:
    """Wraps a communicator of MPI. Everything that does not wait is passed on unchanged."""

    def __init__(self, comm) -> None:
        self._comm = comm

    def __getattr__(self, name: str):
        return getattr(self._comm, name)

    def Dup(self) -> "SleepingComm":
        return SleepingComm(self._comm.Dup())

    def Isend(self, buf, dest: int, tag: int = 0) -> "_SleepingRequest":
        return _SleepingRequest(self._comm.Isend(buf, dest, tag))

    def Irecv(self, buf, source: int, tag: int = 0) -> "_SleepingRequest":
        return _SleepingRequest(self._comm.Irecv(buf, source, tag))

    def Send(self, buf, dest: int, tag: int = 0) -> None:
        self.Isend(buf, dest, tag).Wait()

    def Recv(self, buf, source: int, tag: int = 0) -> None:
        self.Irecv(buf, source, tag).Wait()

    def Sendrecv(self, sendbuf, dest, sendtag=0, recvbuf=None, source=None, recvtag=0) -> None:
        arrived = self.Irecv(recvbuf, source, recvtag)
        self.Isend(sendbuf, dest, sendtag).Wait()
        arrived.Wait()


class _SleepingRequest:
    """A message in flight; `Wait` sleeps between polls."""

    def __init__(self, request) -> None:
        self._request = request

    def Wait(self) -> None:
        sleep_s = SLEEP_S
        while not self._request.Test():
            time.sleep(sleep_s)
            sleep_s = LONG_SLEEP_S


def sleeping(comm: Any) -> Any:
    """`comm` with sleeping messages, counted as before.

    Threads and emulated links sleep anyway, and are returned unchanged.
    """
    if hasattr(comm, "over"):  # a wrapper that counts, such as machine.trace.TracedComm
        return comm.over(sleeping)
    return SleepingComm(comm) if type(comm).__module__.startswith("mpi4py") else comm
