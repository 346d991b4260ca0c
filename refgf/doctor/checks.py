"""The checks of `python -m refgf.doctor` on the machine; `checks_mpi.py` has those on MPI.

Each check is a function of `facts`, a dictionary of what was found on this machine and in this
process (`facts.py` collects it). It returns a Check, or None where it does not apply.

    ok      nothing to do
    look    works, but slowly or in an unexpected way: read the line
    broken  will fail, hang or compute wrong numbers until the command in `fix` has been run
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from refgf.doctor.load import NOT_LOOKED

Facts = Mapping[str, Any]
STATUSES = ("ok", "look", "broken")
MIB = 2**20
SHM_BYTES_PER_RANK = 16 * MIB  # the most Open MPI 5 takes; MPICH 5 took 5 MiB (measured, 8 ranks)
AVX512 = {"SkylakeX", "Cooperlake", "SapphireRapids"}  # OpenBLAS's names for its kernels
AVX2 = AVX512 | {"Haswell", "Zen", "Excavator"}
RESOLVE = 'echo "127.0.0.1 $(hostname)" | sudo tee -a /etc/hosts'
YIELDS = {  # variable, value to set, values that yield
    "Intel MPI": ("I_MPI_THREAD_YIELD", "2", {"2", "3"}),
    "Open MPI": ("OMPI_MCA_mpi_yield_when_idle", "true", {"true", "1"}),
    "MPICH": ("MPIR_CVAR_POLLS_BEFORE_YIELD", "1", {"0", "1"}),
}


@dataclass(frozen=True)
class Check:
    """One line of the report. `fix` is the exact command, empty if and only if the status is ok."""

    topic: str
    status: str
    finding: str
    fix: str = ""

    def __post_init__(self) -> None:
        assert self.status in STATUSES and (self.status == "ok") == (not self.fix), self


def family(text: str) -> str | None:
    """'Open MPI', 'MPICH' or None, from the version text of a library or launcher.

    MPICH stands for its derivatives too: Intel, MVAPICH, Cray.
    """
    if re.search(r"open ?mpi|open-mpi|openrte|prrte|prterun", text, re.IGNORECASE):
        return "Open MPI"
    mpich = re.search(r"mpich|mvapich|hydra|intel\(r\) mpi", text, re.IGNORECASE)
    return "MPICH" if mpich else None


def product(text: str) -> str | None:
    """The family, but Intel MPI by its own name."""
    return "Intel MPI" if re.search(r"intel\(r\) mpi", text, re.IGNORECASE) else family(text)


def cores(facts: Facts) -> Check:
    """Do ranks that share a core yield it while they wait?"""
    ranks, usable = facts["on_machine"], facts["cores"]
    if not facts["launcher"]:
        return Check("cores", "ok", f"{usable} cores: more ranks than that share them")
    if ranks <= usable:
        return Check("cores", "ok", f"{ranks} ranks on {usable} cores")
    name, value, yielding = YIELDS[product(facts["mpi"] or "") or "MPICH"]
    finding = f"{ranks} ranks share {usable} cores"
    if facts["environ"].get(name, "").lower() not in yielding:
        return Check("cores", "look", f"{finding} and do not yield", f"export {name}={value}")
    finding += "; waiting ranks yield, but measured times do not represent a cluster"
    fix = f"mpiexec -n {usable} ...   (or fewer, when you measure)"
    return Check("cores", "look", finding, fix)


def load(facts: Facts) -> Check | None:
    """Does other work take the cores? Measured times are then not this machine's."""
    if facts["launcher"]:
        return None
    if facts["load"] is None:
        return Check("load", "ok", NOT_LOOKED)
    if not facts["load"].busy:
        return None
    return Check("load", "look", str(facts["load"]), "top   (shows them; measure without them)")


def sessions(facts: Facts) -> Check | None:
    """Does autogroup defeat yielding?

    Launchers start each rank in its own session. With autogroup a rank yields only to its session.
    """
    if not facts["launcher"] or facts["on_machine"] <= facts["cores"] or not facts["autogroup"]:
        return None
    finding = (
        "each rank is one session of Linux's autogroup: a waiting rank does not yield to others"
    )
    fix = "sudo sysctl kernel.sched_autogroup_enabled=0   (while you measure)"
    return Check("sessions", "look", finding, fix)


def binding(facts: Facts) -> Check | None:
    """Does the communication thread have a core of its own?

    Open MPI binds each rank to one core if there are enough.
    """
    if not facts["launcher"] or facts["on_machine"] > facts["cores"]:
        return None
    if facts["own_cores"] > 1 or facts["cores"] == 1:
        return None
    finding = "each rank is bound to 1 core, shared by its communication thread and its arithmetic"
    fix = "mpiexec --bind-to none ...   (Slurm: srun --cpu-bind=none, or -c 2)"
    return Check("binding", "look", finding, fix)


def blas_threads(facts: Facts) -> Check:
    """Do the ranks' BLAS threads fit on the cores?"""
    pools, topic = facts["blas"], "BLAS threads"
    if not pools:
        missing = "threadpoolctl" if facts["numpy"] else "numpy threadpoolctl"
        fix = f"{facts['python']} -m pip install {missing}"
        return Check(topic, "look", "unknown", fix)
    threads, ranks = max(pool["num_threads"] for pool in pools), facts["on_machine"]
    where = f"in each of {ranks} ranks" if ranks > 1 else "in 1 process"
    finding = f"{threads} BLAS threads {where}"
    if ranks > 1 and threads > 1 and threads * ranks > facts["cores"]:
        fix = "export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1"
        return Check(topic, "look", f"{finding} on {facts['cores']} cores", fix)
    return Check(topic, "ok", finding)


