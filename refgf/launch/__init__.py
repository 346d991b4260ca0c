"""Prepares a process before MPI starts. Make `import refgf.launch` the first import of a script.

It reads from the launcher's variables how many ranks share this machine. Then it

1. sets what MPI and BLAS read when they start, unless the user has set it (`choose`): ranks yield
   their core while they wait if there are more ranks than cores (measured: latency unchanged to
   9 times lower, 8 ranks on 2 cores), one BLAS thread per rank, and thread level MULTIPLE for the
   communication thread. `settings` records each variable with its reason;
2. ends the whole job if one rank fails, with its rank and its traceback (`abort.py`): exceptions in
   any thread, and `sys.exit(status)`;
3. starts a watchdog if REFGF_TIMEOUT_S=seconds is set. It prints where every thread of every rank
   waits, then ends the job;
4. removes shared memory of killed jobs (`leftovers.py`), once per node; `removed` lists it;
5. imports `refgf.engine`, which makes `refgf.ops` faster with the same bits. REFGF_ENGINE=off keeps
   the plain NumPy: the program then loads no module of the engine.

A single process without a launcher also gets one BLAS thread, so that it compares with a rank of a
job and leaves the other cores to other users (OMP_NUM_THREADS=8 gives it 8). This module does not
import mpi4py and works without it.
"""

import math
import os
import re
import sys
from collections.abc import Container, Mapping
from dataclasses import dataclass

from refgf.launch import leftovers
from refgf.launch.abort import Abort

# launcher: total ranks, this rank, ranks on this node, this rank among them
LAUNCHERS = {
    "Hydra": ("PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS", "MPI_LOCALRANKID"),
    "Open MPI": (
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
    ),
    "Slurm": ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_STEP_TASKS_PER_NODE", "SLURM_LOCALID"),
}
YIELDING = {  # yield the core while waiting
    "MPIR_CVAR_POLLS_BEFORE_YIELD": "1",  # MPICH
    "OMPI_MCA_mpi_yield_when_idle": "true",  # Open MPI
    "I_MPI_SPIN_COUNT": "1",  # Intel MPI
    "I_MPI_THREAD_YIELD": "2",
}
BLAS_THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


@dataclass(frozen=True)
class Job:
    """This process as its launcher describes it; a single process is rank 0 of 1, launcher None."""

    launcher: str | None
    size: int
    rank: int
    local_size: int  # ranks on this node
    local_rank: int
    on_machine: int  # ranks that share these cores: those of all emulated nodes together
    cores: int


@dataclass(frozen=True)
class Setting:
    """One environment variable, its value, and the reason."""

    name: str
    value: str
    by: str  # "launch", "user", or "late": set after the library that reads it was loaded
    reason: str


def read_job(environ: Mapping[str, str], cores: int) -> Job:
    """The job of this process, from the variables of its launcher.

    The innermost launcher goes first, because Slurm may have started Hydra or Open MPI.
    """
    for launcher, (size, rank, local_size, local_rank) in LAUNCHERS.items():
        if size in environ:
            world, number = environ[size], environ.get(rank) or 0
            local = environ.get(local_size) or environ.get("SLURM_STEP_TASKS_PER_NODE") or world
            local = _tasks_on_node(local, int(environ.get("SLURM_NODEID") or 0))
            local_number = int(environ.get(local_rank) or environ.get("SLURM_LOCALID") or number)
            on_machine = int(environ.get("REFGF_RANKS_ON_MACHINE") or local)
            return Job(launcher, int(world), int(number), local, local_number, on_machine, cores)
    return Job(None, 1, 0, 1, 0, int(environ.get("REFGF_RANKS_ON_MACHINE") or 1), cores)


def choose(job: Job, environ: Mapping[str, str], loaded: Container[str] = ()) -> list[Setting]:
    """The variables to set for this job; a variable in `environ` keeps its value.

    loaded: names of modules that have already read their variables.
    """
    chosen = []

    def propose(name: str, value: str, reader: str, reason: str) -> None:
        by = "user" if name in environ else "late" if reader in loaded else "launch"
        chosen.append(Setting(name, environ.get(name, value), by, reason))

    reason = "the communication thread calls MPI too"
    propose("MPI4PY_RC_THREAD_LEVEL", "multiple", "mpi4py.MPI", reason)
    if job.on_machine > job.cores:
        reason = f"{job.on_machine} ranks share {job.cores} cores: waiting ranks yield"
        for name, value in YIELDING.items():
            propose(name, value, "mpi4py.MPI", reason)
    # a number of threads that the user sets in OMP_NUM_THREADS holds for all libraries
    one_thread = environ.get("OMP_NUM_THREADS", "1") == "1"
    for name in BLAS_THREADS if one_thread else BLAS_THREADS[:1]:
        propose(name, "1", "numpy", "one BLAS thread per rank")
    return chosen


def usable_cores() -> int:
    """Cores that this process or its launcher may use.

    The launcher counts because Open MPI binds each rank to one core when there are enough.
    """
    if not hasattr(os, "sched_getaffinity"):  # macOS
        return os.cpu_count() or 1
    cores = os.sched_getaffinity(0)
    try:
        return len(cores | os.sched_getaffinity(os.getppid()))
    except OSError:  # the parent lives in another process namespace
        return len(cores)


def timeout_s(environ: Mapping[str, str]) -> float | None:
    """REFGF_TIMEOUT_S in seconds, None if unset or empty; ValueError unless it is above 0."""
    text = environ.get("REFGF_TIMEOUT_S", "")
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise ValueError(
            f"REFGF_TIMEOUT_S: got {text!r}; wanted seconds, a number above 0; "
            "next: REFGF_TIMEOUT_S=300"
        )
    return seconds


def wants_engine(environ: Mapping[str, str]) -> bool:
    """Whether REFGF_ENGINE asks for the engine: on, unset and empty do, off does not."""
    text = environ.get("REFGF_ENGINE") or "on"
    if text not in ("on", "off"):
        raise ValueError(f"REFGF_ENGINE: got {text!r}; wanted on or off; next: REFGF_ENGINE=off")
    return text == "on"


def _tasks_on_node(text: str, node: int) -> int:
    """'8' -> 8; Slurm's '2(x3),1' means 2, 2, 2, 1 tasks on nodes 0 to 3."""
    counts = []
    for tasks, repeat in re.findall(r"(\d+)(?:\(x(\d+)\))?", text):
        counts += [int(tasks)] * int(repeat or 1)
    return counts[node] if node < len(counts) else counts[0]


def _start() -> None:
    abort.install()
    os.environ.update({setting.name: setting.value for setting in settings})
    seconds = timeout_s(os.environ)
    if seconds:
        abort.watch(seconds)
    if job.local_rank == 0:
        removed.update(leftovers.remove())


job = read_job(os.environ, usable_cores())
settings = choose(job, os.environ, sys.modules)
removed: dict[str, int] = {}  # name: bytes
abort = Abort(job.rank, job.size)
_start()
if wants_engine(os.environ):  # after _start: NumPy, which the engine imports, reads the settings
    import refgf.engine  # noqa: F401
