"""cupy.ElementwiseKernel on the CPU: its source compiled as C and run, one element after the other.

A kernel may use what C and CUDA's C++ have in common. float16 is C's _Float16 with "excess
precision": arithmetic in float, rounded when it is assigned, as CuPy's class of that name does.
CuPy's rules about arguments are checked.
"""

import ctypes
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest

COMPILER = shutil.which("cc") or shutil.which("gcc")
OPTIONS = ["-O1", "-ffp-contract=off", "-fexcess-precision=standard", "-shared", "-fPIC"]
C_NAMES = {
    "float16": "_Float16",
    "float32": "float",
    "float64": "double",
    "int64": "long long",
    "uint8": "unsigned char",
    "bool": "_Bool",
}
FUNCTION = """
#include <math.h>
#include <stddef.h>
{definitions}
void {name}_of_all(ptrdiff_t _size, {parameters}) {{
    for (ptrdiff_t i = 0; i < _size; ++i) {{ {operation}; }}
}}
"""


class ElementwiseKernel:
    def __init__(self, in_params, out_params, operation, name, options=()):
        self.inputs, self.outputs = parsed(in_params), parsed(out_params)
        self.operation, self.name = operation, name
        if options != ("--fmad=false",):
            raise ValueError(
                f"{name}: got options {options}; wanted --fmad=false: no fused roundings"
            )

    def __call__(self, *args):
        parameters = self.inputs + self.outputs
        if len(args) != len(parameters):
            raise TypeError(f"{self.name}: got {len(args)} arguments, wanted {len(parameters)}")
        T = self.type_of_T(zip(parameters, args))
        arrays = [isinstance(x, np.ndarray) for x in args]
        pairs = list(zip(parameters, args))
        whole = [x for ((raw, *_), x), array in zip(pairs, arrays) if array and not raw]
        shape = np.broadcast_shapes(*(x.shape for x in whole))
        buffers = []
        for ((raw, kind, name), x), array in zip(pairs, arrays):
            if (raw, kind, name) in self.outputs and not (array and x.shape == shape):
                raise ValueError(f"{self.name}: output {name} has another shape than {shape}")
            if array and not raw:
                x = np.broadcast_to(x, shape)
            else:
                x = np.asarray(x, T if kind == "T" else kind)
            buffers.append(np.ascontiguousarray(x))
        function = compiled(self.source(T, arrays), f"{self.name}_of_all")
        pointers = [ctypes.c_void_p(x.ctypes.data) for x in buffers]
        function(ctypes.c_ssize_t(int(np.prod(shape))), *pointers)
        for x, buffer in zip(args[len(self.inputs) :], buffers[len(self.inputs) :]):
            x[...] = buffer  # itself where it is contiguous

    def type_of_T(self, pairs):
        """The one type of all arrays of type T. Arrays of a named type must have it."""
        found = set()
        for (_, kind, name), x in pairs:
            if isinstance(x, np.ndarray):
                found |= {x.dtype.name} if kind == "T" else set()
                if kind not in ("T", x.dtype.name):
                    raise TypeError(f"{self.name}: {name} is {x.dtype}, wanted {kind}")
        if len(found) != 1:
            raise TypeError(f"{self.name}: got {sorted(found)} for T, wanted one type")
        return found.pop()

    def source(self, T, arrays):
        parameters, definitions = [], [f"typedef {C_NAMES[T]} T;"]
        for number, (raw, kind, name) in enumerate(self.inputs + self.outputs):
            constant = "const " if number < len(self.inputs) else ""
            parameters.append(f"{constant}{C_NAMES.get(kind, kind)} *_raw_{name}")
            element = "" if raw else "[i]" if arrays[number] else "[0]"
            definitions.append(f"#define {name} _raw_{name}{element}")
        return FUNCTION.format(
            definitions="\n".join(definitions),
            name=self.name,
            parameters=", ".join(parameters),
            operation=self.operation,
        )


def parsed(parameters):
    """[(raw?, type, name)] of "T x, raw uint8 y"."""
    words = [parameter.split() for parameter in parameters.split(",")]
    for *_, name in words:
        if name in ("i", "n") or name.startswith("_"):
            raise ValueError(f"ElementwiseKernel: {name} is CuPy's own")
    return [("raw" in before, kind, name) for *before, kind, name in words]


@functools.cache
def compiled(source, name):
    with tempfile.TemporaryDirectory() as folder:
        code, library = Path(folder, "kernel.c"), Path(folder, "kernel.so")
        code.write_text(source)
        command = [COMPILER, *OPTIONS, code, "-o", library, "-lm"]
        ended = subprocess.run(command, capture_output=True, text=True)
        if ended.returncode:
            raise RuntimeError(f"{ended.stderr}\n{source}")
        return getattr(ctypes.CDLL(str(library)), name)


@functools.cache
def works():
    try:
        return bool(compiled("void f(_Float16 *x) { x[0] = x[0] + x[1]; }", "f"))
    except (RuntimeError, TypeError):  # no _Float16; no compiler
        return False


needs_a_compiler = pytest.mark.skipif(
    not works(), reason="needs a C compiler that knows _Float16: it runs CUDA's kernels"
)
