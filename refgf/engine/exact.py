"""Messages of another length than expected raise an error that names both ranks.

    comm = exact(comm)

MPI accepts a message that is too short, and the sum is then wrong silently. If one is too long, it
says only "message truncated". Both happen when ranks hold arrays of different lengths or
types. Everything is received as bytes, because MPICH ends the process if a message does not hold a
whole number of elements. It is sent as bytes too, because Open MPI 4 has no type for float16.
Cost: no message; 0.5 us more for each that is received.
"""

import functools
import sys
from typing import Any, NoReturn

import numpy as np

from refgf.comm.arguments import Comm
from refgf.device import Array


def exact(comm: Any) -> Any:
    """`comm` with checked messages. A communicator that is not mpi4py's is returned unchanged."""
    if hasattr(comm, "over"):  # a wrapper that counts, such as machine.trace.TracedComm
        return comm.over(exact)
    return ExactComm(comm) if type(comm).__module__.startswith("mpi4py") else comm


class ExactComm:
    """Wraps a communicator of MPI. All but sends and receives is passed on unchanged."""

    def __init__(self, comm: Comm) -> None:
        self._comm, self._mpi = comm, sys.modules["mpi4py.MPI"]
        self._status, self._byte = self._mpi.Status(), self._mpi.BYTE

    def __getattr__(self, name: str):
        return getattr(self._comm, name)

    def Send(self, buf: Array, dest: int, tag: int = 0) -> None:
        self._comm.Send((buf, self._byte), dest, tag)

    def Isend(self, buf: Array, dest: int, tag: int = 0) -> Any:
        return self._comm.Isend((buf, self._byte), dest, tag)

    def Recv(self, buf: Array, source: int, tag: int = 0) -> None:
        try:
            self._comm.Recv((buf, self._byte), source, tag, self._status)
        except self._mpi.Exception as error:
            self._explain(error, buf, source)
        self._check(buf, source)

    def Sendrecv(
        self,
        sendbuf: Array,
        dest: int,
        sendtag: int = 0,
        recvbuf: Array | None = None,
        source: int | None = None,
        recvtag: int = 0,
    ) -> None:
        try:
            leaving, arriving = (sendbuf, self._byte), (recvbuf, self._byte)
            self._comm.Sendrecv(leaving, dest, sendtag, arriving, source, recvtag, self._status)
        except self._mpi.Exception as error:
            self._explain(error, recvbuf, source)
        self._check(recvbuf, source)

    def Irecv(self, buf: Array, source: int, tag: int = 0) -> "_ExactRequest":
        return _ExactRequest(self, self._comm.Irecv((buf, self._byte), source, tag), buf, source)

    def wait(self, request: Any, buf: Array, source: int) -> None:
        """Wait for a receive that was started without blocking."""
        try:
            request.Wait(self._status)
        except self._mpi.Exception as error:
            self._explain(error, buf, source)
        self._check(buf, source)

    def Allreduce(self, sendbuf: Any, recvbuf: Array) -> None:
        """The sum over all ranks. In float16 NumPy adds, where the library has no such type."""
        if recvbuf.dtype == np.float16 and (half := _own_half()):
            kind, total = half
            self._comm.Allreduce(sendbuf, (recvbuf, kind), total)
        else:
            self._comm.Allreduce(sendbuf, recvbuf)

    def _explain(self, error: Any, buf, source: int | None) -> NoReturn:
        if error.Get_error_class() != self._mpi.ERR_TRUNCATE:
            raise error
        raise self._error("more", buf, source) from error

    def _check(self, buf, source: int | None) -> None:
        nbytes = self._status.Get_count(self._byte)
        if nbytes != buf.nbytes:
            raise self._error(nbytes, buf, source)

    def _error(self, got: int | str, buf, source: int | None) -> ValueError:
        return ValueError(
            f"message from rank {source} to rank {self._comm.rank}: got {got} bytes; wanted "
            f"{buf.nbytes}; next: give every rank an array of the same length and type, the same "
            "algorithm and the same wire type"
        )


@functools.cache
def _own_half() -> tuple[Any, Any] | None:
    """A type of two bytes and its sum as float16; None where the library is known to have both.

    Open MPI 4 has the type's name only, and MPICH 4.0's sum of it ends the process.
    """
    mpi = sys.modules["mpi4py.MPI"]
    vendor, version = mpi.get_vendor()
    if vendor in ("MPICH", "Open MPI") and version >= (5,):
        try:
            if mpi.Datatype.fromcode("e").Get_size() == 2:
                return None
        except mpi.Exception:
            pass  # built without it

    def add(x: memoryview, total: memoryview, _: Any) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            np.frombuffer(total, np.float16)[...] += np.frombuffer(x, np.float16)

    return mpi.BYTE.Create_contiguous(2).Commit(), mpi.Op.Create(add, commute=True)


class _ExactRequest:
    """A receive in flight."""

    def __init__(self, comm: ExactComm, request, buf, source: int) -> None:
        self._comm, self._request, self._message = comm, request, (buf, source)

    def Wait(self) -> None:
        self._comm.wait(self._request, *self._message)
