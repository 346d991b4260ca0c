"""The GPU's benchmarks in small, on a GPU or its stand-in: every side runs, every row is judged."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.gpu import speed_kernels, speed_networks, speed_topk
from tests.gpu.measure import judge
from tests.support.fake_cuda_c import needs_a_compiler
from tests.support.jobs import ROOT, needs_mpiexec, run_job

HERE = Path(__file__).resolve().parent
STAND_IN = os.pathsep.join([ROOT, os.path.join(ROOT, "tests", "support", "as_cupy")])


@pytest.fixture
def where():
    """PyTorch's device."""
    torch = pytest.importorskip("torch")
    return "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("precision", speed_networks.PRECISIONS)
@pytest.mark.parametrize("name", speed_networks.CASES)
def test_networks(cupy, where, name, precision):
    case = speed_networks.CASES[name]
    small = replace(case, batch=2, image_size=67, width=1 / 16)
    (row,) = speed_networks.measure(small, precision, where, turns=1)
    assert row["name"] == f"{case.title}, {precision}: images per second, refgf over PyTorch"
    wanted = {"float32": 0.8, "tf32": 0.8, "float16": 0.6}[precision]
    assert row.get("wanted") == (["at least", wanted] if name == "alexnet" else None)


def test_both_sides_have_as_many_parameters(where):
    for case in speed_networks.CASES.values():
        network = replace(case, image_size=67, width=1 / 8).new()
        theirs = speed_networks.torch_network(network).parameters()
        assert sum(p.numel() for p in theirs) == sum(spec.size for spec in network.tensors)


def test_mstopk(cupy, where):
    rows = speed_topk.measure(20_000, where, turns=1)
    assert [row["wanted"] for row in rows] == [["at most", 1.0]] * 2
    assert "0.1 % of 20000" in rows[0]["name"]


def test_a_wrong_choice_is_no_measurement():
    x = np.arange(1000.0, dtype=np.float32)
    speed_topk.require_choice(x, np.arange(990, 1000), 10)
    for wrong in (np.arange(10), np.arange(991, 1000), np.full(10, 999)):
        with pytest.raises(ValueError, match="; wanted 10 with .*; next: "):
            speed_topk.require_choice(x, wrong, 10)


@needs_a_compiler
def test_kernels(cupy):
    rows = speed_kernels.measure(100_000, (2, 9, 9, 3), turns=1)
    bars = {row["name"]: row["wanted"] for row in rows if "wanted" in row}
    assert bars.pop("CSC's accumulate: over the memory limit") == ["at most", 1.5]
    assert set(map(tuple, bars.values())) == {("at most", 1)} and len(bars) == 9
    assert len(rows) == 9 + 7 and all(judge.written(row) for row in rows)


def test_csc_on_nccl(where, monkeypatch, capsys):
    nccl = pytest.importorskip("tests.gpu.nccl")  # needs PyTorch
    backend = "nccl" if where == "cuda" else "gloo"
    assert nccl.main(where, backend) == 0 and "the same chunks in" in capsys.readouterr().out
    monkeypatch.setattr(nccl, "LARGEST", -1)
    assert nccl.main(where, backend) == 1


ALLREDUCE = """
from tests.gpu import speed_allreduce
from mpi4py import MPI
if {wrong}:
    speed_allreduce.MAKERS["MPI"] = lambda comm: lambda x: None
rows = speed_allreduce.measure(MPI.COMM_WORLD, [1 << 20], turns=1)
names = [row["name"].removeprefix("1 MiB: ") for row in rows]
assert names == {names}, names
"""


@needs_mpiexec
@needs_a_compiler
@pytest.mark.parametrize("aware, wrong", [(False, False), (False, True), (True, False)])
def test_allreduce(aware, wrong):
    path = os.pathsep.join([STAND_IN, os.environ.get("PYTHONPATH", "")])
    environment = {"PYTHONPATH": path, "REFGF_CUDA_AWARE": str(int(aware))}
    names = ["ring, staged over MPI, staged"]
    if aware:
        names = [f"{side}, device pointers over {side}, staged" for side in ("ring", "MPI")] + names
        names += ["ring, device pointers over MPI, device pointers"]
    job = run_job(2, ALLREDUCE.format(wrong=wrong, names=names), env=environment)
    assert (job.code != 0) == wrong, job.text
    assert ("in each of the 1003 elements, the sum of 1 to p; next: " in job.text) == wrong
