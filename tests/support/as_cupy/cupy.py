"""`import cupy` finds the stand-in where this folder and tests/support are on PYTHONPATH.

For processes that a test starts; in a test's own process `fake_cupy.installed` is enough.
"""

import sys

from tests.support import fake_cupy

sys.modules["cupy"] = fake_cupy.module()
