"""The oracle on PyTorch DDP: PyTorch's hooks and ours pass, planted mistakes are caught."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is an extra")

RANKS, SPARSE_FROM = 3, 2


@pytest.fixture(scope="module", params=["raises", pytest.param("records", marks=pytest.mark.long)])
def trained(request):
    command = [sys.executable, str(Path(__file__).parent / "ddp_job.py"), str(RANKS), request.param]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]
    return request.param, json.loads(done.stdout.splitlines()[-1])


RIGHT = [
    "torch allreduce",
    "torch fp16",
    "torch fp16, declared",
    "torch bf16",
    "refgf allreduce",
    "refgf fp16",
    "refgf csc",
    "refgf csc fp16",
    "torch PowerSGD",
    "top",
]


@pytest.mark.parametrize("name", RIGHT)
def test_right_hooks_pass(trained, name):
    found = trained[1][name]
    assert found["error"] is None and found["failures"] == [] and found["same parameters"]
    assert found["judged"] > 6, "several buckets in six steps"


@pytest.mark.parametrize(("name", "wire"), [("torch fp16", "float16"), ("torch bf16", "bfloat16")])
def test_a_documented_difference_is_named(trained, name, wire):
    assert trained[1][name]["notes"] == [
        f"farther from the mean than float32 explains, within the bound for {wire} on the wire"
    ]
    for exact in ("torch allreduce", "refgf allreduce", "torch fp16, declared"):
        assert trained[1][exact]["notes"] == []


@pytest.mark.parametrize(
    ("name", "step", "looks"),
    [
        ("skips a bucket", 2, "not communicated: every rank has its own gradient"),
        ("average forgotten", 0, "average forgotten: this is the sum"),
        ("averaged twice", 0, "divided by p twice"),
        ("rank lost", 0, "rank 1 is lost"),
        ("ranks differ", 0, "rank 1 holds other bits than rank 0"),
        ("residual lost", SPARSE_FROM + 1, "residual lost: unsent values are dropped"),
        ("not corrected", 1, "momentum not corrected: v + g"),
        ("PowerSGD without feedback", 2, "the sum is"),
        ("top, not added", 2, "the residual is not added"),
        ("top, not cleared", 0, "the residual is not cleared when it is sent"),
        ("top, sum", 0, "average forgotten: this is the sum"),
    ],
)
def test_planted_mistakes_are_caught_in_the_first_step_that_has_them(trained, name, step, looks):
    mode, found = trained[0], trained[1][name]
    assert (
        found["failures"]
        and found["failures"][0].startswith(f"step {step},")
        and looks in found["failures"][0]
    )
    if mode == "raises":
        assert looks in found["error"] and len(found["failures"]) == 1
    else:
        assert found["error"] is None and len(found["failures"]) >= 1


def test_what_a_lossy_hook_keeps_is_noted(trained):
    for name in ("torch PowerSGD", "top"):
        assert all(note.endswith(" % of squares kept") for note in trained[1][name]["notes"])


def test_sparse_training_still_learns(trained):
    for name in RIGHT:
        assert np.isfinite(trained[1][name]["loss"]) and trained[1][name]["loss"] < 0.1
