"""Is there a GPU that CuPy reaches? Asked by run.py, by the fixtures of these tests, and by
tests/speed/run.py.
"""


def why_no_gpu() -> str | None:
    """What is missing; None if nothing is."""
    try:
        import cupy

        return None if cupy.cuda.runtime.getDeviceCount() else "CuPy counts no device"
    except Exception as error:  # no CuPy, no driver, no device: each has an exception of its own
        return f"{type(error).__name__}: {error}"
