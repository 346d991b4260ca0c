"""Runs p ranks as p threads of one process, without MPI: for tests, notebooks and debuggers.

    run(4, function, ...)     calls function(comm, ...) on 4 ranks and returns their 4 results

`ThreadComm` has the methods of mpi4py's communicator that this project uses. A send blocks until
its receiver has taken the bytes (rendezvous), as in MPI for large messages: a program that relies
on MPI's buffering of small messages fails here. When all ranks of a communicator wait on it, each
raises `Deadlock` with the ranks that wait for each other. So they do after 2 * STILL_S seconds when
they wait on different communicators. When one rank raises, the others raise `Aborted`.
"""

import collections
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

MOST_RANKS = 4096  # a thread each: far above this a process gets no more of them
STILL_S = 1.0


class Deadlock(RuntimeError):
    """All ranks that are still running wait for each other."""


class Aborted(RuntimeError):
    """Another rank has failed."""


def run(size: int, function: Callable, *args: Any) -> list[Any]:
    """Call function(comm, *args) on `size` ranks, a thread each; return [result of rank 0, ...].

    If a rank raises, the others are aborted and the first exception is raised here. After Ctrl-C it
    raises at once; ranks that do not communicate end with the process.
    """
    if not 1 <= size <= MOST_RANKS:
        wanted = f"wanted 1 to {MOST_RANKS}; next: run(4, ...)"
        raise ValueError(f"threads.run: got {size} ranks; {wanted}")
    world = _World(size)
    results = [None] * size

    def main(rank: int) -> None:
        try:
            world.enter(rank)
            results[rank] = function(ThreadComm(world, rank), *args)
        except BaseException as error:  # SystemExit and KeyboardInterrupt must wake the others too
            world.fail(rank, error)
        finally:
            world.leave(rank)

    threads = [
        threading.Thread(target=main, args=(rank,), name=f"rank {rank}", daemon=True)
        for rank in range(size)
    ]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException as error:
        world.fail(0, error)
        raise
    if world.failure:
        raise world.failure[1]
    return results


class ThreadComm:
    """One rank's end of a communicator between threads, with methods of mpi4py's `Comm`."""

    host_only = True  # messages lie in host memory, see refgf/engine/staging.py

    def __init__(self, world: "_World", rank: int) -> None:
        self._world = world
        self.rank, self.size = rank, world.size
        self._dups = 0

    def Get_rank(self) -> int:
        return self.rank

    def Get_size(self) -> int:
        return self.size

    def Isend(self, buf: np.ndarray, dest: int, tag: int = 0) -> "_Operation":
        return self._world.post(
            _Operation("send", self.rank, dest, tag, np.asarray(buf), self._world)
        )

    def Irecv(self, buf: np.ndarray, source: int, tag: int = 0) -> "_Operation":
        return self._world.post(_Operation("receive", self.rank, source, tag, buf, self._world))

    def Send(self, buf: np.ndarray, dest: int, tag: int = 0) -> None:
        self.Isend(buf, dest, tag).Wait()

    def Recv(self, buf: np.ndarray, source: int, tag: int = 0) -> None:
        self.Irecv(buf, source, tag).Wait()

    def Sendrecv(
        self,
        sendbuf: np.ndarray,
        dest: int,
        sendtag: int = 0,
        recvbuf: np.ndarray | None = None,
        source: int | None = None,
        recvtag: int = 0,
    ) -> None:
        receive = self.Irecv(recvbuf, source, recvtag)
        send = self.Isend(sendbuf, dest, sendtag)
        self._world.wait(self.rank, [send, receive])

    def allgather(self, obj: Any) -> list[Any]:
        """Every rank's object, by reference: do not change what you receive."""
        return self._world.gather(self.rank, obj)

    def Barrier(self) -> None:
        self.allgather(None)

    def bcast(self, obj: Any = None, root: int = 0) -> Any:
        return self.allgather(obj)[root]

    def allreduce(self, obj: Any, op: Callable = sum) -> Any:
        """op reduces the list of all ranks' objects in rank order: sum, max, min ..."""
        return op(self.allgather(obj))

    def Dup(self) -> "ThreadComm":
        """Collective. Messages of the new communicator never meet those of this one."""
        self._dups += 1
        return ThreadComm(self._world.child(self._dups, range(self.size)), self.rank)

    def Split(self, color: int, key: int = 0) -> "ThreadComm":
        """Collective. The ranks of one colour form a communicator, ordered by key, then by rank."""
        self._dups += 1
        answers = self.allgather((color, key))
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


