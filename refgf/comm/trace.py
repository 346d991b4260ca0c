"""A communicator that counts messages and bytes, and writes down when each of them happened.

    comm = TracedComm(comm)
    ...
    comm.messages, comm.bytes           what this rank sent since the last reset
    comm.peers                          {receiver: [messages, bytes]}
    comm.events                         [Event(name, start_s, stop_s, peer, bytes)]

Counting costs a dictionary look-up and two clock readings per message.
"""

import json
import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Event:
    """Something that took from start_s to stop_s on this rank's clock (time.perf_counter)."""

    name: str
    start_s: float
    stop_s: float
    peer: int | None = None
    bytes: int = 0


class TracedComm:
    """Wraps a communicator; everything that is not counted is passed on as it is."""

    def __init__(self, comm, shared: "TracedComm | None" = None) -> None:
        self._comm = comm
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self.peers = shared.peers if shared else {}
        self.events = shared.events if shared else []
        self._past = shared._past if shared else {}  # peers as they were before the last reset

    def __getattr__(self, name: str):
        return getattr(self._comm, name)

    @property
    def messages(self) -> int:
        return sum(messages for messages, _ in self.peers.values())

    @property
    def bytes(self) -> int:
        return sum(size for _, size in self.peers.values())

    def reset(self) -> None:
        """Count from zero again; `save` still tells the whole run."""
        for peer, totals in self.peers.items():
            _add(self._past, peer, *totals)
        self.peers.clear()
        self.events.clear()

    def Dup(self) -> "TracedComm":
        """The duplicate counts into the same totals."""
        return TracedComm(self._comm.Dup(), shared=self)

    def over(self, wrap) -> "TracedComm":
        """Count into the same totals what goes over wrap(the communicator below)."""
        return TracedComm(wrap(self._comm), shared=self)

    def Send(self, buf, dest: int, tag: int = 0) -> None:
        self._timed("Send", self._comm.Send, dest, buf.nbytes, buf, dest, tag)

    def Recv(self, buf, source: int, tag: int = 0) -> None:
        self._timed("Recv", self._comm.Recv, None, 0, buf, source, tag)

    def Sendrecv(self, sendbuf, dest, sendtag=0, recvbuf=None, source=None, recvtag=0) -> None:
        arguments = sendbuf, dest, sendtag, recvbuf, source, recvtag
        self._timed("Sendrecv", self._comm.Sendrecv, dest, sendbuf.nbytes, *arguments)

    def Isend(self, buf, dest: int, tag: int = 0) -> "_Waited":
        self._count(dest, buf.nbytes)
        return _Waited(self, "Isend", self._comm.Isend(buf, dest, tag), dest, buf.nbytes)

    def Irecv(self, buf, source: int, tag: int = 0) -> "_Waited":
        return _Waited(self, "Irecv", self._comm.Irecv(buf, source, tag))

    def _timed(self, name: str, call, dest: int | None, nbytes: int, *arguments) -> None:
        start_s = time.perf_counter()
        call(*arguments)
        self.events.append(Event(name, start_s, time.perf_counter(), dest, nbytes))
        self._count(dest, nbytes)

    def _count(self, dest: int | None, nbytes: int) -> None:
        if dest is not None and dest >= 0:  # else it receives, or sends to MPI's PROC_NULL: nothing
            _add(self.peers, dest, 1, nbytes)

    def save(self, folder, opaque: bool = False) -> None:
        """Write rank<r>.json: what this rank sent to whom in the whole run. opaque: other traffic ran beside it."""
        peers = {}
        for part in (self._past, self.peers):
            for peer, totals in part.items():
                _add(peers, peer, *totals)
        content = {"rank": self.rank, "host": platform.node(), "peers": peers, "opaque": opaque}
        path = Path(folder, f"rank{self.rank}.json")
        unfinished = path.with_suffix(".part")
        unfinished.write_text(json.dumps(content))
        os.replace(unfinished, path)  # another rank may end the job now: a trace is there whole, or not


class _Waited:
    """A request; its event lasts from the moment it was posted until somebody has waited for it."""

    def __init__(self, traced: TracedComm, name: str, request, peer: int | None = None, nbytes: int = 0) -> None:
        self._traced, self._request, self._event = traced, request, (name, peer, nbytes)
        self._start_s = time.perf_counter()

    def Wait(self) -> None:
        self._request.Wait()
        name, peer, nbytes = self._event
        self._traced.events.append(Event(name, self._start_s, time.perf_counter(), peer, nbytes))


def _add(peers: dict, peer: int, messages: int, nbytes: int) -> None:
    totals = peers.setdefault(peer, [0, 0])
    totals[0] += messages
    totals[1] += nbytes
