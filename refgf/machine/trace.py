"""A communicator that counts the messages and bytes which this rank sends.

    comm = TracedComm(comm)
    ...
    comm.messages, comm.bytes           what this rank sent since the last reset
    comm.peers                          {receiver: [messages, bytes]}

Counting costs a dictionary look-up per message.
"""

import json
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

from refgf.comm.arguments import Comm
from refgf.device import Array


class TracedComm:
    """Wraps a communicator. Everything that is not counted is passed on unchanged."""

    def __init__(self, comm: Comm, shared: "TracedComm | None" = None) -> None:
        self._comm = comm
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self.peers: dict[int, list[int]] = shared.peers if shared else {}
        # the counts before the last reset
        self._past: dict[int, list[int]] = shared._past if shared else {}

    def __getattr__(self, name: str):
        return getattr(self._comm, name)

    @property
    def messages(self) -> int:
        return sum(messages for messages, _ in self.peers.values())

    @property
    def bytes(self) -> int:
        return sum(nbytes for _, nbytes in self.peers.values())

    def reset(self) -> None:
        """Count from zero again; `save` still writes the counts of the whole run."""
        for peer, totals in self.peers.items():
            _add(self._past, peer, *totals)
        self.peers.clear()

    def Dup(self) -> "TracedComm":
        """The duplicate adds to the same counts."""
        return self.over(lambda comm: comm.Dup())

    def over(self, wrap: Callable) -> "TracedComm":
        """A TracedComm over wrap(the wrapped communicator) that adds to the same counts."""
        return TracedComm(wrap(self._comm), shared=self)

    def Send(self, buf: Array, dest: int, tag: int = 0) -> None:
        self._count(dest, buf.nbytes)
        self._comm.Send(buf, dest, tag)

    def Sendrecv(
        self,
        sendbuf: Array,
        dest: int,
        sendtag: int = 0,
        recvbuf: Array | None = None,
        source: int | None = None,
        recvtag: int = 0,
    ) -> None:
        self._count(dest, sendbuf.nbytes)
        self._comm.Sendrecv(sendbuf, dest, sendtag, recvbuf, source, recvtag)

    def Isend(self, buf: Array, dest: int, tag: int = 0) -> Any:
        self._count(dest, buf.nbytes)
        return self._comm.Isend(buf, dest, tag)

    def _count(self, dest: int, nbytes: int) -> None:
        if dest >= 0:  # otherwise MPI's PROC_NULL, to which nothing is sent
            _add(self.peers, dest, 1, nbytes)

    def save(self, folder: str | Path, opaque: bool = False) -> None:
        """Write rank<r>.json: what this rank sent to whom in the whole run.

        opaque: the run also sent messages that were not counted.
        """
        peers = {}
        for counts in (self._past, self.peers):
            for peer, totals in counts.items():
                _add(peers, peer, *totals)
        content = {"rank": self.rank, "host": platform.node(), "peers": peers, "opaque": opaque}
        path = Path(folder, f"rank{self.rank}.json")
        unfinished = path.with_suffix(".part")
        unfinished.write_text(json.dumps(content))
        os.replace(unfinished, path)  # atomic: another rank may end the job now


def _add(peers: dict, peer: int, messages: int, nbytes: int) -> None:
    totals = peers.setdefault(peer, [0, 0])
    totals[0] += messages
    totals[1] += nbytes