class _Operation:
    """A posted send or receive; `Wait` as in mpi4py's Request."""

    def __init__(self, kind, rank, peer, tag, buf, world) -> None:
        if not 0 <= peer < world.size:
            raise ValueError(
                f"{kind} on rank {rank}: got peer {peer}; wanted 0 to {world.size - 1}; "
                "next: take the rank modulo the size"
            )
        self.kind, self.rank, self.peer, self.tag, self.buf = kind, rank, peer, tag, buf
        self.done = False
        self._world = world

    def Wait(self) -> None:
        self._world.wait(self.rank, [self])

    def Test(self) -> bool:
        return self.done

    def __str__(self) -> str:
        return f"to {self.kind} {'to' if self.kind == 'send' else 'from'} rank {self.peer}"


class _Gathering:
    """A collective that ends when every rank has contributed its object."""

    def __init__(self, size: int) -> None:
        self.objects = {}
        self.size, self.readers = size, 0

    @property
    def done(self) -> bool:
        return len(self.objects) == self.size

    def __str__(self) -> str:
        return "in a barrier or another collective"


class _World:
    """The state that the ranks of one communicator share; one lock protects all of it."""

    def __init__(self, size: int, parent: "_World | None" = None, members=()) -> None:
        self.size = size
        self.changed = parent.changed if parent else threading.Condition()
        self.failure = None  # (rank, exception), the first one
        self._root = parent._root if parent else self
        self._root_ranks = [parent._root_ranks[r] for r in members] if parent else range(size)
        # of the root: thread -> (rank, operations it waits for)
        self._threads = {}
        self._still = None  # of the root: (since when, where) nothing moves
        self._running = set(range(size))
        # (kind, sender, receiver, tag) -> operations
        self._posted = collections.defaultdict(collections.deque)
        self._waiting = {}  # rank -> operations it waits for
        self._children = {}
        self._gathering = [0] * size  # collectives that each rank has entered
        self._gatherings = collections.defaultdict(lambda: _Gathering(size))

    def post(self, operation: _Operation) -> _Operation:
        """Match with the oldest fitting operation of the peer, or queue."""
        sending = operation.kind == "send"
        ends = (operation.rank, operation.peer) if sending else (operation.peer, operation.rank)
        with self.changed:
            self._raise_failure()
            self._root._still = None
            other = self._posted[("receive" if sending else "send", *ends, operation.tag)]
            if other:
                partner = other.popleft()
                _copy_message(*((operation, partner) if sending else (partner, operation)))
                operation.done = partner.done = True
                self.changed.notify_all()
            else:
                self._posted[(operation.kind, *ends, operation.tag)].append(operation)
        return operation

    def wait(self, rank: int, operations: list) -> None:
        with self.changed:
            self._waiting[rank] = operations
            self._root.enter(self._root_ranks[rank], operations)
            self._detect_deadlock()
            while not all(o.done for o in operations):
                self._raise_failure()
                if not self.changed.wait(STILL_S):
                    self._root.detect_standstill()
            del self._waiting[rank]
            self._root.enter(self._root_ranks[rank])

    def enter(self, rank: int, operations: list | None = None) -> None:
        """To the root: this thread is one of this rank's, and waits for these operations."""
        self._threads[threading.get_ident()] = rank, operations
        self._still = None

    def gather(self, rank: int, obj: Any) -> list:
        with self.changed:
            number = self._gathering[rank] = self._gathering[rank] + 1
            gathering = self._gatherings[number]
            gathering.objects[rank] = obj
            self.changed.notify_all()
        self.wait(rank, [gathering])
        with self.changed:
            gathering.readers += 1
            if gathering.readers == self.size:
                del self._gatherings[number]
        return [gathering.objects[r] for r in range(self.size)]

    def child(self, number: int, members: Sequence[int]) -> "_World":
        """The world of these ranks; all ranks get the same one for the same number."""
        with self.changed:
            if number not in self._children:
                used = {n: pair for n, pair in self._children.items() if pair[0].in_use()}
                child = _World(len(members), self, members)
                child.failure = self.failure
                child._running = {i for i, r in enumerate(members) if r in self._running}
                self._children = used | {number: (child, list(members))}
            return self._children[number][0]

    def in_use(self) -> bool:
        """Is there a rank that has not freed it, or a world made from it that is in use?"""
        return bool(self._running) or any(child.in_use() for child, _ in self._children.values())

    def fail(self, rank: int, error: BaseException) -> None:
        with self.changed:
            self.failure = self.failure or (rank, error)
            for child, _ in self._children.values():
                child.fail(rank, error)
            self.changed.notify_all()

    def leave(self, rank: int) -> None:
        """This rank sends and receives nothing more, on any communicator."""
        with self.changed:
            for child, members in self._children.values():
                if rank in members:
                    child.leave(members.index(rank))
            self.free(rank)

    def free(self, rank: int) -> None:
        """This rank sends and receives nothing more on this communicator."""
        with self.changed:
            self._running.discard(rank)
            self._detect_deadlock()

    def _detect_deadlock(self) -> None:
        stuck = {r: [o for o in os if not o.done] for r, os in self._waiting.items()}
        if self._running <= stuck.keys() and all(stuck.values()) and stuck and not self.failure:
            waits = [f"rank {r} waits {' and '.join(map(str, stuck[r]))}" for r in sorted(stuck)]
            gone = sorted(set(range(self.size)) - self._running)
            if gone:
                waits.append(f"rank {', '.join(map(str, gone))} has already returned")
            self.fail(min(stuck), Deadlock("; ".join(waits)))

    def detect_standstill(self) -> None:
        """To the root: do ranks wait for each other on different communicators?

        Each rank that runs has a thread that waits for messages, and for STILL_S seconds no message
        came and no thread moved: those that wait for no message may wait for those that do.
        """
        frames, stuck, where = sys._current_frames(), {}, []
        for thread in sorted(self._threads.keys() & frames.keys()):
            rank, operations = self._threads[thread]
            if operations is None:
                where.append((thread, id(frames[thread]), frames[thread].f_lasti, _cpu_s(thread)))
            elif not (unfinished := [o for o in operations if not o.done]):
                return  # it goes on in a moment
            else:
                stuck[rank] = f"rank {rank} waits {' and '.join(map(str, unfinished))}"
        if not self._running <= stuck.keys():
            self._still = None
        elif self._still is None or self._still[1] != where:
            self._still = time.monotonic(), where
        elif time.monotonic() - self._still[0] >= STILL_S and not self.failure:
            waits = "; ".join(text for _, text in sorted(stuck.items()))
            self.fail(min(stuck), Deadlock(f"on several communicators: {waits}"))

    def _raise_failure(self) -> None:
        if self.failure:
            rank, error = self.failure
            if isinstance(error, Deadlock):
                raise Deadlock(str(error))
            raise Aborted(f"rank {rank} failed: {type(error).__name__}: {error}")


def _cpu_s(thread: int) -> float:
    """Seconds that a thread has computed; 0 where the system does not say (macOS)."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return 0.0
    return time.clock_gettime(time.pthread_getcpuclockid(thread))


def _copy_message(send: _Operation, receive: _Operation) -> None:
    """Copy the message; ValueError where MPI has an error."""
    message = f"message from rank {send.rank} to rank {receive.rank}"
    if send.buf.dtype != receive.buf.dtype:
        raise ValueError(
            f"{message}: got {send.buf.dtype}; wanted the receiver's {receive.buf.dtype}; "
            "next: use the same dtype on all ranks"
        )
    if send.buf.size > receive.buf.size:
        raise ValueError(
            f"{message}: got {send.buf.size} elements; wanted at most the receiver's "
            f"{receive.buf.size}; next: compare the sizes on both ranks"
        )
    receive.buf.reshape(-1)[: send.buf.size] = send.buf.reshape(-1)
