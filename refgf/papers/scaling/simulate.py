"""The time of a collective from its schedules: every rank's list of steps, run with a clock instead of data.

A step is any object with `send_to`, `send`, `receive_from`, `receive` and `op` (refgf.comm.schedule.Step is one; this
module imports nothing of it). Messages are rendezvous: the i-th message from r to d starts when r stands at the step
that sends it and d at the step that receives it, and takes alpha + beta * bytes; both directions of a link carry at
once. A step ends when its message out and its message in have ended, plus gamma * bytes if it adds: `add` sums what
came, `fold` all that earlier steps put aside with `keep`; every other operation is free.

    rank 0   |-- step 0: to 1, from 2 --|-- step 1 ...
    rank 1   |---- busy ----|-- step 0: to 2, from 0 --|      0's first step ends late: its partner came late
"""

from collections import defaultdict
from heapq import heappop, heappush


def from_schedules(schedules, itemsize, link):
    """Seconds until the last rank has executed its schedule; `schedules[r]` is rank r's list of steps.

    link: a Link for all pairs, or a function (source, dest) -> Link, or an object whose
    transfer(source, dest, nbytes, ready_s) returns the time at which the message has ended (refgf.papers.jia.wires).
    """
    return max(finish_times(schedules, itemsize, link), default=0.0)


def finish_times(schedules, itemsize, link):
    """[seconds at which rank r is done]. ValueError when a message has no partner or ranks wait in a circle."""
    run = Run(schedules, itemsize, link)
    for rank in range(len(schedules)):
        run.enter(rank, 0, 0.0)
    while run.heap:
        ready_s, source, dest, sent_in, received_in = heappop(run.heap)
        end_s = run.transfer(source, dest, run.nbytes(schedules[source][sent_in].send), ready_s)
        run.message_ended(source, end_s)
        run.message_ended(dest, end_s)
    stuck = [f"rank {rank} at step {step}" for rank, step in enumerate(run.step) if step < len(schedules[rank])]
    if stuck:
        raise ValueError(
            f"from_schedules: got ranks that wait for each other in a circle ({', '.join(stuck[:8])}), wanted every "
            "message's sender and receiver to meet: look at the order of the steps there"
        )
    return run.clock_s


class Run:
    """Where every rank stands. Messages are started in the order of time, so that shared wires can queue them."""

    def __init__(self, schedules, itemsize, link):
        self.schedules, self.itemsize, self.link = schedules, itemsize, link
        self.partner = partners(schedules)
        self.step = [0] * len(schedules)
        self.clock_s = [0.0] * len(schedules)  # time at which the present step was entered
        self.pending = [0] * len(schedules)  # messages of the present step that have not ended
        self.end_s = [0.0] * len(schedules)
        self.kept_bytes = [0] * len(schedules)  # put aside for a later fold
        self.heap = []
        self.private = None if hasattr(link, "transfer") else link if callable(link) else lambda source, dest: link

    def nbytes(self, part):
        return self.itemsize * (part.stop - part.start)

    def transfer(self, source, dest, nbytes, ready_s):
        if self.private is None:
            return self.link.transfer(source, dest, nbytes, ready_s)
        return ready_s + self.private(source, dest).message_s(nbytes)

    def added_s(self, rank, step):
        """Time of the addition at the end of a step."""
        nbytes = self.nbytes(step.receive)
        if step.op == "keep":
            self.kept_bytes[rank] += nbytes
        if step.op not in ("add", "fold"):
            return 0.0
        if step.op == "fold":
            nbytes, self.kept_bytes[rank] = self.kept_bytes[rank], 0
        source = rank if step.receive_from is None else step.receive_from
        link = self.link if self.private is None else self.private(source, rank)
        return link.sum_s(nbytes)

    def enter(self, rank, index, now_s):
        """Put `rank` at step `index`; run through local steps; offer the messages whose other side is there too."""
        steps = self.schedules[rank]
        while index < len(steps) and steps[index].send_to is None and steps[index].receive_from is None:
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

    def offer(self, source, dest, sent_in, received_in):
        both_there = self.step[source] == sent_in and self.step[dest] == received_in
        if both_there and self.pending[source] and self.pending[dest]:
            heappush(self.heap, (max(self.clock_s[source], self.clock_s[dest]), source, dest, sent_in, received_in))

    def message_ended(self, rank, end_s):
        self.end_s[rank] = max(self.end_s[rank], end_s)
        self.pending[rank] -= 1
        if not self.pending[rank]:
            step = self.schedules[rank][self.step[rank]]
            self.enter(rank, self.step[rank] + 1, self.end_s[rank] + self.added_s(rank, step))


def partners(schedules):
    """{("sent", rank, step): receiver's step, ("received", rank, step): sender's step}, first sent, first received."""
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
                f"from_schedules: rank {source} sends {len(ours)} messages to rank {dest}, which receives "
                f"{len(theirs)} of them: every send needs its receive"
            )
        for i, j in zip(ours, theirs):
            out, into = schedules[source][i].send, schedules[dest][j].receive
            if out.stop - out.start != into.stop - into.start:
                raise ValueError(
                    f"from_schedules: rank {source} sends {out} in step {i} and rank {dest} receives {into} in step "
                    f"{j}: the lengths must be equal"
                )
            pairs["sent", source, i], pairs["received", dest, j] = j, i
    return pairs
