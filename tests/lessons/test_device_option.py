"""--device of the lessons, on the stand-in for CuPy: which device, what is refused, what is timed.

Each lesson checks its oracle on device arrays. Nothing here runs on a GPU.
"""

import json
import runpy
import sys
from argparse import Namespace
from importlib.util import find_spec
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

from kit import axes, gpu
from kit.run import Run
from lab.performance import layer_limits, picture
from refgf.machine import threads
from refgf.nn.network import Network
from tests.support.fake_cuda_c import needs_a_compiler
from tests.support.fake_cupy import installed
from tests.support.jobs import run_job

LESSONS = sorted((Path(__file__).resolve().parents[2] / "lessons").glob("[0-9][0-9]_*.py"))
SHORT = "01", "04", "10"  # seconds each
JUDGE = "numpy", "float64"  # of a rounding error
LIKE_OTHERS = "03", "07", "08", "14"  # what they compute on a device other lessons compute, too
ABLE = [each for each in LESSONS if each.name[:2] not in (*gpu.CPU_ONLY, *LIKE_OTHERS)]


@pytest.fixture
def cupy():
    with installed() as module:
        yield module


def options(device, lesson="01_ring_allreduce"):
    return Namespace(device=device, lesson=lesson, threads=2, link=None, quick=True, full=False)


