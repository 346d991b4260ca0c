"""Where a lesson computes: NumPy on the CPU, or CuPy on a GPU (--device). Decided here only.

    gpu.resolve(options)              in the parser: a bad value is an error, "auto" is decided
    device = gpu.chosen(comm, options)     before anything is measured: this rank's Device

Code of lessons asks its `Run`, and is the same for both:

    run.xp, run.array(x)    numpy or cupy; a NumPy array there (on the CPU x itself)
    run.clock()             seconds, when all that this rank has queued on a GPU is done
    run.on_gpu              for what needs memory of the host

Pools, workspaces and messages follow their arrays. `refgf.device.to_host` brings arrays back to
an oracle. docs/gpu.md says which lessons have run on one; tests have a stand-in for CuPy.
"""

import os
import re
import time
from types import ModuleType

import numpy as np

import refgf.launch as launch
from kit.regime import environment
from refgf import device
from refgf.cluster.like import HERE
from refgf.comm.topology import nodes
from refgf.engine import staging

CPU, GPU = "cpu", "gpu"
CPU_ONLY = ("00", "17")  # lessons whose arrays are not worth a GPU, or of NumPy alone
WANTED = "wanted CuPy and a GPU that it sees"
NEXT = "next: python -m refgf.doctor --gpu, or --device cpu"


class Device:
    """What one rank computes on.

    number      of its GPU; None: the CPU
    processors  GPUs, or else cores, that the ranks of a machine share
    """

    def __init__(self, number=None, count: int = 1, on_threads: bool = False) -> None:
        self.number, self.on_gpu, self.on_threads = number, number is not None, on_threads
        self.processors = count if self.on_gpu else launch.job.cores
        self.xp: ModuleType = device.module(GPU if self.on_gpu else CPU)
        self.clock = self._clock if self.on_gpu else time.perf_counter

    def array(self, x: np.ndarray) -> device.Array:
        """A NumPy array on this device: a copy on a GPU, x itself on the CPU."""
        if not self.on_gpu:
            return x
        there = self.xp.asarray(x)
        self._wait()  # the copy may still read x, which the caller may change
        return there

    def _wait(self) -> None:
        self.xp.cuda.get_current_stream().synchronize()

    def _clock(self) -> float:
        self._wait()
        return time.perf_counter()

    def record(self) -> dict:
        """What the JSON says of a GPU; {} for the CPU, which its `machine` describes."""
        if not self.on_gpu:
            return {}
        runtime = self.xp.cuda.runtime
        facts = {
            "gpus": self.processors,
            "number": self.number,
            "name": answer(lambda: runtime.getDeviceProperties(self.number)["name"].decode()),
            "driver": answer(lambda: version(runtime.driverGetVersion())),
            "cupy": answer(lambda: self.xp.__version__),
            "messages": messages(self.on_threads),
        }
        return {"device": facts}

    def in_words(self) -> str:
        """A line for the head of the lesson's output; "" for the CPU."""
        if not self.on_gpu:
            return ""
        facts = self.record()["device"]
        return (
            f"{facts['gpus']} GPU{'s' * (facts['gpus'] > 1)}; rank 0 has number {facts['number']}: "
            f"{facts['name']}, CUDA {facts['driver']} (driver), CuPy {facts['cupy']}; "
            f"{facts['messages']}"
        )


def answer(question) -> str:
    """What CUDA or CuPy answers, as text."""
    try:
        return str(question())
    except (AttributeError, RuntimeError, KeyError):  # an older CuPy, or no answer from the driver
        return "unknown"


def version(number: int) -> str:
    """12040 -> '12.4'."""
    return f"{number // 1000}.{number % 1000 // 10}"


def messages(on_threads: bool) -> str:
    """How arrays of a GPU are sent, and who says that MPI can or cannot take them."""
    if on_threads:
        return "ranks are threads, so messages go through host memory"
    setting = os.environ.get("REFGF_CUDA_AWARE", "auto")
    source = "MPI was asked" if setting == "auto" else f"REFGF_CUDA_AWARE={setting}"
    if staging.cuda_aware():
        return f"MPI is CUDA-aware ({source})"
    return f"MPI is not CUDA-aware ({source}), so messages go through pinned host memory"


def gpus() -> tuple[int, str]:
    """(GPUs that CuPy sees, why there is none)."""
    try:
        count = device.module(GPU).cuda.runtime.getDeviceCount()
    except ValueError as error:
        return 0, f"no CuPy ({error.__cause__})"
    except RuntimeError as error:  # no driver, no device
        return 0, f"no GPU ({error})"
    return count, "" if count else "CuPy, which sees no GPU"


def resolve(options) -> None:
    """Check word, lesson and cluster; "auto" is a GPU where CuPy sees one and these allow it."""
    asked, able, cluster = options.device, options.lesson[:2] not in CPU_ONLY, emulated(options)
    if not re.fullmatch("cpu|gpu|auto|gpu:[0-9]{1,4}", asked):
        raise ValueError(
            f"--device: got {asked!r}; wanted cpu, gpu, gpu:N or auto; next: --device gpu"
        )
    if asked.startswith(GPU) and not able:
        raise ValueError(
            f"--device: got {asked}, but {options.lesson} computes on the CPU only; wanted cpu; "
            "next: leave it out, or take another lesson"
        )
    if asked.startswith(GPU) and cluster:
        raise ValueError(
            f"--device: got {asked} and the emulated cluster {cluster}, whose computing is slept; "
            f"wanted this machine; next: --like {HERE}, or --device cpu"
        )
    if asked == "auto":
        options.device = GPU if able and not cluster and gpus()[0] else CPU


def emulated(options) -> str | None:
    """The named cluster that is asked for; None: this machine, or no word of it."""
    if asked := getattr(options, "like", None):
        return None if asked == HERE else asked
    like = environment().get("like")
    return like and like["name"]


def is_asked(options) -> bool:
    """Is a GPU asked for? `resolve` comes first."""
    return getattr(options, "device", CPU).startswith(GPU)


def chosen(comm, options) -> Device:
    """This rank's device: with `gpu`, rank r of a node takes GPU r mod their number. Collective.

    Errors: ValueError with the same sentence on all ranks, where one of them lacks its device.
    """
    asked = comm.allgather(getattr(options, "device", CPU))
    for rank, word in enumerate(asked):
        if word != asked[0]:
            raise ValueError(
                f"--device: got {word} on rank {rank}, {asked[0]} on rank 0; "
                "wanted the same on all ranks; next: --device cpu"
            )
    if not is_asked(options):
        return Device()
    number, count, error = own_number(comm, asked[0])
    for rank, missing in enumerate(comm.allgather(error)):
        if missing:
            raise ValueError(f"--device {asked[0]}: got {missing} (rank {rank})")
    device.select(number)
    return Device(number, count, bool(options.threads))


def own_number(comm, asked: str) -> tuple[int, int, str]:
    """(number of this rank's GPU, how many this machine's ranks use, why not). Collective."""
    near = next(group for group in nodes(comm) if comm.Get_rank() in group)
    count, missing = gpus()
    if not count:
        return 0, 0, f"{missing}; {WANTED}; {NEXT}"
    if ":" not in asked:
        return near.index(comm.Get_rank()) % count, min(count, len(near)), ""
    number = int(asked.partition(":")[2])
    if number < count:
        return number, 1, ""
    return 0, 0, f"{count} GPU{'s' * (count > 1)}; wanted a number below {count}; {NEXT}"
