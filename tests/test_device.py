"""Arrays of NumPy and CuPy, on the CPU; tests/test_fake_gpu.py and tests/gpu test the GPU."""

import pytest

from refgf import device


def test_unknown_devices_are_named():
    with pytest.raises(ValueError, match="got 'tpu'; wanted 'cpu' or 'gpu'"):
        device.module("tpu")


def test_without_cupy_the_message_says_what_to_install():
    try:
        import cupy  # noqa: F401
    except ImportError:
        with pytest.raises(ValueError, match="pip install cupy-cuda12x, or use 'cpu'"):
            device.module("gpu")
