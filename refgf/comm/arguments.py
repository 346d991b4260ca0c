"""What an allreduce accepts: a flat array of NumPy's floats, sent as one of them.

bfloat16 is not among them: MPI has no such type. `refgf.papers.daso.bfloat16` sends it as integers.
"""

import contextlib
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

Comm = Any  # an mpi4py communicator, or anything with its methods
Wire = DTypeLike | None  # the type of messages; None: the array's own
FLOATS = ("float16", "float32", "float64")
DTYPES = frozenset(map(np.dtype, FLOATS))


def rank_and_size(comm: Comm, operation: str) -> tuple[int, int]:
    """(this rank, number of ranks); ValueError if comm is no communicator."""
    with contextlib.suppress(AttributeError):
        return comm.Get_rank(), comm.Get_size()
    raise ValueError(f"{operation}: got {comm!r}; wanted a communicator; next: MPI.COMM_WORLD")


def require_kinds(operation: str, values: dict[Any, object]) -> None:
    """Raise ValueError unless each value is of the type that is its key."""
    for kind, value in values.items():
        if not isinstance(value, kind):
            got = f"{operation}: got {value!r}; wanted a {kind.__name__}"
            raise ValueError(f"{got}; next: help({operation}) says what it takes")


def require_number(what: str, value: Any, least: float, example: str) -> None:
    """Raise ValueError unless value is a finite number >= least. example: what to try next."""
    if not (isinstance(value, int | float | np.number) and least <= value < np.inf):
        got = f"{what}: got {value!r}"
        raise ValueError(f"{got}; wanted a finite number >= {least}; next: {example}")


def wire_type(wire: Wire, operation: str, rank: int) -> np.dtype | None:
    """The type of messages, None for the array's own; ValueError unless it is one of FLOATS.

    In an integer type every gradient below 1 would become 0.
    """
    with contextlib.suppress(TypeError):  # np.dtype("banana")
        if wire is None or np.dtype(wire) in DTYPES:
            return None if wire is None else np.dtype(wire)
    wanted = "None or one of " + ", ".join(FLOATS)
    raise ValueError(
        f"{operation} on rank {rank}: got wire={wire!r}; wanted {wanted}; next: wire=np.float16"
    )


def require_flat(x: Any, operation: str, rank: int) -> None:
    """Raise ValueError unless x is a flat contiguous writable array of float16, 32 or 64."""
    if isinstance(x, np.ndarray) and x.ndim == 1 and x.flags.carray and x.dtype in DTYPES:
        return  # the same checks as below, faster
    dtype = getattr(x, "dtype", "no dtype")
    if dtype not in DTYPES:
        got, fix = f"{type(x).__name__} of {dtype}", "convert with x.astype(np.float32)"
    elif x.ndim != 1:
        got, fix = f"shape {x.shape}", "pass x.reshape(-1) of a contiguous array"
    elif not x.flags.c_contiguous:
        got, fix = f"strides {x.strides}", "pass np.ascontiguousarray(x), and copy the result back"
    elif isinstance(x, np.ndarray) and not x.flags.writeable:
        got, fix = "a read-only array", "pass x.copy()"
    else:
        return
    wanted = "a flat, contiguous, writable array of " + ", ".join(FLOATS)
    raise ValueError(f"{operation} on rank {rank}: got {got}; wanted {wanted}; next: {fix}")
