"""What ranks that are threads share: which waits for what, deadlocks, what is left at the end."""

import collections
import contextlib
import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from refgf.machine.buffers import overlap
from refgf.machine.matching import Mailbox, Request

STILL_S = 1.0


class Deadlock(RuntimeError):
    """All ranks that are still running wait for each other."""


class Aborted(RuntimeError):
    """Another rank has failed."""


class Unfinished(RuntimeError):
    """All ranks have returned, but a message was not received or a request not completed."""


class PendingCollective:
    """It ends when every rank has contributed its object."""

    def __init__(self, size: int) -> None:
        self.size, self.readers = size, 0
        self.calls: dict[int, str] = {}
        self.objects: dict[int, Any] = {}

    @property
    def done(self) -> bool:
        return len(self.objects) == self.size

    def complete(self) -> None:
        """ValueError unless all ranks have made the same call."""
        (first, call), *others = sorted(self.calls.items())
        for rank, other in others:
            if other != call:
                raise ValueError(
                    f"collective: got {call} on rank {first} and {other} on rank {rank}; wanted "
                    "the same calls on all ranks of a communicator, in the same order; "
                    "next: look for a branch that only some ranks take"
                )

    def __str__(self) -> str:
        missing = ", ".join(str(r) for r in range(self.size) if r not in self.objects)
        return f"in {' or '.join(sorted(set(self.calls.values())))} for rank {missing}"


