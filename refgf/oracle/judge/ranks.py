"""p ranks as p threads, with sends that block until they are received, and a record of every message.

For judging somebody's code: a deadlock is found at once, because all ranks wait and none can go on.
"""

import threading
import time
from collections import defaultdict
from dataclasses import dataclass

import numpy as np


class Deadlock(RuntimeError):
    """All ranks that still run wait for each other."""


@dataclass
class Offer:
    """A message under way."""

    data: np.ndarray
    taken: bool = False


class World:
    """What the ranks share: messages under way, and who waits for what."""

    def __init__(self, size):
        self.size, self.running = size, size
        self.changed = threading.Condition()
        self.offers = defaultdict(list)  # (source, dest) -> Offers, oldest first
        self.waiting = {}  # rank -> (predicate, what it says)
        self.stopped = None

    def wait(self, rank, predicate, says):
        """Until predicate(), with self.changed held. Raises Deadlock when nobody can go on."""
        while not predicate():
            self.waiting[rank] = predicate, says
            self.look_for_deadlock()
            if self.stopped is None:
                self.changed.wait()
            del self.waiting[rank]
            if self.stopped is not None and not predicate():
                raise Deadlock(self.stopped)

    def look_for_deadlock(self):
        if len(self.waiting) == self.running > 0 and not any(predicate() for predicate, _ in self.waiting.values()):
            told = (f"rank {r} waits to {says}" for r, (_, says) in sorted(self.waiting.items()))
            self.stopped = self.stopped or "; ".join(told)
            self.changed.notify_all()

    def leave(self, reason=None):
        """A rank has ended; with a reason when by an exception, which ends the others too."""
        with self.changed:
            self.running -= 1
            if reason:
                self.stopped = self.stopped or reason
            self.look_for_deadlock()
            self.changed.notify_all()


class Comm:
    """The part of mpi4py's communicator that a collective needs. sends: [(peer, count, bytes, offset in x or None)]"""

    def __init__(self, world, rank, x):
        self.world, self.rank, self.size, self.x, self.sends = world, rank, world.size, x, []

    def Get_rank(self):
        return self.rank

    def Get_size(self):
        return self.size

    def Send(self, buf, dest, tag=0):
        self._complete(self._offer(buf, dest), dest)

    def Recv(self, buf, source, tag=0):
        with self.world.changed:
            waiting = self.world.offers[self._peer(source), self.rank]
            self.world.wait(self.rank, lambda: bool(waiting), f"receive from rank {source}")
            offer = waiting.pop(0)
            if offer.data.size > buf.size:
                raise ValueError(f"rank {self.rank} receives {offer.data.size} elements into {buf.size}")
            buf.reshape(-1)[: offer.data.size] = offer.data.view(buf.dtype)
            offer.taken = True
            self.world.changed.notify_all()

    def Sendrecv(self, sendbuf, dest, sendtag=0, recvbuf=None, source=0, recvtag=0):
        offer = self._offer(sendbuf, dest)
        self.Recv(recvbuf, source)
        self._complete(offer, dest)

    def Isend(self, buf, dest, tag=0):
        offer = self._offer(buf, dest)
        return Request(lambda: self._complete(offer, dest))

    def Irecv(self, buf, source, tag=0):
        return Request(lambda: self.Recv(buf, source))

    def Barrier(self):
        for peer in range(1, self.size):
            empty = np.empty(0)
            offer = self._offer(empty, (self.rank + peer) % self.size, counted=False)
            self.Recv(np.empty(0), (self.rank - peer) % self.size)
            self._complete(offer, (self.rank + peer) % self.size)

    def __getattr__(self, name):
        here = ", ".join(sorted(name for name in vars(Comm) if name[0].isupper()))
        raise AttributeError(f"comm.{name} is not there; wanted one of {here}")

    def _peer(self, rank):
        if not 0 <= rank < self.size:
            raise ValueError(f"rank {self.rank} names rank {rank}; there are 0 to {self.size - 1}")
        return rank

    def _offer(self, buf, dest, counted=True):
        flat = np.ascontiguousarray(buf).reshape(-1)
        if counted:
            self.sends.append((self._peer(dest), flat.size, flat.nbytes, self._offset(buf)))
        offer = Offer(flat.copy())
        with self.world.changed:
            self.world.offers[self.rank, self._peer(dest)].append(offer)
            self.world.changed.notify_all()
        return offer

    def _offset(self, buf):
        away = buf.__array_interface__["data"][0] - self.x.__array_interface__["data"][0]
        return away // self.x.itemsize if 0 <= away <= self.x.nbytes and buf.dtype == self.x.dtype else None

    def _complete(self, offer, dest):
        with self.world.changed:
            self.world.wait(self.rank, lambda: offer.taken, f"send to rank {dest}")


class Request:
    """Completed by Wait. An Irecv receives only then, which a correct program cannot tell."""

    def __init__(self, complete):
        self.complete = complete

    def Wait(self):
        if self.complete is not None:
            self.complete()
        self.complete = None

    wait = Wait

    @staticmethod
    def Waitall(requests):
        for request in requests:
            request.Wait()


def run(xs, function, timeout_s=20.0):
    """function(comm, x) on one thread per rank. -> (comms, None), or (comms, what went wrong first)"""
    world, told = World(len(xs)), []
    comms = [Comm(world, r, x) for r, x in enumerate(xs)]

    def one(comm):
        reason = None
        try:
            function(comm, comm.x)
        except Deadlock as error:
            reason = f"deadlock: {error}"
        except BaseException as error:  # noqa: BLE001  whatever somebody's code raises
            reason = f"rank {comm.rank} raised {type(error).__name__}: {str(error)[:300]}"
        if reason:
            told.append(reason)
        world.leave(reason)

    workers = [threading.Thread(target=one, args=(comm,), daemon=True) for comm in comms]
    for worker in workers:
        worker.start()
    stop_s = time.monotonic() + timeout_s
    for worker in workers:
        worker.join(max(0.0, stop_s - time.monotonic()))
    if any(worker.is_alive() for worker in workers):
        return comms, f"did not end within {timeout_s:g} s"
    return comms, told[0] if told else None
