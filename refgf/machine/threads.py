"""Runs p ranks as p threads of one process, with MPI's rules and without MPI.

    run(4, function, ...)     calls function(comm, ...) on 4 ranks and returns their 4 results

`ThreadComm` has the methods of mpi4py's communicator that this project uses. Messages are matched
as in MPI (matching.py), and arrays that mpi4py refuses are refused (buffers.py). By default a send
blocks until its receive is posted, as in MPI for large messages, so a program that relies on MPI's
buffering of small messages fails here; messages of less than `eager_bytes` do not block. When all
ranks of a communicator wait on it, each raises `Deadlock` with the ranks that wait for each other.
So they do after 2 * STILL_S seconds when they wait on different communicators. When one rank
raises, the others raise `Aborted`. `Unfinished` is raised where a message was never received or a
request never completed. The judge of foreign code uses the same ranks (oracle/foreign/ranks.py).
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from refgf.machine.buffers import elements, peer_rank, tag_number
from refgf.machine.matching import ANY_SOURCE, ANY_TAG, Request, Wildcard
from refgf.machine.world import Aborted, Deadlock, Unfinished, World, require_own_array

__all__ = ["ANY_SOURCE", "ANY_TAG", "Aborted", "Deadlock", "Unfinished", "Request", "World"]
__all__ += ["Messages", "ThreadComm", "require_own_array", "run"]

MOST_RANKS = 4096  # a thread each: far above this a process gets no more of them


def run(size: int, function: Callable, *args: Any, eager_bytes: float = 0) -> list[Any]:
    """Call function(comm, *args) on `size` ranks, a thread each; return [result of rank 0, ...].

    eager_bytes: a message of fewer bytes does not wait for its receive.

    If a rank raises, the others are aborted and the first exception is raised here. After Ctrl-C it
    raises at once; ranks that do not communicate end with the process.
    """
    if not 1 <= size <= MOST_RANKS:
        wanted = f"wanted 1 to {MOST_RANKS}; next: run(4, ...)"
        raise ValueError(f"threads.run: got {size} ranks; {wanted}")
    world = World(size, eager_bytes)
    results = [None] * size

    def body(rank: int) -> None:
        results[rank] = function(ThreadComm(world, rank), *args)

    threads = world.start(body)
    try:
        for thread in threads:
            thread.join()
    except BaseException as error:
        world.fail(0, error)
        raise
    if world.failure:
        raise world.failure[1]
    for broken in world.broken.values():
        raise broken
    for left in world.unfinished():
        raise Unfinished(left)
    return results


class Messages:
    """One rank's end of a communicator between threads: messages, as with mpi4py's `Comm`."""

    host_only = True  # messages lie in host memory, see refgf/engine/staging.py

    def __init__(self, world: World, rank: int) -> None:
        self._world = world
        self.rank, self.size = rank, world.size

    def Get_rank(self) -> int:
        return self.rank

    def Get_size(self) -> int:
        return self.size

    def Send(self, buf: np.ndarray, dest: int, tag: int = 0) -> None:
        self._post(self._send("Send", buf, dest, tag))[0].Wait()

    def Recv(
        self, buf: np.ndarray, source: int | Wildcard = ANY_SOURCE, tag: int | Wildcard = ANY_TAG
    ) -> None:
        self._post(self._receive("Recv", buf, source, tag))[0].Wait()

    def Isend(self, buf: np.ndarray, dest: int, tag: int = 0) -> Request:
        return self._post(self._send("Isend", buf, dest, tag))[0]

    def Irecv(
        self, buf: np.ndarray, source: int | Wildcard = ANY_SOURCE, tag: int | Wildcard = ANY_TAG
    ) -> Request:
        return self._post(self._receive("Irecv", buf, source, tag))[0]

    def Sendrecv(
        self,
        sendbuf: np.ndarray,
        dest: int,
        sendtag: int = 0,
        recvbuf: np.ndarray | None = None,
        source: int | Wildcard = ANY_SOURCE,
        recvtag: int | Wildcard = ANY_TAG,
    ) -> None:
        """Send and receive at the same time."""
        elements("Sendrecv", self.rank, recvbuf, receives=True)  # before the ranks: their order
        send = self._send("Sendrecv", sendbuf, dest, sendtag)
        self._world.wait(
            self.rank, self._post(self._receive("Sendrecv", recvbuf, source, recvtag), send)
        )

    def Barrier(self) -> None:
        self._world.collect(self.rank, "Barrier", None)

    def _send(self, call: str, buf: np.ndarray, dest: int, tag: int) -> Request:
        array = elements(call, self.rank, buf, receives=False)
        ranks = self.rank, peer_rank(call, self.rank, dest, self.size)
        return Request(self._world, call, ranks, tag_number(call, self.rank, tag), array, True)

    def _receive(
        self, call: str, buf: np.ndarray | None, source: int | Wildcard, tag: int | Wildcard
    ) -> Request:
        array = elements(call, self.rank, buf, receives=True)
        if source is not ANY_SOURCE:
            source = peer_rank(call, self.rank, source, self.size)
        tag = tag if tag is ANY_TAG else tag_number(call, self.rank, tag)
        return Request(self._world, call, (self.rank, source), tag, array, False)

    def _post(self, *requests: Request) -> tuple[Request, ...]:
        self._world.post(requests)
        return requests


class ThreadComm(Messages):
    """A communicator between threads, with collectives and communicators made from it."""

    def __init__(self, world: World, rank: int) -> None:
        super().__init__(world, rank)
        self._dups = 0

    def allgather(self, obj: Any) -> list[Any]:
        """Every rank's object, by reference: do not change what you receive."""
        return self._world.collect(self.rank, "allgather", obj)

    def bcast(self, obj: Any = None, root: int = 0) -> Any:
        return self._world.collect(self.rank, f"bcast from rank {root}", obj)[root]

    def allreduce(self, obj: Any, op: Callable = sum) -> Any:
        """op reduces the list of all ranks' objects in rank order: sum, max, min ..."""
        return op(self._world.collect(self.rank, "allreduce", obj))

    def Dup(self) -> "ThreadComm":
        """Collective. Messages of the new communicator never meet those of this one."""
        self._dups += 1
        return ThreadComm(self._world.child(self._dups, range(self.size)), self.rank)

    def Split(self, color: int, key: int = 0) -> "ThreadComm":
        """Collective. The ranks of one colour form a communicator, ordered by key, then by rank."""
        self._dups += 1
        answers = self._world.collect(self.rank, "Split", (color, key))
        members = [r for r in range(self.size) if answers[r][0] == color]
        members.sort(key=lambda r: (answers[r][1], r))
        return ThreadComm(self._world.child((self._dups, color), members), members.index(self.rank))

    def Split_type(self, split_type: int) -> "ThreadComm":
        """Collective. A communicator of all ranks, because threads share their memory."""
        return self.Dup()

    def Free(self) -> None:
        """Communicators made from this one stay valid."""
        self._world.free(self.rank)

    def Abort(self, errorcode: int = 1) -> None:
        self._world.fail(self.rank, SystemExit(errorcode))
