"""Compiles kernels as CuPy would, without a GPU. A program for the Python of .venv-cuda.

Standard input: a JSON list of `ElementwiseKernel`s with the types of their arguments (`Call`), and
the architectures. Standard output: a JSON list of {name, type, arch, options, ptx, ptxas}. CuPy
itself writes the source and chooses the options, headers included; only the launch is left out.
ptxas is the report of the assembler: registers, spills.
"""

import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Call:
    """arguments: ("array" or "scalar", type, dimensions, contiguous) each."""

    inputs: str
    outputs: str
    operation: str
    name: str
    options: tuple[str, ...]
    arguments: tuple[tuple[str, str, int, bool], ...]


class Compiled(Exception):
    """CuPy's options and the PTX, thrown before CuPy loads it onto a GPU."""


def compiled(call: Call, arch: int) -> dict:
    import cupy
    from cupy._core import _carray, _kernel, _scalar, core

    kernel = cupy.ElementwiseKernel(
        call.inputs, call.outputs, call.operation, call.name, options=tuple(call.options)
    )
    kinds = {"array": (1, cupy.ndarray), "scalar": (3, _scalar.CScalar)}
    infos, types = [], []
    for kind, dtype, ndim, contiguous in call.arguments:
        infos.append(_kernel._ArgInfo(*kinds[kind], cupy.dtype(dtype), ndim, contiguous, True))
        types.append(cupy.dtype(dtype) if kind == "array" else None)
    *_, ndim, _ = call.arguments[-1]  # an output's dimensions are those of the index
    infos.append(_kernel._ArgInfo(2, _carray.Indexer, None, ndim, True, True))
    of_inputs, of_outputs = tuple(types[: kernel.nin]), tuple(types[kernel.nin :])
    *_, type_map = kernel._decide_params_type(of_inputs, of_outputs)
    given = tuple(infos), type_map, kernel.params, kernel.operation, kernel.name, kernel.preamble
    code = _kernel._get_elementwise_kernel_code(*given, **kernel.kwargs)
    try:
        core.compile_with_cache(code, kernel.kwargs["options"], arch)
    except Compiled as made:
        options, ptx = made.args
    row = {"name": call.name, "type": call.arguments[-1][1], "arch": arch}
    return row | {"options": options, "ptx": ptx.decode(), "ptxas": assembled(ptx, arch)}


def assembled(ptx: bytes, arch: int) -> str:
    import nvidia.cuda_nvcc

    ptxas = Path(nvidia.cuda_nvcc.__path__[0], "bin", "ptxas")
    with tempfile.NamedTemporaryFile(suffix=".ptx") as file:
        Path(file.name).write_bytes(ptx)
        command = [ptxas, "-v", f"-arch=sm_{arch}", file.name, "-o", "/dev/null"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stderr


def main() -> None:
    from cupy.cuda import compiler

    real = compiler._compile_using_nvrtc_no_warning

    def stop(source, options=(), arch=None, *rest, **named):
        result, names = real(source, options, arch, *rest, **named)
        if "__global__" in source:  # CuPy also compiles an empty text, to know its compiler
            raise Compiled(options, result)
        return result, names

    compiler._compile_using_nvrtc_no_warning = stop
    # as CuPy's own, but as text, and without asking the GPU
    compiler._get_arch_for_options_for_nvrtc = lambda arch: (f"-arch=sm_{arch}", "ptx")
    asked = json.load(sys.stdin)
    calls = [Call(**call) for call in asked["calls"]]
    pairs = [(call, arch) for call in calls for arch in asked["architectures"]]
    with ThreadPoolExecutor(2) as pool:
        json.dump(list(pool.map(lambda pair: compiled(*pair), pairs)), sys.stdout)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CUPY_CACHE_DIR"] = folder
        main()
