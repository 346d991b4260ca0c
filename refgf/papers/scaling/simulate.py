"""The time of a collective from its schedules: every rank's steps, run with a clock and no data.

A step has `send_to`, `send`, `receive_from`, `receive` and `op`, as refgf.comm.schedule.Step has.
Messages are rendezvous: the i-th message from r to d starts when r has reached the step that sends
it and d the step that receives it. It takes alpha + beta * bytes; both directions of a link carry
at once. A step ends when its outgoing and its incoming message have ended, plus gamma * bytes if it
adds: `add` adds the received slice, `reduce` all slices that earlier `buffer` steps have stored.
Every other operation is free.

    rank 0   |-- step 0: to 1, from 2 --|-- step 1 ...
    rank 1   |---- busy ----|-- step 0: to 2, from 0 --|      rank 0 waits for rank 1 in its step 0
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from math import inf
from typing import Any, Protocol

from refgf.arguments import checked
from refgf.predict.cost import Link


class SharedLinks(Protocol):
    """Links whose bandwidth messages divide, such as refgf.papers.jia.wires.Wires."""

    def link(self, source: int, dest: int) -> Link:
        """Its alpha passes before the first byte."""

    def begin(self, message: Any, source: int, dest: int, nbytes: int, now_s: float) -> None:
        """The first byte of a message."""

    def next_end_s(self) -> float:
        """When the next message ends if no other begins before; inf: none is in flight."""

    def end(self, now_s: float) -> list[Any]:
        """The messages that end now."""

    def sum_s(self, nbytes: int) -> float:
        """Seconds of adding nbytes."""


Schedules = Sequence[Sequence[Any]]  # schedules[r]: the steps of rank r
Links = Link | Callable[[int, int], Link] | SharedLinks  # of all pairs; of (source, dest); shared


def from_schedules(schedules: Schedules, itemsize: int, link: Links) -> float:
    """Seconds until the last rank has executed its schedule."""
    return max(finish_times(schedules, itemsize, link), default=0.0)


def finish_times(schedules: Schedules, itemsize: int, link: Links) -> list[float]:
    """[seconds at which rank r has finished]. ValueError for unmatched messages and deadlocks."""
    run = Run(schedules, itemsize, link)
    for rank in range(len(schedules)):
        run.enter(rank, 0, 0.0)
    (run.on_shared_links if run.shared else run.on_own_links)()
    stuck = [
        f"rank {rank} at step {step}"
        for rank, step in enumerate(run.step)
        if step < len(schedules[rank])
    ]
    if stuck:
        raise ValueError(
            f"from_schedules: got a deadlock ({', '.join(stuck[:8])}); wanted sender and receiver "
            "of every message to meet; next: look at the order of these steps"
        )
    return run.clock_s


@checked
class Run:
    """The state of every rank, and the messages that are ready to start, in order of time."""

    def __init__(self, schedules: Schedules, itemsize: int, link: Links) -> None:
        self.schedules, self.itemsize, self.link = schedules, itemsize, link
        self.partner = partners(schedules)
        self.step = [0] * len(schedules)
        self.clock_s = [0.0] * len(schedules)  # time at which the current step was entered
        self.pending = [0] * len(schedules)  # messages of the current step in flight
        self.end_s = [0.0] * len(schedules)
        self.buffered = [0] * len(schedules)  # bytes stored for the next `reduce`
        self.heap = []
        self.shared = hasattr(link, "begin")

    def nbytes(self, where: slice) -> int:
        return self.itemsize * (where.stop - where.start)

    def link_between(self, source: int, dest: int) -> Link:
        if self.shared:
            return self.link.link(source, dest)
        return self.link if isinstance(self.link, Link) else self.link(source, dest)

    def on_own_links(self) -> None:
        """No message depends on another, so each ends when it starts to be looked at."""
        while self.heap:
            ready_s, source, dest, sent_in, _ = heappop(self.heap)
            nbytes = self.nbytes(self.schedules[source][sent_in].send)
            end_s = ready_s + self.link_between(source, dest).message_s(nbytes)
            self.message_ended(source, end_s)
            self.message_ended(dest, end_s)

    def on_shared_links(self) -> None:
        """Beginnings and ends in order of time: each changes the pace of the others."""
        links = self.link
        while self.heap or links.next_end_s() < inf:
            end_s, start_s = links.next_end_s(), self.heap[0][0] if self.heap else inf
            while self.heap and self.heap[0][0] == start_s <= end_s:
                _, source, dest, sent_in, _ = heappop(self.heap)
                nbytes = self.nbytes(self.schedules[source][sent_in].send)
                links.begin((source, dest), source, dest, nbytes, start_s)
            if end_s < start_s:
                for both in links.end(end_s):
                    for rank in both:
                        self.message_ended(rank, end_s)

    def added_s(self, rank: int, step: Any) -> float:
        """Time of the addition at the end of a step."""
        nbytes = self.nbytes(step.receive)
        if step.op == "buffer":
            self.buffered[rank] += nbytes
        if step.op not in ("add", "reduce"):
            return 0.0
        if step.op == "reduce":
            nbytes, self.buffered[rank] = self.buffered[rank], 0
        source = rank if step.receive_from is None else step.receive_from
        link = self.link if self.shared else self.link_between(source, rank)
        return link.sum_s(nbytes)

    def enter(self, rank: int, index: int, now_s: float) -> None:
        """`rank` reaches step `index`, skips local steps, and offers its messages."""
        steps = self.schedules[rank]
        while index < len(steps) and steps[index].send_to is steps[index].receive_from is None:
            now_s += self.added_s(rank, steps[index])
            index += 1
        self.step[rank], self.clock_s[rank], self.end_s[rank] = index, now_s, now_s
        if index == len(steps):
            return
        step = steps[index]
        self.pending[rank] = (step.send_to is not None) + (step.receive_from is not None)
        if step.send_to is not None:
            self.offer(rank, step.send_to, index, self.partner["sent", rank, index])
        if step.receive_from is not None:
            self.offer(step.receive_from, rank, self.partner["received", rank, index], index)

    def offer(self, source: int, dest: int, sent_in: int, received_in: int) -> None:
        """Start the message if both of its ranks have reached its steps."""
        both = self.step[source] == sent_in and self.step[dest] == received_in
        if both and self.pending[source] and self.pending[dest]:
            ready_s = max(self.clock_s[source], self.clock_s[dest])
            if self.shared:
                ready_s += self.link_between(source, dest).alpha_s
            heappush(self.heap, (ready_s, source, dest, sent_in, received_in))

    def message_ended(self, rank: int, end_s: float) -> None:
        self.end_s[rank] = max(self.end_s[rank], end_s)
        self.pending[rank] -= 1
        if not self.pending[rank]:
            step = self.schedules[rank][self.step[rank]]
            self.enter(rank, self.step[rank] + 1, self.end_s[rank] + self.added_s(rank, step))


def partners(schedules: Schedules) -> dict[tuple[str, int, int], int]:
    """{("sent", rank, step): receiver's step, ("received", rank, step): sender's step}."""
    sent, received = defaultdict(list), defaultdict(list)
    for rank, steps in enumerate(schedules):
        for index, step in enumerate(steps):
            if step.send_to is not None:
                sent[rank, step.send_to].append(index)
            if step.receive_from is not None:
                received[step.receive_from, rank].append(index)
    pairs = {}
    for source, dest in sent.keys() | received.keys():
        ours, theirs = sent[source, dest], received[source, dest]
        if len(ours) != len(theirs):
            raise ValueError(
                f"from_schedules on rank {dest}: got {len(theirs)} receives from rank {source}; "
                f"wanted {len(ours)}, one for each of its sends; next: comm.replay.check(schedules)"
            )
        for i, j in zip(ours, theirs):
            out, into = schedules[source][i].send, schedules[dest][j].receive
            if out.stop - out.start != into.stop - into.start:
                raise ValueError(
                    f"from_schedules on rank {dest}: got {into} to receive in step {j}; wanted the "
                    f"length of {out}, which rank {source} sends in step {i}; "
                    "next: comm.replay.check(schedules)"
                )
            pairs["sent", source, i], pairs["received", dest, j] = j, i
    return pairs
