"""Each CUDA kernel on a GPU against its loop on the CPU, with awkward numbers: the same bits.

The numbers are no subnormal ones of float32, which CuPy's kernels take as 0: docs/gpu.md.
tests/engine/test_fused_gpu.py has the same on the stand-in.
"""

import pytest

from tests.engine.test_fused_gpu import KERNELS, arguments, by_numpy, by_the_kernel, same


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_has_the_bits_of_its_loop(gpu, name):
    for kind, given in arguments():
        if kind == name:
            assert same(by_the_kernel(gpu, name, given), by_numpy(name, given))
