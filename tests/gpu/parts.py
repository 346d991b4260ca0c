"""The stages of the run on a GPU, as data: what runs, on how many ranks, and how long at most.

The most informative stage comes first, because a short run leaves out the last ones. GPU tests run
with ranks as threads, then on ranks of MPI with arrays staged through host memory, and once more
with device pointers where MPI takes them: each way is dead code in the other run.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.gpu.usable import why_no_device_pointers, why_no_torch

ROOT = Path(__file__).resolve().parents[2]
PYTEST = ["-m", "pytest", "--color=no", "--durations=5"]
TESTS = [*PYTEST, "-rs", "-k", "not stand-in", "--timeout=60"]
TESTED = "comm", "exchange", "training", "kernels", "nn"  # tests/gpu/test_gpu_TESTED.py
OF_RANKS = TESTED[:3]
RING = [*PYTEST, "tests/gpu/test_gpu_comm.py", "-k", "not stand-in and defined_bits"]
NETWORKS = {"alexnet": "AlexNet", "resnet50": "ResNet-50"}
PRECISIONS = "float32", "float16", "tf32"
LESSONS = "01", "03", "05", "06", "12"
FOLDER = "{folder}"  # in an argument: a folder of the part's own, whose JSON files are kept
RATIOS = f"{FOLDER}/ratios.json"  # where a benchmark writes its ratios


def nothing(mpiexec: str) -> None:
    """A part that can run on every machine with a GPU."""


@dataclass(frozen=True)
class Part:
    """One command.

    arguments    of Python
    limit_s      it is ended after so many seconds, and counts as failed
    ranks        of mpiexec; 0: one process without it
    on_threads   more arguments where there is no MPI: then the ranks are threads
    environment  is added to this process's
    missing      mpiexec -> why it cannot run here, or None
    """

    name: str
    arguments: list[str]
    limit_s: float
    ranks: int = 0
    on_threads: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    missing: Callable[[str], str | None] = nothing


@dataclass(frozen=True)
class Stage:
    """Parts that share limit_s seconds, at_a_time next to each other where none is timed."""

    name: str
    limit_s: float
    parts: list[Part]
    at_a_time: int = 1


def staged(aware: str) -> dict[str, str]:
    return {"REFGF_CUDA_AWARE": aware}


def on_ranks(name: str, tests: list[str], limit_s: float, ranks: int, aware: str = "0") -> Part:
    arguments = ["-m", "mpi4py", *tests, "--with-mpi", "-x"]
    missing = why_no_device_pointers if aware == "1" else nothing
    return Part(name, arguments, limit_s, ranks, environment=staged(aware), missing=missing)


def tests_of(tested: str) -> list[Part]:
    """With ranks as threads, staged through host memory, and with device pointers."""
    name, tests = f"tests of {tested}", [*TESTS, f"tests/gpu/test_gpu_{tested}.py"]
    as_threads = Part(f"{name}, ranks as threads", tests, 85, environment=staged("0"))
    if tested not in OF_RANKS:
        return [as_threads]
    return [
        as_threads,
        on_ranks(f"{name} on 4 ranks, staged", tests, 85, 4),
        on_ranks(f"{name} on 4 ranks, device pointers", tests, 85, 4, "1"),
    ]


def network(name: str, precision: str) -> Part:
    options = ["--network", name, "--precision", precision, RATIOS]
    arguments = ["tests/gpu/speed_networks.py", *options]
    return Part(f"{NETWORKS[name]}, {precision}", arguments, 30, missing=why_no_torch)


def lesson(number: str) -> Part:
    (file,) = (ROOT / "lessons").glob(f"{number}_*.py")
    arguments = [f"lessons/{file.name}", "--quick", "--device", "gpu", "--output", FOLDER]
    return Part(f"lesson {number}", arguments, 80, 2, on_threads=("--threads", "2"))


STAGES = [
    Stage(
        "doctor and one ring",
        60,
        [
            Part("the ring's bits, ranks as threads", RING, 25, environment=staged("0")),
            on_ranks("the ring's bits on 2 ranks", RING, 25, 2),
            Part("doctor", ["-m", "refgf.doctor", "--gpu"], 30),
        ],
    ),
    Stage("tests", 90, [part for tested in TESTED for part in tests_of(tested)], at_a_time=6),
    Stage("lessons", 120, [lesson(number) for number in LESSONS], at_a_time=3),
    Stage(
        "benchmarks",
        140,
        [
            network("alexnet", "float32"),
            network("alexnet", "float16"),
            Part("MSTopK", ["tests/gpu/speed_topk.py", RATIOS], 25, missing=why_no_torch),
            Part("kernels", ["tests/gpu/speed_kernels.py", RATIOS], 25),
            network("alexnet", "tf32"),
            *(network("resnet50", precision) for precision in PRECISIONS),
        ],
    ),
    Stage(
        "overlap",
        60,
        [
            lesson("04"),
            Part("allreduce, pinned copies", ["tests/gpu/speed_allreduce.py", RATIOS], 40, 4),
        ],
    ),
    Stage(
        "refgf.torch",
        60,
        [Part("CSC on NCCL", ["tests/gpu/nccl.py"], 60, missing=why_no_torch)],
    ),
]
