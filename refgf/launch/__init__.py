"""Prepares a process before MPI starts. Make `import refgf.launch` the first import of a script.

It reads from the launcher's variables how many ranks share this machine. Then it

1. sets what MPI and BLAS read when they start, unless the user has set it (`choose`): ranks yield
   their core while they wait if there are more ranks than cores (measured: latency unchanged to
   9 times lower, 8 ranks on 2 cores), one BLAS thread per rank, and thread level MULTIPLE for the
   communication thread. `settings` records each variable with its reason;
2. ends the whole job if one rank fails, with its rank and its traceback (`abort.py`): exceptions in
   any thread, `sys.exit(status)`, and SIGINT, during an import, too (`refgf/interrupt.py`); and
   ends this rank if its launcher is killed (`lifeline.py`);
3. starts a watchdog (`watchdog.py`). If all ranks stand still for REFGF_STALL_S seconds (300; off:
   never), or after REFGF_TIMEOUT_S seconds, it prints where every thread of every rank waits, and
   ends the job;
4. removes shared memory of killed jobs (`leftovers.py`), once per node; `removed` lists it;
5. imports `refgf.engine`, which makes `refgf.ops` faster with the same bits. REFGF_ENGINE=off keeps
   the plain NumPy: the program then loads no module of the engine.

A single process without a launcher also gets one BLAS thread, so that it compares with a rank of a
job and leaves the other cores to other users (OMP_NUM_THREADS=8 gives it 8). This module does not
import mpi4py and works without it.
"""

import refgf.interrupt  # noqa: F401  first

# isort: split

import atexit
import contextlib
import faulthandler
import math
import os
import re
import sys
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Any

from refgf.launch import leftovers, watchdog
from refgf.launch.abort import Abort, running_mpi
from refgf.launch.lifeline import follow_launcher

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
LONGEST = 9  # digits of a number of ranks
TASKS = r"([1-9]\d{0,8})(?:\(x([1-9]\d{0,8})\))?"  # Slurm's 2 or 2(x3)
STALL_S = "300"
SHORTEST_S = 0.1
LONGEST_S = 1e7  # 116 days; C's timers end somewhat later


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
            world, number = whole(environ, size, least=1), whole(environ, rank)
            here = environ.get(local_size) or environ.get("SLURM_STEP_TASKS_PER_NODE")
            local = tasks_on_node(here or str(world), whole(environ, "SLURM_NODEID"))
            local_number = whole(environ, local_rank, whole(environ, "SLURM_LOCALID", number))
            on_machine = whole(environ, "REFGF_RANKS_ON_MACHINE", local, least=1)
            return Job(launcher, world, number, local, local_number, on_machine, cores)
    return Job(None, 1, 0, 1, 0, whole(environ, "REFGF_RANKS_ON_MACHINE", 1, least=1), cores)


def whole(environ: Mapping[str, str], name: str, default: int = 0, least: int = 0) -> int:
    """A variable's whole number, `default` if unset or empty; ValueError below `least`."""
    text = environ.get(name) or str(default)
    if not text.isdecimal() or len(text) > LONGEST or int(text) < least:
        raise ValueError(
            f"{name}: got {text[:40]!r}; wanted a whole number of at least {least}; the launcher "
            f"sets this variable; next: unset {name}, or start with mpiexec"
        )
    return int(text)


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
    if job.size > 1:
        reason = "a signal ends a rank at once, as it does without UCX"
        propose("UCX_HANDLE_ERRORS", "none", "mpi4py.MPI", reason)
        propose("UCX_DEBUG_SIGNO", "0", "mpi4py.MPI", reason)
    if 1 < job.size == job.local_size and not environ.get("REFGF_CLUSTER"):
        reason = "all ranks are on this machine: MPI listens to nobody else"
        propose("UCX_NET_DEVICES", "lo", "mpi4py.MPI", reason)
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


