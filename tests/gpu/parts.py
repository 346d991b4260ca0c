"""The parts of `make gpu-check`, as data: what runs, on how many ranks, and how long at most.

GPU tests run with ranks as threads, then on ranks of MPI with arrays staged through host memory,
and once more with device pointers where MPI takes them: each way is dead code in the other run.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.gpu.usable import why_no_device_pointers, why_no_torch

ROOT = Path(__file__).resolve().parents[2]
TESTS = ["-m", "pytest", "tests/gpu", "-rs", "-k", "not stand-in", "--timeout=60"]
TESTS += ["--ignore=tests/gpu/test_gpu_run.py"]  # it tests this command
ON_RANKS = ["-m", "mpi4py", *TESTS, "--with-mpi", "-x"]
NETWORKS = {"alexnet": "AlexNet", "resnet50": "ResNet-50"}
PRECISIONS = "float32", "tf32", "float16"
RANKS = 1, 2, 4  # of the lessons, on one GPU too: several ranks may share it
FOLDER = "{folder}"  # in an argument: a folder of the part's own, which is deleted after it
RATIOS = f"{FOLDER}/ratios.json"  # where a benchmark writes its ratios


def nothing(mpiexec: str) -> None:
    """A part that can run on every machine with a GPU."""


@dataclass(frozen=True)
class Part:
    """One command.

    arguments    of Python
    limit_s      it is ended after so many seconds, and counts as failed
    ranks        of mpiexec; 0: one process without it
    environment  is added to this process's
    missing      mpiexec -> why it cannot run here, or None
    """

    name: str
    arguments: list[str]
    limit_s: float
    ranks: int = 0
    environment: dict[str, str] = field(default_factory=dict)
    missing: Callable[[str], str | None] = nothing


def staged(aware: str) -> dict[str, str]:
    return {"REFGF_CUDA_AWARE": aware}


def network(name: str, precision: str) -> Part:
    options = ["--network", name, "--precision", precision, RATIOS]
    arguments = ["tests/gpu/speed_networks.py", *options]
    return Part(f"{NETWORKS[name]}, {precision}", arguments, 30, missing=why_no_torch)


def lesson(file: Path, ranks: int) -> Part:
    options = ["--quick", "--device", "gpu", "--output", FOLDER]
    name = f"lesson {file.name[:2]} on {ranks} rank{'s' * (ranks > 1)}"
    return Part(name, [f"lessons/{file.name}", *options], 60, ranks)


# one after another, because most of them are timed
ALONE = [
    Part("doctor", ["-m", "refgf.doctor", "--gpu"], 30),
    Part("tests, ranks as threads", TESTS, 80, environment=staged("0")),
    Part("tests on 4 ranks, staged", ON_RANKS, 50, 4, staged("0")),
    Part(
        "tests on 4 ranks, device pointers",
        ON_RANKS,
        50,
        4,
        staged("1"),
        missing=why_no_device_pointers,
    ),
    *(network(name, precision) for name in NETWORKS for precision in PRECISIONS),
    Part("MSTopK", ["tests/gpu/speed_topk.py", RATIOS], 25, missing=why_no_torch),
    Part("kernels", ["tests/gpu/speed_kernels.py", RATIOS], 25),
    Part("allreduce", ["tests/gpu/speed_allreduce.py", RATIOS], 40, 4),
]
# a few at a time: they check arrays against the oracle, and nothing that they time is kept
FILES = sorted((ROOT / "lessons").glob("[0-9][0-9]_*.py"))
LESSONS = [lesson(file, ranks) for file in FILES[1:] for ranks in RANKS]  # 00 has no device arrays
