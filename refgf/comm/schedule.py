"""A collective is data: the list of steps that one rank takes.

An algorithm is a function (rank, size, n) -> list of `Step`. Everything else reads that list:

    execute(comm, schedule, x)      runs one rank's schedule on a communicator
    collective(comm, algorithm)     an `Allreduce`: a callable that sums a flat array over all ranks
    compose                         makes a schedule out of other ones
    replay.replay, replay.check     run and validate all ranks' schedules in one process

`wire` is the type in which elements are sent (default: the array's own; float16 halves the bytes,
lesson 05). Sums are formed in the array's type. Every message is rounded to the wire type when it
is sent, and `finish` rounds the finished slice on its owner, so all ranks end with the same bits.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from refgf import ops
from refgf.comm.arguments import Comm, Wire, rank_and_size, require_flat, wire_type
from refgf.comm.slices import chunks, length
from refgf.device import Allreduce, Array, Memory

NOTHING = slice(0, 0)
LOCAL_OPERATIONS = ("reduce", "finish")
BLOCK_ELEMENTS = 65_536  # so many elements of every buffered slice stay in the cache


@dataclass(frozen=True)
class Step:
    """Send x[send] to `send_to` while receiving x[receive] from `receive_from`; either may be None.

    op says what happens to the slice `receive`:

        add     x[receive] += what arrived
        copy    x[receive]  = what arrived
        buffer  what arrived is stored under the sender's rank (direct.py reduces it later)
        reduce  (local) x[receive] = sum in rank order 0..p-1 of the buffered slices and x[receive]
        finish  (local) x[receive] is rounded to the wire type
    """

    send_to: int | None
    send: slice
    receive_from: int | None
    receive: slice
    op: str


Schedule = list[Step]
Algorithm = Callable[[int, int, int], Schedule]


def local(op: str, part: slice) -> Step:
    """A step without a message."""
    return Step(None, NOTHING, None, part, op)


def collective(comm: Comm, algorithm: Algorithm, wire: Wire = None) -> Allreduce:
    """Bind an algorithm to a communicator.

    The result sums a flat contiguous array (n,) over all ranks, in place. It keeps the schedules
    and the scratch memory from call to call. Cost: that of the algorithm.
    """
    name = f"{algorithm.__module__.rsplit('.', 1)[-1]}.{algorithm.__name__}"
    rank, size = rank_and_size(comm, name)
    schedule = functools.lru_cache(maxsize=4096)(functools.partial(algorithm, rank, size))
    comm, wire, scratch = ops.exact(comm), wire_type(wire, name, rank), Memory()

    def allreduce(x: Array) -> None:
        require_flat(x, name, rank)
        execute(comm, schedule(x.size), x, wire, scratch)

    return allreduce


def execute(
    comm: Comm, schedule: Schedule, x: Array, wire: Wire = None, scratch: Memory | None = None
) -> None:
    """Run one rank's schedule on x (n,), in place. One message per step with a partner.

    Memory besides x: one received slice, one cast slice if `wire` differs from x's type, and what
    `buffer` stores. Pass the same dict as `scratch` again to reuse the first two.
    """
    buffers, received = ops.Buffers(x, wire or x.dtype, scratch, comm), Memory()
    with np.errstate(over="ignore", invalid="ignore"):  # too large for the wire type is sent as inf
        for step in schedule:
            if step.op in LOCAL_OPERATIONS:
                apply(step, x, x[NOTHING], received, buffers.wire)
                continue
            in_place = step.op == "copy" and buffers.in_place
            incoming = None
            if step.receive_from is not None:
                n = length(step.receive)
                incoming = x[step.receive] if in_place else buffers.incoming(n)
            exchange(comm, step, buffers.outgoing(x[step.send]), incoming)
            if incoming is not None and not in_place:
                arrived = buffers.arrived(incoming)
                if step.op == "buffer":
                    arrived = arrived.copy()  # the next message overwrites it
                apply(step, x, arrived, received, buffers.wire)


def exchange(comm: Comm, step: Step, outgoing: Array, incoming: Array | None) -> None:
    """The message of one step: `Sendrecv`, or only one half of it."""
    if step.receive_from is None:
        comm.Send(outgoing, step.send_to)
    elif step.send_to is None:
        comm.Recv(incoming, step.receive_from)
    else:
        comm.Sendrecv(outgoing, step.send_to, 0, incoming, step.receive_from, 0)


def apply(step: Step, x: Array, arrived: Array, received: Memory, wire: np.dtype) -> None:
    """The arithmetic of one step. Only the rounding of what is sent stands elsewhere, in ops.

    arrived: the message in the wire type, empty for local operations. received: {rank: slice}.
    """
    part = x[step.receive]
    if step.op == "add":
        ops.add(arrived, part)
    elif step.op == "copy":
        ops.cast(arrived, part)
    elif step.op == "buffer":
        received[step.receive_from] = arrived
    elif step.op == "reduce":
        reduce_in_rank_order(part, received, wire)
    elif step.op == "finish":
        if wire != x.dtype:
            ops.rounded(part, wire, out=part)
    else:
        raise AssertionError(f"unknown operation {step.op!r}")


def reduce_in_rank_order(part: Array, received: Memory, wire: np.dtype) -> None:
    """part <- sum over ranks 0..p-1; the rank that is missing in `received` is this one's part.

    All terms are in the wire type, this rank's too: the sum does not depend on who forms it.
    """
    block_elements = BLOCK_ELEMENTS if isinstance(part, np.ndarray) else max(1, part.size)
    for block in chunks(part.size, block_elements):
        own = part[block].astype(wire)
        ranks = range(len(received) + 1)
        first, *others = [received[r][block] if r in received else own for r in ranks]
        ops.cast(first, part[block])
        for term in others:
            ops.add(term, part[block])
