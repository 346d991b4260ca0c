"""Which send meets which receive: MPI's rule of matching, for the ranks of one communicator.

A message is matched by sender and tag. Each receive takes the first message that fits it, and each
message the first receive that it fits, in the order of posting.

A receive from any rank may take any of several messages. `arrival` says which:

    first      the one that was sent first
    lowest     that of the lowest rank, and as late as possible: when no rank can go on
    highest    that of the highest rank, as late as possible
"""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from refgf.machine.buffers import deliver, require_unchanged


class Wildcard:
    """An object and no number, because each MPI has another number for it."""


ANY_SOURCE, ANY_TAG = Wildcard(), Wildcard()


class Request:
    """A posted send or receive. Its array belongs to the program again after `Wait`.

    A receive fills its array only in `Wait`, or in the `Test` that is true. Until then floats are
    NaN in that of an Irecv, so that a program that reads them too early has no right sums.
    """

    def __init__(
        self,
        world: Any,
        call: str,
        ranks: tuple[int, int | Wildcard],
        tag: int | Wildcard,
        array: np.ndarray,
        sends: bool,
    ) -> None:
        """world: world.World. ranks: the own one and the peer. array: flat and contiguous."""
        self.world, self.call, self.tag, self.array, self.sends = world, call, tag, array, sends
        self.rank, self.peer = ranks
        self.blocking = not call.startswith("I")
        self.before = None if sends or self.blocking else array.copy()
        if self.before is not None and array.dtype.kind in "fc":
            array.fill(np.nan)
        self.posted = array.copy() if sends or not self.blocking else None  # its content
        self.message: Request | None = None  # of a receive: the send that it has been matched with
        self.matched = self.completed = False

    @property
    def done(self) -> bool:
        return self.matched or (self.sends and self.array.nbytes < self.world.eager_bytes)

    @property
    def peer_name(self) -> str:
        return "any rank" if self.peer is ANY_SOURCE else f"rank {self.peer}"

    @property
    def name(self) -> str:
        """Isend to rank 2"""
        return f"{self.call} {'to' if self.sends else 'from'} {self.peer_name}"

    def takes(self, message: "Request") -> bool:
        """Does this receive fit a message?"""
        same_tag = self.tag is ANY_TAG or self.tag == message.tag
        return same_tag and (self.peer is ANY_SOURCE or self.peer == message.rank)

    def Wait(self) -> None:
        """Wait until it is done. ValueError where MPI has an error or no defined result."""
        if not self.completed:
            self.world.wait(self.rank, [self])  # which completes it

    def Test(self) -> bool:
        """Is it done? If so, this is its `Wait`."""
        if not self.completed and self.world.poll(self):
            self.Wait()
        return self.completed

    wait, test = Wait, Test

    @staticmethod
    def Waitall(requests: "list[Request]") -> None:
        for request in requests:
            request.Wait()

    def complete(self) -> None:
        """The end of a request that is done: look at its array; fill that of a receive."""
        self.completed = True
        if not self.blocking:
            require_unchanged(self.posted, self.array, f"{self.name} on rank {self.rank}")
        if self.before is not None:
            self.array[:] = self.before  # a message may be shorter
        if not self.sends:
            place = f"message from rank {self.message.rank} to rank {self.rank}"
            deliver(self.message.posted, self.array, place)
        self.message = self.before = None

    def __str__(self) -> str:
        tag = "" if self.tag is ANY_TAG or self.tag == 0 else f" with tag {self.tag}"
        return f"to {'send to' if self.sends else 'receive from'} {self.peer_name}{tag}"


class Mailbox:
    """The sends and receives of a communicator that have not been matched, by receiving rank."""

    def __init__(self, size: int, arrival: str) -> None:
        self.arrival = arrival
        self.sends: list[list[Request]] = [[] for _ in range(size)]
        self.receives: list[list[Request]] = [[] for _ in range(size)]

    def post(self, request: Request) -> bool:
        """Match it, or keep it until another fits. Is it matched?"""
        receiver = request.peer if request.sends else request.rank
        sends, receives = self.sends[receiver], self.receives[receiver]
        (sends if request.sends else receives).append(request)
        pairs = (pair for pair in self._pairs(receiver) if request in pair)
        send, receive = next(pairs, (None, None))
        if send and (self.arrival == "first" or not self._is_open(send, receives)):
            self._match(send, receive)
        return request.matched

    def _pairs(self, receiver: int) -> Iterator[tuple[Request, Request]]:
        """Sends and receives that fit each other, oldest receives first."""
        for receive in self.receives[receiver]:
            for send in self.sends[receiver]:
                if receive.takes(send):
                    yield send, receive

    @staticmethod
    def _is_open(send: Request, receives: list[Request]) -> bool:
        """Is the first receive that takes it one from any rank?"""
        return next(r for r in receives if r.takes(send)).peer is ANY_SOURCE

    def _match(self, send: Request, receive: Request) -> None:
        self.sends[receive.rank].remove(send)
        self.receives[receive.rank].remove(receive)
        send.matched = receive.matched = True
        receive.message = send

    def match_open(self) -> bool:
        """Match one receive from any rank that has been left open. False if there is none."""
        for receiver in range(len(self.sends)) if self.arrival != "first" else ():
            pairs = list(self._pairs(receiver))
            ranks = [send.rank for send, receive in pairs if receive is pairs[0][1]]
            if ranks:
                chosen = max(ranks) if self.arrival == "highest" else min(ranks)
                self._match(*next(pair for pair in pairs if pair[0].rank == chosen))
                return True
        return False

    def other_tag(self) -> str:
        """Of the first receive whose peer has sent a message with another tag; else ""."""
        for receive in itertools.chain(*self.receives):
            for send in self.sends[receive.rank]:
                if receive.peer in (ANY_SOURCE, send.rank):
                    return (
                        f"; MPI matches by tag: rank {send.rank} sends tag {send.tag} to rank "
                        f"{receive.rank}, which receives tag {receive.tag}"
                    )
        return ""
