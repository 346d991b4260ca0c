"""What `python -m refgf.doctor` looks at on the machine. `refgf/checks_mpi.py` has the rest.

Each check is a function of `facts`, a dictionary of what was found here and in this process (`__main__.py`
collects it, and tests make it up). It returns a Check, or None where it does not apply.

    ok      nothing to do
    look    works, but slowly, or not as it may seem: read the line
    broken  will fail, hang or compute nonsense until the command in `mend` has been run
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Facts = Mapping[str, Any]
STATUSES = ("ok", "look", "broken")
MIB = 2**20
SHM_BYTES_PER_RANK = 16 * MIB  # what Open MPI 5 takes at most; MPICH 5 took 5 (measured, 8 ranks)
AVX512 = {"SkylakeX", "Cooperlake", "SapphireRapids"}  # OpenBLAS's names for its kernels
AVX2 = AVX512 | {"Haswell", "Zen", "Excavator"}
RESOLVE = 'echo "127.0.0.1 $(hostname)" | sudo tee -a /etc/hosts'
YIELDS = {  # variable, value to set, values that do
    "Open MPI": ("OMPI_MCA_mpi_yield_when_idle", "true", {"true", "1"}),
    "MPICH": ("MPIR_CVAR_POLLS_BEFORE_YIELD", "1", {"0", "1"}),
}


@dataclass(frozen=True)
class Check:
    """One line of the report. `mend` is the exact command, empty if and only if the status is ok."""

    topic: str
    status: str
    finding: str
    mend: str = ""

    def __post_init__(self) -> None:
        assert self.status in STATUSES and (self.status == "ok") == (not self.mend), self


def cores(facts: Facts) -> Check:
    ranks, usable = facts["on_machine"], facts["cores"]
    if not facts["launcher"]:
        return Check("cores", "ok", f"{usable} cores: more ranks than that share them")
    if ranks <= usable:
        return Check("cores", "ok", f"{ranks} ranks on {usable} cores")
    name, value, yielding = YIELDS[facts["family"] or "MPICH"]
    if facts["environ"].get(name, "").lower() not in yielding:
        return Check("cores", "look", f"{ranks} ranks share {usable} cores and do not yield", f"export {name}={value}")
    finding = f"{ranks} ranks share {usable} cores; waiting ranks yield, times say little about a cluster"
    return Check("cores", "look", finding, f"mpiexec -n {usable} ...   (or fewer, when you measure)")


def sessions(facts: Facts) -> Check | None:
    """Launchers start each rank as a session, and with autogroup a rank that yields its core yields within its session."""
    if not facts["launcher"] or facts["on_machine"] <= facts["cores"] or not facts["autogroup"]:
        return None
    finding = "Linux shares the cores out among sessions, and each rank is one: who waits does not make way for the others"
    return Check("sessions", "look", finding, "sudo sysctl kernel.sched_autogroup_enabled=0   (while you measure)")


def binding(facts: Facts) -> Check | None:
    """Open MPI binds each rank to one core when there are enough; the communication thread then has none."""
    if not facts["launcher"] or facts["on_machine"] > facts["cores"] or facts["own_cores"] > 1 or facts["cores"] == 1:
        return None
    finding = "each rank is bound to 1 core, which its communication thread and its arithmetic share"
    return Check("binding", "look", finding, "mpiexec --bind-to none ...   (Slurm: srun --cpu-bind=none, or -c 2)")


def blas_threads(facts: Facts) -> Check | None:
    pools = facts["blas"]
    if not pools:
        return Check("BLAS threads", "look", "unknown", f"{facts['python']} -m pip install numpy threadpoolctl")
    threads, ranks = max(pool["num_threads"] for pool in pools), facts["on_machine"]
    finding = f"{threads} BLAS threads in each of {ranks} ranks" if ranks > 1 else f"{threads} BLAS threads, 1 process"
    if ranks > 1 and threads > 1 and threads * ranks > facts["cores"]:
        mend = "export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1"
        return Check("BLAS threads", "look", f"{finding} on {facts['cores']} cores", mend)
    return Check("BLAS threads", "ok", finding)


def blas_kernels(facts: Facts) -> Check | None:
    """Is OpenBLAS held below what the processor can do? Pinned to Haswell it ran at half speed (measured)."""
    found = {pool["architecture"] for pool in facts["blas"] or [] if pool.get("architecture")}
    if not found:
        return None
    names, flags = ", ".join(sorted(found)), facts["cpu_flags"]
    best = ("AVX-512", AVX512) if "avx512vl" in flags else ("AVX2", AVX2) if {"avx2", "fma"} <= flags else None
    if best is None or found & best[1]:
        return Check("BLAS kernels", "ok", names)
    pinned = facts["environ"].get("OPENBLAS_CORETYPE")
    if pinned:
        finding = f"{names}, though the processor has {best[0]}: OPENBLAS_CORETYPE={pinned} pins it"
        return Check("BLAS kernels", "look", finding, "unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE")
    finding = f"{names}, though the processor has {best[0]}"
    return Check("BLAS kernels", "look", finding, f"{facts['python']} -m pip install --upgrade numpy")


def shared_memory(facts: Facts) -> Check | None:
    if facts["shm"] is None:
        return None
    total, free = facts["shm"]
    removed = facts["removed"]
    tidied = f"; {len(removed)} files of killed jobs removed, {sum(removed.values()) // MIB} MiB" if removed else ""
    finding = f"/dev/shm has {_size(free)} free of {_size(total)}{tidied}"
    ranks = max(facts["on_machine"], 8)
    if free >= ranks * SHM_BYTES_PER_RANK:
        return Check("shared memory", "ok", finding)
    mend = "docker run --shm-size=1g ...   (or: sudo mount -o remount,size=1g /dev/shm; rm this user's old files in it)"
    enough = free >= ranks * SHM_BYTES_PER_RANK // 4
    finding += f"; {ranks} ranks take up to {_size(ranks * SHM_BYTES_PER_RANK)}, too little ends in SIGBUS"
    return Check("shared memory", "look" if enough else "broken", finding, mend)


def host_name(facts: Facts) -> Check:
    if facts["address"]:
        return Check("host name", "ok", f"{facts['host']} is {facts['address']}")
    works = facts["launcher"] or (facts["started"] or {}).get("code") == 0
    finding = f"{facts['host']} does not resolve, and some MPIs cannot start then"
    return Check("host name", "look" if works else "broken", finding, RESOLVE)


def gpu(facts: Facts) -> Check:
    gpus, cupy = facts["gpus"], facts["cupy"]
    names = f"{len(gpus)} GPUs ({', '.join(sorted(set(gpus)))})"
    if not gpus:
        idle = f"CuPy {cupy} has nothing to run on" if cupy else "no CuPy needed"
        return Check("GPU", "ok", f"no NVIDIA GPU here: everything runs on the CPU, {idle}")
    if not cupy:
        why = f" ({facts['cupy_error']})" if facts["cupy_error"] else ""
        finding = f"{names}, but no CuPy{why}: everything runs on the CPU"
        return Check("GPU", "look", finding, f"{facts['python']} -m pip install 'cupy-cuda12x[ctk]>=14'")
    return Check("GPU", "ok", f"{names}, CuPy {cupy}; rank r of a node takes GPU r mod {len(gpus)}")


def cuda_aware(facts: Facts) -> Check | None:
    """Given a GPU and CuPy: may MPI be handed device pointers? `device_trial` is the outcome of doctor --gpu."""
    wanted, trial = facts["environ"].get("REFGF_CUDA_AWARE", "auto"), facts["device_trial"]
    if wanted not in ("auto", "0", "1"):
        finding = f"REFGF_CUDA_AWARE: got {wanted!r}; wanted auto, 0 or 1"
        return Check("CUDA-aware", "broken", finding, "unset REFGF_CUDA_AWARE")
    if not (facts["gpus"] and facts["cupy"]):
        return None
    if trial and wanted == "1" and trial != "right":
        return Check("CUDA-aware", "broken", f"REFGF_CUDA_AWARE=1, but a trial {trial}", "export REFGF_CUDA_AWARE=0")
    if trial == "right" and not facts["cuda_aware"]:
        finding = "a trial went right although the library does not say so; messages are staged through the host"
        return Check("CUDA-aware", "look", finding, "export REFGF_CUDA_AWARE=1")
    if trial and trial != "right" and facts["cuda_aware"]:
        return Check("CUDA-aware", "broken", f"the library says yes, but a trial {trial}", "export REFGF_CUDA_AWARE=0")
    if facts["cuda_aware"]:
        return Check("CUDA-aware", "ok", "yes: MPI takes device pointers" + (" (tried)" if trial else ""))
    finding = "no: messages go through pinned host memory, which is right but slower"
    mend = "conda env create -f environment-gpu.yml   (or the site's CUDA-aware MPI)"
    return Check("CUDA-aware", "look", finding, mend)


def _size(nbytes: int) -> str:
    return f"{nbytes / 2**30:.0f} GiB" if nbytes >= 2**30 else f"{nbytes / MIB:.0f} MiB"
