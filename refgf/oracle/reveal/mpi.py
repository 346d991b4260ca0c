"""The black box is the Allreduce, or Reduce_scatter, of the MPI that this process runs under.

Rank 0 sends every rank its contribution and collects the results; the other ranks `serve`.
"""

import os
import sys

import numpy as np

from refgf.advice import mpi
from refgf.oracle.definitions import slice_bounds

YIELDING = {  # waiting ranks yield the core
    "MPIR_CVAR_POLLS_BEFORE_YIELD": "1",
    "OMPI_MCA_mpi_yield_when_idle": "true",
    "I_MPI_THREAD_YIELD": "2",
}


class MPISum:
    """On rank 0: sums over the ranks. close() ends the other ranks' `serve`."""

    def __init__(self, collective: str, dtype: str):
        for name, value in YIELDING.items():
            os.environ.setdefault(name, value)
        self.mpi = mpi("reveal --mpi")
        self.comm = self.mpi.COMM_WORLD
        self.rank, self.p = self.comm.Get_rank(), self.comm.Get_size()
        self.collective, self.dtype = collective, dtype
        wrong = ""
        if dtype == "bfloat16":
            wrong = (
                "got --mpi with --dtype bfloat16, which MPI cannot add: its standard has no such "
                "type; wanted float64, float32 or float16; next: --torch gloo, or --python with a "
                "function that adds"
            )
        elif self.p == 1:
            wrong = (
                "got --mpi with 1 rank; wanted at least 2; "
                "next: mpiexec -n 4 python -m refgf.oracle reveal --mpi"
            )
        if wrong and self.rank == 0:
            raise ValueError(f"reveal: {wrong}")
        self.closed = bool(wrong)

    def library(self) -> str:
        first = self.mpi.Get_library_version().splitlines()[0].split(",")[0].strip(" \0")
        return " ".join(first.replace("Version:", "").split())

    def __call__(self, xs: list[np.ndarray]) -> list[np.ndarray]:
        return self.step(xs)

    def serve(self) -> None:
        """Ranks above 0: take part until rank 0 is done."""
        while not self.closed and self.step(None) is not None:
            pass

    def step(self, xs: list[np.ndarray] | None) -> list[np.ndarray] | None:
        x = self.comm.scatter(xs, root=0)
        if x is None:
            return None
        try:
            x = self.summed(x.astype(self.dtype)).astype(np.float64)
        except Exception as error:  # noqa: BLE001  the other ranks would wait for ever
            print(f"refgf.oracle: reveal on rank {self.rank}: {error}", file=sys.stderr, flush=True)
            self.comm.Abort(2)
        rows = self.comm.gather(x, root=0) or []
        return rows if self.collective == "allreduce" else [np.concatenate(rows or [x])]

    def summed(self, x: np.ndarray) -> np.ndarray:
        if self.collective == "allreduce":
            out = np.empty_like(x)
            self.comm.Allreduce(x, out)
            return out
        counts = [j - i for i, j in slice_bounds(len(x), self.p)]
        out = np.empty(counts[self.rank], x.dtype)
        self.comm.Reduce_scatter(x, out, counts)
        return out

    def close(self) -> None:
        if not self.closed and self.rank == 0:
            self.comm.scatter([None] * self.p, root=0)
        self.closed = True
