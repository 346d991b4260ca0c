"""What MPI asks of the arrays, ranks and tags of messages; mpi4py refuses the same ones.

A message is a block of memory, so strided arrays and Python objects are refused. From the call
that posts a message until it completes, its array belongs to MPI. A program that writes into it
meanwhile has no defined result. MPI does not notice it; `require_unchanged` does.
"""

from typing import Any

import numpy as np

CALLS = {  # call: its arguments, for messages
    "Send": "Send(buf, dest)",
    "Recv": "Recv(buf, source)",
    "Isend": "Isend(buf, dest)",
    "Irecv": "Irecv(buf, source)",
    "Sendrecv": "Sendrecv(sendbuf, dest, sendtag, recvbuf, source, recvtag)",
}
LARGEST_TAG = 32767  # the MPI standard promises no larger one


def elements(call: str, rank: int, buf: Any, receives: bool) -> np.ndarray:
    """A flat view of an array in the order of memory.

    TypeError for what is no array of numbers. ValueError for an array that is strided or, where it
    receives, read-only.
    """
    got = f"{call} on rank {rank}: got"
    if not hasattr(buf, "__array_interface__"):
        raise TypeError(
            f"{got} {type(buf).__name__} in the place of an array; wanted {CALLS[call]}; "
            "next: compare the arguments"
        )
    array = np.asarray(buf)
    if array.dtype.kind not in "biufcV" or array.dtype.names or not array.dtype.isnative:
        raise TypeError(f"{got} an array of {array.dtype}; wanted numbers; next: x.astype(float)")
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        raise ValueError(
            f"{got} an array that is not contiguous (strides {array.strides}); wanted one block of "
            "memory, as each message of MPI is; "
            f"next: {'receive into np.empty(n, x.dtype)' if receives else 'np.ascontiguousarray'}"
        )
    if receives and not array.flags.writeable:
        raise ValueError(f"{got} a read-only array to receive into; next: a copy of it")
    return array.ravel(order="K")


def peer_rank(call: str, rank: int, peer: Any, size: int) -> int:
    """The other rank of a message; like mpi4py it takes 1.0 for 1."""
    whole = isinstance(peer, int | float | np.integer | np.floating) and float(peer).is_integer()
    if not whole or not 0 <= peer < size:
        raise ValueError(
            f"{call} on rank {rank}: got peer {peer!r}; wanted a rank from 0 to {size - 1}; "
            f"next: take the rank modulo the size, and compare the arguments of {CALLS[call]}"
        )
    return int(peer)


def tag_number(call: str, rank: int, tag: Any) -> int:
    if not isinstance(tag, int | np.integer) or not 0 <= tag <= LARGEST_TAG:
        raise ValueError(
            f"{call} on rank {rank}: got tag {tag!r}; wanted a whole number from 0 to {LARGEST_TAG}"
            f", which every MPI takes; next: compare the arguments of {CALLS[call]}"
        )
    return int(tag)


def overlap(a: np.ndarray, b: np.ndarray) -> bool:
    """Do two contiguous arrays share memory?"""
    return bool(a.size and b.size) and np.may_share_memory(a, b)


def require_unchanged(posted: np.ndarray, array: np.ndarray, request: str) -> None:
    """Is an array still what it was when its message was posted?"""
    if posted.tobytes() != array.tobytes():
        raise ValueError(
            f"{request}: got an array that was changed before Wait; wanted it as it was, because "
            "MPI reads or writes it until then; next: change it after Wait"
        )


def deliver(message: np.ndarray, array: np.ndarray, place: str) -> None:
    """Copy a message into the array that receives it. ValueError where MPI has an error."""
    if message.dtype != array.dtype:
        raise ValueError(
            f"{place}: got {message.dtype}; wanted the receiver's {array.dtype}, because MPI does "
            "not convert; next: use the same dtype on all ranks, np.empty(n, x.dtype)"
        )
    if message.size > array.size:
        raise ValueError(
            f"{place}: got {message.size} elements; wanted at most the receiver's {array.size}; "
            "next: compare the slice that the sender sends with the one that this rank expects"
        )
    array[: message.size] = message