def time_limit_s(environ: Mapping[str, str], name: str, default: str = "off") -> float | None:
    """A variable's seconds, None for off; ValueError if not in SHORTEST_S..LONGEST_S."""
    text = environ.get(name) or default
    if text == "off":
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not SHORTEST_S <= seconds <= LONGEST_S:
        raise ValueError(
            f"{name}: got {text!r}; wanted seconds, from {SHORTEST_S} to "
            f"{LONGEST_S:.0f}, or off; next: {name}=300"
        )
    return seconds


def wants_engine(environ: Mapping[str, str]) -> bool:
    """Whether REFGF_ENGINE asks for the engine: on, unset and empty do, off does not."""
    text = environ.get("REFGF_ENGINE") or "on"
    if text not in ("on", "off"):
        raise ValueError(f"REFGF_ENGINE: got {text!r}; wanted on or off; next: REFGF_ENGINE=off")
    return text == "on"


def tasks_on_node(text: str, node: int) -> int:
    """'8' -> 8; Slurm's '2(x3),1' means 2, 2, 2, 1 tasks on nodes 0 to 3."""
    if not re.fullmatch(f"{TASKS}(,{TASKS})*", text):
        raise ValueError(
            f"tasks per node: got {text[:40]!r}; wanted a number, or Slurm's form 2(x3),1; next: "
            "unset SLURM_STEP_TASKS_PER_NODE, or start with mpiexec"
        )
    counts = [(int(tasks), int(repeat or 1)) for tasks, repeat in re.findall(TASKS, text)]
    for tasks, repeat in counts:
        if node < repeat:
            return tasks
        node -= repeat
    return counts[0][0]


def _read(what: Callable[..., Any], *arguments: Any) -> Any:
    """`what` of the environment; nonsense there ends the program with a sentence."""
    try:
        return what(os.environ, *arguments)
    except ValueError as error:
        sys.exit(f"refgf.launch: {error}")


def _start() -> None:
    abort.install()
    if job.launcher:
        follow_launcher()
    os.environ.update({setting.name: setting.value for setting in settings})
    with contextlib.suppress(AttributeError, RuntimeError, OSError):  # stderr may be no file
        # a crash in C code prints where Python was; without stderr this raises
        faulthandler.enable(sys.__stderr__)  # type: ignore[arg-type]
    _watch()
    if job.local_rank == 0:
        removed.update(leftovers.remove())
        if job.local_size > 1 and (sentence := leftovers.shortage(job.local_size)):
            sys.exit(f"refgf.launch: {sentence}")


def _watch() -> None:
    seconds = _read(time_limit_s, "REFGF_TIMEOUT_S")
    if seconds:
        watchdog.watch_time(seconds, abort.end_late)
    stall_s = _read(time_limit_s, "REFGF_STALL_S", STALL_S)
    if stall_s and job.size > 1 and not seconds:
        watchdog.watch_start(stall_s, running_mpi)
    if stall_s and 1 < job.size == job.on_machine:
        path = watchdog.progress_file(os.environ)
        try:
            progress = watchdog.Progress(path, job.rank, job.size)
        except OSError as error:  # no room, or another user's file
            if job.rank == 0:
                sentence = f"refgf.launch: got no file of its own for the watchdog ({error}): a job"
                sentence += " that hangs will not be ended; next: REFGF_TIMEOUT_S=3600 ends it"
                print(sentence, file=sys.stderr)
            return
        atexit.register(_leave, progress, stall_s)
        watchdog.watch_progress(progress, stall_s, abort.end_late)


def _leave(progress: watchdog.Progress, stall_s: float) -> None:
    """SIGINT ends the job here, too: in a function of atexit Python would only print it."""
    try:
        progress.leave(running_mpi, stall_s)
    except KeyboardInterrupt as error:
        sys.excepthook(KeyboardInterrupt, error, None)


job = _read(read_job, usable_cores())
settings = choose(job, os.environ, sys.modules)
removed: dict[str, int] = {}  # name: bytes
abort = Abort(job.rank, job.size)
_start()
if _read(wants_engine):  # after _start: NumPy, which the engine imports, reads the settings
    import refgf.engine  # noqa: F401