class World:
    """The state that the ranks of one communicator share; one lock protects all of it."""

    def __init__(
        self,
        size: int,
        eager_bytes: float = 0,
        arrival: str = "first",
        parent: "World | None" = None,
        members: Sequence[int] = (),
    ) -> None:
        self.size, self.eager_bytes, self.mailbox = size, eager_bytes, Mailbox(size, arrival)
        self.changed = parent.changed if parent else threading.Condition()
        self.failure: tuple[int, BaseException] | None = None  # (rank, exception), the first one
        self._root = parent._root if parent else self
        self._root_ranks = [parent._root_ranks[r] for r in members] if parent else range(size)
        self._running = set(range(size))
        self._waiting: dict[int, tuple[int, list]] = {}  # thread -> (rank, operations)
        self._children: dict[Any, tuple[World, list[int]]] = {}
        self._entered = [0] * size  # collectives that each rank has entered
        self._collectives = collections.defaultdict(lambda: PendingCollective(size))
        # of the root: thread -> (rank, operations it waits for); rank -> requests not completed
        self._threads: dict[int, tuple[int, list | None]] = {}
        self._posted: list[list[Request]] = [] if parent else [[] for _ in range(size)]
        self.broken: dict[int, ValueError] = {}  # of the root: rank -> the first rule it has broken
        self._still = None  # of the root: (since when, where) nothing moves

    def start(
        self, body: Callable[[int], None], errors: dict[int, BaseException] | None = None
    ) -> list[threading.Thread]:
        """body(rank) of each rank, in a thread each.

        errors: gets what each rank raises, and the other ranks go on. Without it they are aborted.
        """

        def main(rank: int) -> None:
            try:
                self.enter(rank)
                body(rank)
            except BaseException as error:  # SystemExit and KeyboardInterrupt wake the others too
                if errors is None:
                    self.fail(rank, error)
                else:
                    errors[rank] = error
            finally:
                self.leave(rank)

        threads = [
            threading.Thread(target=main, args=(rank,), name=f"rank {rank}", daemon=True)
            for rank in range(self.size)
        ]
        for thread in threads:
            thread.start()
        return threads

    def post(self, requests: Sequence[Request]) -> None:
        """Match each with one of its peer, or keep it. They belong to one rank."""
        with self.changed:
            self._require_use(requests[0].rank)
            own = self._root._posted[self._root_ranks[requests[0].rank]]
            for request in requests:
                with self._remembered(request.rank):
                    require_own_array(request, own)
                own.append(request)
            if any([self.mailbox.post(request) for request in requests]):
                self.changed.notify_all()

    def poll(self, request: Request) -> bool:
        """Is it done?"""
        with self.changed:
            self._raise_failure()
            if not request.done and self.mailbox.match_open():
                self.changed.notify_all()
            return request.done

    def wait(self, rank: int, operations: Sequence[Request | PendingCollective]) -> None:
        """Until all are done, then complete them."""
        me = threading.get_ident()
        with self.changed:
            self._waiting[me] = rank, operations
            self._root.enter(self._root_ranks[rank], operations)
            self._detect_deadlock()
            while not all(o.done for o in operations):
                self._raise_failure()
                if not self.changed.wait(STILL_S):
                    self._root.detect_standstill()
            del self._waiting[me]
            self._root.enter(self._root_ranks[rank])
            own = self._root._posted[self._root_ranks[rank]]
            own[:] = [request for request in own if request not in operations]
        with self._remembered(rank):
            for operation in operations:
                operation.complete()

    @contextlib.contextmanager
    def _remembered(self, rank: int) -> Iterator[None]:
        """A program may catch the error, but MPI itself would not have raised it."""
        try:
            yield
        except ValueError as error:
            self._root.broken.setdefault(self._root_ranks[rank], error)
            raise

    def enter(self, rank: int, operations: Sequence | None = None) -> None:
        """To the root: this thread is one of this rank's, and waits for these operations."""
        self._threads[threading.get_ident()] = rank, operations
        self._still = None

    def collect(self, rank: int, call: str, obj: Any) -> list:
        """Every rank's object, once all ranks have made this call."""
        with self.changed:
            self._require_use(rank)
            number = self._entered[rank] = self._entered[rank] + 1
            collective = self._collectives[number]
            collective.calls[rank], collective.objects[rank] = call, obj
            if collective.done:
                self.changed.notify_all()
        self.wait(rank, [collective])
        with self.changed:
            collective.readers += 1
            if collective.readers == self.size:
                del self._collectives[number]
        return [collective.objects[r] for r in range(self.size)]

    def child(self, number: Any, members: Sequence[int]) -> "World":
        """The world of these ranks; all ranks get the same one for the same number."""
        with self.changed:
            if number not in self._children:
                used = {n: pair for n, pair in self._children.items() if pair[0].in_use()}
                child = World(len(members), self.eager_bytes, self.mailbox.arrival, self, members)
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

    def open_requests(self, rank: int) -> list[Request]:
        """To the root: those that this rank has not waited for."""
        return self._posted[rank]

    def unfinished(self) -> Iterator[str]:
        """Requests that are still open, and messages that no rank has received."""
        for request in itertools.chain(*self._posted):
            yield (
                f"rank {request.rank} never waits for its {request.name}; wanted a Wait for each "
                f"request; next: request = comm.{request.call}(...), request.Wait()"
            )
        for send in itertools.chain(*self.mailbox.sends):
            yield (
                f"rank {send.peer} never receives the {send.array.size} elements that rank "
                f"{send.rank} sends it with tag {send.tag}; wanted a receive for each message; "
                "next: compare the numbers of sends and receives"
            )
        for child, _ in self._children.values():
            yield from child.unfinished()

    def _detect_deadlock(self) -> None:
        ranks = {rank for rank, _ in self._waiting.values()}
        if self.failure or not ranks or not self._running <= ranks:
            return
        opened = False
        while not any(all(o.done for o in operations) for _, operations in self._waiting.values()):
            opened = True
            if not self.mailbox.match_open():
                waits = [
                    waits_for(*waiting)
                    for waiting in sorted(self._waiting.values(), key=lambda w: w[0])
                ]
                gone = sorted(set(range(self.size)) - self._running)
                if gone:
                    waits.append(f"rank {', '.join(map(str, gone))} has already returned")
                self.fail(min(ranks), Deadlock("; ".join(waits) + self.mailbox.other_tag()))
                return
        if opened:
            self.changed.notify_all()

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
            elif all(o.done for o in operations):
                return  # it goes on in a moment
            else:
                stuck[rank] = operations
        if not self._running <= stuck.keys():
            self._still = None
        elif self._still is None or self._still[1] != where:
            self._still = time.monotonic(), where
        elif time.monotonic() - self._still[0] >= STILL_S and not self.failure:
            waits = "; ".join(
                waits_for(*waiting) for waiting in sorted(stuck.items(), key=lambda w: w[0])
            )
            self.fail(min(stuck), Deadlock(f"on several communicators: {waits}"))

    def _require_use(self, rank: int) -> None:
        self._raise_failure()
        self._root._still = None
        if rank not in self._running:
            raise ValueError(
                f"rank {rank}: got a call on a communicator that it has freed; next: Free later"
            )

    def _raise_failure(self) -> None:
        if self.failure:
            rank, error = self.failure
            if isinstance(error, Deadlock):
                raise Deadlock(str(error))
            raise Aborted(f"rank {rank} failed: {type(error).__name__}: {error}")


def waits_for(rank: int, operations: Sequence[Request | PendingCollective]) -> str:
    """rank 0 waits to send to rank 1"""
    return f"rank {rank} waits {' and '.join(str(o) for o in operations if not o.done)}"


def require_own_array(request: Request, others: Sequence[Request]) -> None:
    """Until a receive completes, MPI may write into its array, so no other request may use it."""
    for other in others:
        if (request.sends and other.sends) or not overlap(request.array, other.array):
            continue
        place = f"{request.call} on rank {request.rank}: got"
        if request.call == other.call == "Sendrecv":
            raise ValueError(
                f"{place} arrays that overlap, to send and to receive into; wanted separate ones, "
                "as MPI demands; next: receive into np.empty(n, x.dtype)"
            )
        raise ValueError(
            f"{place} an array that its {other.name} still uses; wanted its Wait before, because "
            "MPI reads or writes the array until then; next: request.Wait(), or another array"
        )


def _cpu_s(thread: int) -> float:
    """Seconds that a thread has computed; 0 where the system does not say (macOS)."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return 0.0
    return time.clock_gettime(time.pthread_getcpuclockid(thread))