def start(lesson, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", [str(lesson), *map(str, arguments)])
    runpy.run_path(str(lesson), run_name="__main__")


# ---- which device ----


@pytest.mark.parametrize("device", ["", "tpu", "gpu:", "gpu:-1", "gpu:x", "GPU", "cpu:0"])
def test_another_word_is_refused(device):
    with pytest.raises(ValueError, match="^--device: got .*; wanted cpu, gpu, .*; next: "):
        gpu.resolve(options(device))


def test_a_lesson_without_device_arrays_refuses_a_gpu_and_auto_is_the_cpu(cupy):
    with pytest.raises(ValueError, match="computes on the CPU only; wanted cpu; next: "):
        gpu.resolve(options("gpu", "00_two_ranks"))
    gpu.resolve(chosen := options("auto", "00_two_ranks"))
    assert chosen.device == "cpu"


@pytest.mark.parametrize("count, device", [(1, "gpu"), (0, "cpu"), (None, "cpu")])
def test_auto_takes_a_gpu_where_there_is_one(cupy, monkeypatch, count, device):
    have(cupy, monkeypatch, count)
    for like, wanted in ((None, device), ("this-machine", device), ("mgwfbp-10gbe", "cpu")):
        gpu.resolve(chosen := Namespace(**vars(options("auto")), like=like))
        assert chosen.device == wanted


@pytest.mark.parametrize("count, device", [(None, "gpu"), (0, "gpu"), (1, "gpu:1")])
def test_a_missing_gpu_is_one_sentence_on_all_ranks(cupy, monkeypatch, count, device):
    have(cupy, monkeypatch, count)
    first, second = threads.run(2, refused, [device] * 2)
    assert first == second and first.startswith(f"--device {device}: got ")
    assert "; wanted " in first and "; next: " in first and first.endswith("(rank 0)")


def test_ranks_that_differ_are_one_sentence(cupy):
    first, second = threads.run(2, refused, ["gpu", "cpu"])
    assert (
        first
        == second
        == (
            "--device: got cpu on rank 1, gpu on rank 0; wanted the same on all ranks; "
            "next: --device cpu"
        )
    )


def test_ranks_share_the_gpus_in_turn(cupy, monkeypatch):
    have(cupy, monkeypatch, 2)
    selected = []
    monkeypatch.setattr(gpu.device, "select", selected.append)
    numbers = [d.number for d in threads.run(3, gpu.chosen, options("gpu"))]
    assert numbers == [0, 1, 0] and sorted(selected) == [0, 0, 1]
    assert [d.number for d in threads.run(2, gpu.chosen, options("gpu:1"))] == [1, 1]
    assert [d.on_gpu for d in threads.run(2, gpu.chosen, options("cpu"))] == [False, False]


def have(cupy, monkeypatch, count):
    """So many GPUs; None: no CuPy."""
    if count is None:
        monkeypatch.setitem(sys.modules, "cupy", None)
    else:
        monkeypatch.setattr(cupy.cuda.runtime, "getDeviceCount", lambda: count)


def refused(comm, devices):
    with pytest.raises(ValueError) as error:
        gpu.chosen(comm, options(devices[comm.Get_rank()]))
    return str(error.value)


@pytest.mark.skipif(find_spec("cupy") is not None, reason="there is a CuPy here")
def test_without_cupy_ranks_of_mpi_end_before_anything_is_measured(tmp_path):
    job = run_job(2, [str(LESSONS[1]), "--device", "gpu", "--quick", "--output", str(tmp_path)])
    assert job.code != 0 and not list(tmp_path.iterdir()) and "Traceback" not in job.stderr
    assert "--device gpu: got no CuPy (" in job.stderr and "The oracle" not in job.stdout


def test_an_emulated_cluster_is_refused(cupy, monkeypatch, capsys, tmp_path):
    lesson, arguments = LESSONS[3], ["--threads", 2, "--device", "gpu", "--output", tmp_path]
    with pytest.raises(SystemExit):
        start(lesson, monkeypatch, *arguments, "--like", "mgwfbp-10gbe")
    said = " ".join(capsys.readouterr().err.split())
    assert "whose computing is slept; wanted this machine; next: --like this-machine" in said


# ---- what is timed and computed ----


@pytest.mark.parametrize("device, waits", [("gpu", 8), ("cpu", 0)])
def test_the_clock_waits_for_the_gpu(cupy, device, waits):
    def body(comm):
        run, before = Run(comm, options(device)), cupy.waits
        run.time(lambda: None, 1)
        run.alternate({"a": lambda: None}, 1)
        return cupy.waits - before

    assert threads.run(1, body) == [waits]


@pytest.mark.parametrize("device", ["gpu", "cpu"])
def test_the_roofline_of_a_gpu_has_a_core_beside_it(cupy, device):
    def body(comm):
        return layer_limits.find(Run(comm, options(device)))

    (found,) = threads.run(1, body)
    assert list(found["nodes"]) == ["this GPU"] * (device == "gpu") + ["this machine", "V100"]
    figure, (axis,) = axes.frame("", 1, 1)
    picture.draw_limits(axis, found["nodes"])
    assert len(axis.lines) == len(found["nodes"]) * (1 + len(picture.DRAWN))
    plt.close(figure)


@needs_a_compiler
@pytest.mark.parametrize(
    "lesson",
    [
        pytest.param(lesson, marks=[] if lesson.name[:2] in SHORT else pytest.mark.long)
        for lesson in ABLE
    ],
    ids=lambda lesson: lesson.stem,
)
def test_a_lesson_on_device_arrays(cupy, tmp_path, monkeypatch, capsys, lesson):
    """Its oracle holds, and what trains has device arrays."""
    loss, used = Network.loss, set()

    def watched(network, *arguments):
        used.add((network.xp.__name__, network.dtype.name))
        return loss(network, *arguments)

    monkeypatch.setattr(Network, "loss", watched)
    have(cupy, monkeypatch, 2)
    arguments = ["--quick", "-v", "--threads", 2, "--device", "gpu", "--output", tmp_path]
    start(lesson, monkeypatch, *arguments)
    plt.close("all")
    assert used <= {("cupy", "float" + bits) for bits in ("16", "32", "64")} | {JUDGE}
    result = json.loads((tmp_path / f"{lesson.stem}.json").read_text())
    assert result["device"]["number"] == 0 and "host memory" in result["device"]["messages"]
    assert result["regime"]["like"] == "this-machine"
    said = capsys.readouterr().out
    assert "2 GPUs; rank 0 has number 0: " in said and "The oracle" in said and cupy.waits > 0
