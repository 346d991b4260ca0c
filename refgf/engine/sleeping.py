"""Blocking messages that sleep while they wait, so that other ranks compute meanwhile.

    comm = sleeping(comm.Dup())

MPI busy-waits. Yielding between polls does not help on oversubscribed cores: the next time slice
goes to polling again. Here a message is started without blocking, polled after SLEEP_S, and then
every LONG_SLEEP_S, because each poll takes the core from a rank that computes (0.02 ms, and what
the caches lose). Cost: the same messages and bytes, with the same bits; a message may be noticed
one sleep late. Many short messages in a row become slow.

MPI promises progress of a non-blocking call only inside MPI calls. The polls are such calls, and
between two of them the system's buffers keep a link busy (0.2 ms are 25 kB at 1 Gbit/s).

`Sendrecv` cuts long messages into segments of SEGMENT_BYTES, with IN_FLIGHT of them at a time. Two
ranks that exchange one long message each may send them one after the other. MPICH over TCP, 40 MB
each way at 1 Gbit/s: 0.70 s in place of 0.35 s, 1 of 16 times on a quiet machine, 7 of 8 on a busy
one; with segments always 0.35 s.
All ranks of a communicator have to be wrapped, so that both ends cut alike.
"""

import sys
import time
from collections import deque
from itertools import zip_longest
from typing import Any

import numpy as np

from refgf.comm.arguments import Comm
from refgf.device import Array

SLEEP_S, LONG_SLEEP_S = 0.1e-3, 0.2e-3
SEGMENT_BYTES, IN_FLIGHT = 1 << 20, 2
END = object()  # no more segments on this side


class SleepingComm:
    """Wraps a communicator of MPI. Everything that does not wait is passed on unchanged."""

    def __init__(self, comm: Comm) -> None:
        self._comm, self._byte = comm, sys.modules["mpi4py.MPI"].BYTE  # Open MPI 4 has no float16

    def __getattr__(self, name: str):
        return getattr(self._comm, name)

    def Dup(self) -> "SleepingComm":
        return SleepingComm(self._comm.Dup())

    def Isend(self, buf: Array, dest: int, tag: int = 0) -> "_SleepingRequest":
        return _SleepingRequest(self._comm.Isend((buf, self._byte), dest, tag))

    def Irecv(self, buf: Array, source: int, tag: int = 0) -> "_SleepingRequest":
        return _SleepingRequest(self._comm.Irecv((buf, self._byte), source, tag))

    def Send(self, buf: Array, dest: int, tag: int = 0) -> None:
        self.Isend(buf, dest, tag).Wait()

    def Recv(self, buf: Array, source: int, tag: int = 0) -> None:
        self.Irecv(buf, source, tag).Wait()

    def Sendrecv(
        self,
        sendbuf: Array,
        dest: int,
        sendtag: int = 0,
        recvbuf: Array | None = None,
        source: int | None = None,
        recvtag: int = 0,
    ) -> None:
        waiting, pairs = deque(), zip_longest(segments(recvbuf), segments(sendbuf), fillvalue=END)
        for incoming, outgoing in pairs:
            if incoming is not END:
                waiting.append(self.Irecv(incoming, source, recvtag))
            if outgoing is not END:
                waiting.append(self.Isend(outgoing, dest, sendtag))
            while len(waiting) > 2 * IN_FLIGHT:
                waiting.popleft().Wait()
        for request in waiting:
            request.Wait()


def segments(x: Any) -> list:
    """A flat array (n,) in segments of SEGMENT_BYTES, the last one shorter; else [x]."""
    if not isinstance(x, np.ndarray) or x.ndim != 1 or x.nbytes <= SEGMENT_BYTES:
        return [x]
    n = SEGMENT_BYTES // x.itemsize
    return [x[start : start + n] for start in range(0, x.size, n)]


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