def blas_kernels(facts: Facts) -> Check | None:
    """Does OpenBLAS use the best kernels for this processor?

    Pinned to Haswell it ran at half speed (measured).
    """
    found = {pool["architecture"] for pool in facts["blas"] or [] if pool.get("architecture")}
    if not found:
        return None
    topic, names = "BLAS kernels", ", ".join(sorted(found))
    if "avx512vl" in facts["cpu_flags"]:
        best, kernels = "AVX-512", AVX512
    elif {"avx2", "fma"} <= facts["cpu_flags"]:
        best, kernels = "AVX2", AVX2
    else:
        best, kernels = "", found
    if found & kernels:
        return Check(topic, "ok", names)
    finding = f"{names}, though the processor has {best}"
    pinned = facts["environ"].get("OPENBLAS_CORETYPE")
    if pinned:
        finding += f": OPENBLAS_CORETYPE={pinned} pins it"
        return Check(topic, "look", finding, "unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE")
    return Check(topic, "look", finding, f"{facts['python']} -m pip install --upgrade numpy")


def shared_memory(facts: Facts) -> Check | None:
    """Is /dev/shm large enough for the ranks?"""
    if facts["shm"] is None:
        return None
    (total, free), removed, topic = facts["shm"], facts["removed"], "shared memory"
    finding = f"/dev/shm has {_format_size(free)} free of {_format_size(total)}"
    if removed:
        mib = sum(removed.values()) // MIB
        finding += f"; {len(removed)} files of killed jobs removed, {mib} MiB"
    ranks = max(facts["on_machine"], 8)
    needed = ranks * SHM_BYTES_PER_RANK
    if free >= needed:
        return Check(topic, "ok", finding)
    finding += f"; {ranks} ranks take up to {_format_size(needed)}, too little ends in SIGBUS"
    remount = "sudo mount -o remount,size=1g /dev/shm; rm this user's old files in it"
    fix = f"docker run --shm-size=1g ...   (or: {remount})"
    return Check(topic, "look" if free >= needed // 4 else "broken", finding, fix)


def host_name(facts: Facts) -> Check:
    """Does this machine's name resolve?"""
    if facts["address"]:
        return Check("host name", "ok", f"{facts['host']} is {facts['address']}")
    works = facts["launcher"] or (facts["started"] or {}).get("code") == 0
    finding = f"{facts['host']} does not resolve, so some MPIs cannot start"
    return Check("host name", "look" if works else "broken", finding, RESOLVE)


def gpu(facts: Facts) -> Check:
    """Is there CuPy for the GPUs? gpu_asked: by --gpu; then without both it is broken."""
    gpus, cupy = facts["gpus"], facts["cupy"]
    names = f"{len(gpus)} GPU{'s' * (len(gpus) > 1)} ({', '.join(sorted(set(gpus)))})"
    broken = "broken" if facts["gpu_asked"] else "look"
    if not gpus and facts["gpu_asked"]:
        fix = "nvidia-smi   (and read why; under Slurm ask for one: sbatch --gpus=1)"
        return Check("GPU", broken, "--gpu was asked for, and nvidia-smi names no GPU here", fix)
    if not gpus:
        idle = f"CuPy {cupy} has nothing to run on" if cupy else "no CuPy needed"
        return Check("GPU", "ok", f"no NVIDIA GPU here: everything runs on the CPU, {idle}")
    if not cupy:
        why = f" ({facts['cupy_error']})" if facts["cupy_error"] else ""
        finding = f"{names}, but no CuPy{why}: everything runs on the CPU"
        fix = f"{facts['python']} -m pip install 'cupy-cuda12x[ctk]>=14'"
        return Check("GPU", broken, finding, fix)
    return Check("GPU", "ok", f"{names}, CuPy {cupy}; rank r of a node takes GPU r mod {len(gpus)}")


def cuda_aware(facts: Facts) -> Check | None:
    """May MPI be given device pointers? `device_trial` is the outcome of doctor --gpu."""
    topic, trial, aware = "CUDA-aware", facts["device_trial"], facts["cuda_aware"]
    wanted = facts["environ"].get("REFGF_CUDA_AWARE", "auto")
    if wanted not in ("auto", "0", "1"):
        finding = f"REFGF_CUDA_AWARE: got {wanted!r}; wanted auto, 0 or 1"
        return Check(topic, "broken", finding, "unset REFGF_CUDA_AWARE")
    if not (facts["gpus"] and facts["cupy"]):
        return None
    if trial and trial != "right" and (aware or wanted == "1"):
        claim = "REFGF_CUDA_AWARE=1" if wanted == "1" else "the library claims support"
        finding = f"{claim}, but a trial {trial}"
        return Check(topic, "broken", finding, "export REFGF_CUDA_AWARE=0")
    if trial == "right" and not aware:
        finding = "a trial passed, but the library does not claim support: messages use host memory"
        return Check(topic, "look", finding, "export REFGF_CUDA_AWARE=1")
    if aware:
        finding = "yes: MPI takes device pointers" + (" (tried)" if trial else "")
        return Check(topic, "ok", finding)
    finding = "no: messages go through pinned host memory, which is correct but slower"
    fix = "conda env create -f environment-gpu.yml   (or the site's CUDA-aware MPI)"
    return Check(topic, "look", finding, fix)


def _format_size(nbytes: int) -> str:
    return f"{nbytes / 2**30:.0f} GiB" if nbytes >= 2**30 else f"{nbytes / MIB:.0f} MiB"
