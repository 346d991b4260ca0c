"""The CUDA kernels under NVIDIA's own compiler: what "the same bits" needs stands in the PTX.

PTX may fuse a product and a sum, unless both say how they round (`mul.rn`, `add.rn`). CuPy 14
writes the source and adds its options; NVRTC and ptxas need no GPU. Nothing here runs a kernel.
"""

import dataclasses
import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.engine.test_fused_gpu import KERNELS, TYPES, arguments
from tests.support.cuda_compiler import Call
from tests.support.fake_cupy import Array, installed

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-cuda" / "bin" / "python"
ARCHITECTURES = 70, 80, 90  # V100, A100, H100
REGISTERS = 64  # of a thread: a multiprocessor has 65,536 for 1,024 threads
LAYOUTS = (1, True), (2, False)  # of what is not raw: whole arrays; views, or vectors repeated

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not PYTHON.parents[1].joinpath(".ready").exists(),
        reason="needs NVIDIA's compiler; next: make .venv-cuda",
    ),
]


def calls():
    """Every kernel of the project, as each of its functions calls it with each type."""
    found = set()
    with installed() as cupy:

        def recorded(inputs, outputs, operation, name, options=()):
            words = f"{inputs}, {outputs}".split(", ")

            def call(*given):
                pairs = list(zip(given, words, strict=True))
                for layout in LAYOUTS:
                    kinds = [kind(x, word, given[-1].dtype.name, *layout) for x, word in pairs]
                    found.add(Call(inputs, outputs, operation, name, options, tuple(kinds)))

            return call

        cupy.ElementwiseKernel = recorded
        for name, given in arguments():
            on_device = [cupy.asarray(x) if isinstance(x, np.ndarray) else x for x in given]
            if name == "pack":
                on_device[2] = given[2]  # the chunks' numbers stay on the host
            KERNELS[name](*on_device)
    return sorted(found, key=str)


def kind(x, word, T, ndim, contiguous):
    """CuPy gives a number the type of its parameter."""
    if not isinstance(x, Array):
        named = word.split()[-2]
        return "scalar", T if named == "T" else named, 0, True
    raw = word.startswith("raw")
    return "array", x.dtype.name, x.ndim if raw else ndim, raw or contiguous


def compiled(wanted, architectures=ARCHITECTURES):
    asked = {"calls": [dataclasses.asdict(call) for call in wanted], "architectures": architectures}
    ended = subprocess.run(
        [PYTHON, ROOT / "tests/support/cuda_compiler.py"],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def unrounded(ptx):
    """Instructions that are fused, or that ptxas may fuse, or that round in another way."""
    found = re.findall(r"\b(?:fma|mad|add|sub|mul|div|sqrt)\.[\w.]*f(?:16|32|64)\b", ptx)
    return [each for each in found if not re.match(r"(add|sub|mul|div|sqrt)\.rn\.", each)]


@pytest.fixture(scope="module")
def kernels():
    return compiled(calls())


def test_every_kernel_is_compiled(kernels):
    assert {(row["name"], row["type"]) for row in kernels} >= {
        (name, np.dtype(kind).name)
        for name in KERNELS
        for kind in TYPES
        if name != "largest_in_windows"  # its last argument is the winners
    }
    assert {row["name"] for row in kernels} == set(KERNELS)


def test_each_operation_is_rounded_by_itself(kernels):
    for row in kernels:
        assert not unrounded(row["ptx"]), (row["name"], row["type"], row["arch"])
        assert not re.search(r"cvt\.r[zmp]|cvt\.f16\.f32|approx", row["ptx"]), row["name"]


def test_a_kernel_without_the_option_is_seen():
    """All have the same option; what is looked for in their PTX is there without it."""
    bare = [dataclasses.replace(call, options=()) for call in calls() if call.name == "accumulate"]
    assert bare and all(unrounded(row["ptx"]) for row in compiled(bare, [80]))


def test_subnormal_numbers_of_float32_are_lost(kernels):
    """CuPy adds -ftz=true after a kernel's options, and the last one counts: docs/gpu.md."""
    for row in kernels:
        assert row["options"].index("--fmad=false") < row["options"].index("-ftz=true")
        of_float32 = re.findall(r"\b(?:add|sub|mul)\.rn\.[\w.]*f32", row["ptx"])
        assert all(".ftz." in each for each in of_float32), row["name"]


def test_a_kernel_spills_no_registers(kernels):
    for row in kernels:
        assert "0 bytes spill stores, 0 bytes spill loads" in row["ptxas"], row["name"]
        assert int(re.search(r"Used (\d+) registers", row["ptxas"])[1]) <= REGISTERS, row["name"]
