"""p ranks as p threads, with sends that block until received, and a record of all messages.

This is for judging foreign code. A deadlock is found at once: all ranks wait, and none can go on.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


class AllRanksBlocked(RuntimeError):
    """All ranks that still run wait for each other."""


@dataclass
class Message:
    """A message in flight."""

    data: np.ndarray
    received: bool = False


class World:
    """What the ranks share: messages in flight, and which rank waits for what."""

    def __init__(self, size: int):
        self.size, self.running = size, size
        self.changed = threading.Condition()
        self.messages = defaultdict(list)  # (source, dest) -> Messages, oldest first
        self.receives = defaultdict(list)  # (source, dest) -> posted receives that have none yet
        self.waiting = {}  # rank -> (predicate, what it waits for)
        self.stopped = None

    def wait(self, rank: int, predicate: Callable[[], bool], reason: str) -> None:
        """Until predicate(), holding self.changed. Raises AllRanksBlocked if no rank can go on."""
        while not predicate():
            self.waiting[rank] = predicate, reason
            self.look_for_deadlock()
            if self.stopped is None:
                self.changed.wait()
            del self.waiting[rank]
            if self.stopped is not None and not predicate():
                raise AllRanksBlocked(self.stopped)

    def match(self, source: int, dest: int) -> None:
        """Give the oldest messages to the oldest receives, holding self.changed."""
        messages, receives = self.messages[source, dest], self.receives[source, dest]
        while messages and receives:
            message = messages.pop(0)
            message.received = True
            receives.pop(0).append(message)
        self.changed.notify_all()

    def look_for_deadlock(self) -> None:
        all_wait = len(self.waiting) == self.running > 0
        if all_wait and not any(predicate() for predicate, _ in self.waiting.values()):
            reasons = (f"rank {r} waits to {text}" for r, (_, text) in sorted(self.waiting.items()))
            self.stopped = self.stopped or "; ".join(reasons)
            self.changed.notify_all()

    def leave(self, reason: str | None = None) -> None:
        """A rank has ended, by an exception if there is a reason, which ends the others too."""
        with self.changed:
            self.running -= 1
            if reason:
                self.stopped = self.stopped or reason
            self.look_for_deadlock()
            self.changed.notify_all()


class Comm:
    """The calls of mpi4py's communicator that a collective needs.

    sends: [(peer, count, bytes, offset in x or None)]
    requests: those of Isend and Irecv
    """

    def __init__(self, world: World, rank: int, x: np.ndarray):
        self.world, self.rank, self.size, self.x, self.sends = world, rank, world.size, x, []
        self.requests: list[Request] = []

    def Get_rank(self) -> int:
        return self.rank

    def Get_size(self) -> int:
        return self.size

    def Send(self, buf: np.ndarray, dest: int, tag: int = 0) -> None:
        self._require_arrays("Send(buf, dest)", buf)
        self._complete(self._post(buf, dest), dest)

    def Recv(self, buf: np.ndarray, source: int, tag: int = 0) -> None:
        self._require_arrays("Recv(buf, source)", buf)
        self._take(self._post_receive(source), buf, source)

    def Sendrecv(
        self,
        sendbuf: np.ndarray,
        dest: int,
        sendtag: int = 0,
        recvbuf: np.ndarray | None = None,
        source: int = 0,
        recvtag: int = 0,
    ) -> None:
        call = "Sendrecv(sendbuf, dest, sendtag, recvbuf, source, recvtag)"
        self._require_arrays(call, sendbuf, recvbuf)
        message = self._post(sendbuf, dest)
        self.Recv(recvbuf, source)
        self._complete(message, dest)

    def Isend(self, buf: np.ndarray, dest: int, tag: int = 0) -> "Request":
        self._require_arrays("Isend(buf, dest)", buf)
        message = self._post(buf, dest)
        return self._request(f"Isend to rank {dest}", lambda: self._complete(message, dest))

    def Irecv(self, buf: np.ndarray, source: int, tag: int = 0) -> "Request":
        self._require_arrays("Irecv(buf, source)", buf)
        receive = self._post_receive(source)
        what = f"Irecv from rank {source}"
        return self._request(what, lambda: self._take(receive, buf, source))

    def unfinished(self) -> list[str]:
        """["Isend to rank 2", ...]: the requests that this rank has never waited for."""
        return [request.what for request in self.requests if request.complete is not None]

    def Barrier(self) -> None:
        for distance in range(1, self.size):
            dest = (self.rank + distance) % self.size
            message = self._post(np.empty(0), dest, counted=False)
            self.Recv(np.empty(0), (self.rank - distance) % self.size)
            self._complete(message, dest)

    def __getattr__(self, name: str):
        calls = ", ".join(sorted(call for call in vars(Comm) if call[0].isupper()))
        raise AttributeError(f"comm.{name} is not there; wanted one of {calls}")

    def _request(self, what: str, complete: Callable[[], None]) -> "Request":
        self.requests.append(Request(what, complete))
        return self.requests[-1]

    def _require_arrays(self, call: str, *bufs: np.ndarray) -> None:
        for buf in bufs:
            if not hasattr(buf, "__array_interface__"):
                raise TypeError(
                    f"{call.partition('(')[0]} on rank {self.rank}: got {type(buf).__name__} "
                    f"in the place of an array; wanted {call}; next: compare the arguments"
                )

    def _peer(self, rank: int) -> int:
        if not 0 <= rank < self.size:
            raise ValueError(
                f"rank {self.rank}: got peer {rank}; wanted a rank from 0 to {self.size - 1}"
            )
        return rank

    def _post(self, buf: np.ndarray, dest: int, counted: bool = True) -> Message:
        flat = np.ascontiguousarray(buf).reshape(-1)
        if counted:
            self.sends.append((self._peer(dest), flat.size, flat.nbytes, self._offset(buf)))
        message = Message(flat.copy())
        with self.world.changed:
            self.world.messages[self.rank, self._peer(dest)].append(message)
            self.world.match(self.rank, dest)
        return message

    def _post_receive(self, source: int) -> list[Message]:
        """A list that gets the message as soon as it is sent."""
        receive = []
        with self.world.changed:
            self.world.receives[self._peer(source), self.rank].append(receive)
            self.world.match(source, self.rank)
        return receive

    def _take(self, receive: list[Message], buf: np.ndarray, source: int) -> None:
        """Wait for the message of a posted receive and put it into buf."""
        with self.world.changed:
            self.world.wait(self.rank, lambda: bool(receive), f"receive from rank {source}")
        message = receive[0]
        if message.data.size > buf.size:
            raise ValueError(
                f"Recv on rank {self.rank}: got {message.data.size} elements from rank "
                f"{source}; wanted at most {buf.size}, the size of the buffer; next: compare "
                "the slice that the sender sends with the one that this rank expects"
            )
        if message.data.itemsize != buf.itemsize:
            raise ValueError(
                f"Recv on rank {self.rank}: got {message.data.dtype} from rank {source}; "
                f"wanted {buf.dtype}, the type of the buffer; next: np.empty(n, x.dtype)"
            )
        buf.reshape(-1)[: message.data.size] = message.data.view(buf.dtype)

    def _offset(self, buf: np.ndarray) -> int | None:
        start, own = (a.__array_interface__["data"][0] for a in (buf, self.x))
        if 0 <= start - own <= self.x.nbytes and buf.dtype == self.x.dtype:
            return (start - own) // self.x.itemsize
        return None

    def _complete(self, message: Message, dest: int) -> None:
        with self.world.changed:
            self.world.wait(self.rank, lambda: message.received, f"send to rank {dest}")


class Request:
    """Completed by Wait. The buffer of an Irecv is filled only then."""

    def __init__(self, what: str, complete: Callable[[], None]):
        self.what, self.complete = what, complete

    def Wait(self) -> None:
        if self.complete is not None:
            self.complete()
        self.complete = None

    wait = Wait


def run(
    xs: list[np.ndarray],
    function: Callable[[Comm, np.ndarray], None],
    timeout_s: float = 20.0,
) -> tuple[list[Comm], str | None]:
    """function(comm, x) on one thread per rank. -> (comms, what failed first or None)"""
    world, reasons = World(len(xs)), []
    comms = [Comm(world, r, x) for r, x in enumerate(xs)]

    def run_rank(comm: Comm) -> None:
        reason = None
        try:
            function(comm, comm.x)
        except AllRanksBlocked as error:
            reason = f"deadlock: {error}"
        except BaseException as error:  # noqa: BLE001  foreign code may raise anything
            reason = f"rank {comm.rank} raised {type(error).__name__}: {str(error)[:300]}"
        if reason:
            reasons.append(reason)
        world.leave(reason)

    workers = [threading.Thread(target=run_rank, args=(comm,), daemon=True) for comm in comms]
    for worker in workers:
        worker.start()
    stop_s = time.monotonic() + timeout_s
    for worker in workers:
        worker.join(max(0.0, stop_s - time.monotonic()))
    if any(worker.is_alive() for worker in workers):
        return comms, f"did not end within {timeout_s:g} s"
    return comms, reasons[0] if reasons else None
