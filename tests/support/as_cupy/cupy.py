"""`import cupy` finds the stand-in where this folder and tests/support are on PYTHONPATH.

For processes that a test starts; in a test's own process `fake_cupy.installed` is enough.
"""

import os
import sys
from pathlib import Path

from tests.support import fake_cupy

# CuPy makes the folder of its compiled kernels when it is imported; this makes none
cache = Path(os.environ.get("CUPY_CACHE_DIR") or Path.home() / ".cupy" / "kernel_cache")
place = next(folder for folder in (cache, *cache.parents) if folder.exists())
if not (place.is_dir() and os.access(place, os.W_OK)):
    raise PermissionError(f"Permission denied: '{cache}'")

sys.modules["cupy"] = fake_cupy.module()
