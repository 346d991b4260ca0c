"""The time of a collective whose senders do not wait for the receiver, for lesson 10.

refgf/papers/scaling/simulate.py starts a message when both ranks have reached its step, and ends
it for both at once. Sockets store messages. So a rank goes on to its next step, and waits for the
next latency, while its link still sends:

    rank 1, both wait     |-- alpha --|== bytes ==|-- alpha --|== bytes ==|
    rank 1, stored        |-- alpha --|-- alpha --|...
    its link                          |== bytes ==|== bytes ==|

A rank waits alpha for each message to another node. Then the message queues for the link of its
node out and of the other node in, one message at a time. Inside a node the sender is occupied for
alpha + beta b. A step ends when its own message is stored and the other has arrived, plus the
addition. No limit of the stored bytes is modelled.
"""

from collections.abc import Sequence
from heapq import heappop, heappush

from refgf.comm.schedule import Schedule
from refgf.comm.slices import length
from refgf.papers.scaling.simulate import partners
from refgf.predict.cost import Link


def finish_s(
    schedules: Sequence[Schedule],
    itemsize: int,
    node_of_rank: Sequence[int],
    inside: Link,
    between: Link,
) -> float:
    """Seconds until the last rank has executed its schedule. Not for the operation `reduce`."""
    partner, free_s = partners(schedules), {}
    arrived_s, stored_s = {}, {}  # (rank, step): the times of its incoming and outgoing message
    entered = [(0.0, rank, 0) for rank in range(len(schedules))]
    last_s = 0.0

    def send(now_s: float, rank: int, index: int) -> None:
        step = schedules[rank][index]
        nbytes, dest = itemsize * length(step.send), step.send_to
        if node_of_rank[rank] == node_of_rank[dest]:
            stored = end_s = now_s + inside.message_s(nbytes)
        else:
            ends = ("out", node_of_rank[rank]), ("in", node_of_rank[dest])
            stored = now_s + between.alpha_s
            start_s = max(stored, *(free_s.get(end, 0.0) for end in ends))
            end_s = start_s + between.beta_s_per_byte * nbytes
            free_s.update(dict.fromkeys(ends, end_s))
        stored_s[rank, index] = stored
        arrived_s[dest, partner["sent", rank, index]] = end_s
        go_on(dest, partner["sent", rank, index])

    def go_on(rank: int, index: int) -> None:
        """Enter the next step if the messages of this one have ended."""
        if (rank, index) in stored_s and (rank, index) in arrived_s:
            step = schedules[rank][index]
            adds = step.op == "add"
            added_s = inside.sum_s(itemsize * length(step.receive)) if adds else 0.0
            end_s = max(stored_s[rank, index], arrived_s[rank, index]) + added_s
            heappush(entered, (end_s, rank, index + 1))

    while entered:
        now_s, rank, index = heappop(entered)
        last_s = max(last_s, now_s)
        if index < len(schedules[rank]):
            step = schedules[rank][index]
            if step.receive_from is None:
                arrived_s[rank, index] = now_s
            if step.send_to is None:
                stored_s[rank, index] = now_s
            else:
                send(now_s, rank, index)
            go_on(rank, index)
    return last_s
