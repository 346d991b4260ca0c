"""Blocking messages that sleep while they wait, where somebody else could compute meanwhile.

    comm = patient(comm.Dup())

A rank that waits inside MPI asks all the time whether its message is there. Giving the core away between two questions does
not help where others have work: the next turn is spent on asking again, and computing gets what is left. Here a message is
started without waiting, then asked for after NAP_S, and then every LONG_NAP_S, as each question takes the core from somebody
who computes (0.02 ms, without what the caches lose). Same messages, same bytes, same bits; a message may be noticed a nap
late. So this is not for many short messages, one after the other.

A non-blocking call makes no progress by itself; the questions make it, and between two of them it is the system's buffers
that keep a link busy (0.2 ms are 25 kB at 1 Gbit/s).
"""

import time

from refgf.comm.trace import TracedComm

NAP_S, LONG_NAP_S = 0.1e-3, 0.2e-3


class PatientComm:
    """Wraps a communicator of MPI; everything that does not wait is passed on as it is."""

    def __init__(self, comm) -> None:
        self._comm = comm

    def __getattr__(self, name: str):
        return getattr(self._comm, name)

    def Dup(self) -> "PatientComm":
        return PatientComm(self._comm.Dup())

    def Isend(self, buf, dest: int, tag: int = 0) -> "_Asleep":
        return _Asleep(self._comm.Isend(buf, dest, tag))

    def Irecv(self, buf, source: int, tag: int = 0) -> "_Asleep":
        return _Asleep(self._comm.Irecv(buf, source, tag))

    def Send(self, buf, dest: int, tag: int = 0) -> None:
        self.Isend(buf, dest, tag).Wait()

    def Recv(self, buf, source: int, tag: int = 0) -> None:
        self.Irecv(buf, source, tag).Wait()

    def Sendrecv(self, sendbuf, dest, sendtag=0, recvbuf=None, source=None, recvtag=0) -> None:
        arrived = self.Irecv(recvbuf, source, recvtag)
        self.Isend(sendbuf, dest, sendtag).Wait()
        arrived.Wait()


class _Asleep:
    """A message that was started, and is waited for asleep."""

    def __init__(self, request) -> None:
        self._request = request

    def Wait(self) -> None:
        nap_s = NAP_S
        while not self._request.Test():
            time.sleep(nap_s)
            nap_s = LONG_NAP_S


def patient(comm):
    """`comm` with patient messages, counted as before. Threads and stated links sleep anyway, and are returned as they are."""
    if isinstance(comm, TracedComm):
        return comm.over(patient)
    return PatientComm(comm) if type(comm).__module__.startswith("mpi4py") else comm

