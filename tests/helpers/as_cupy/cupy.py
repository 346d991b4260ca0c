"""`import cupy` finds the stand-in where this folder and tests/helpers are on PYTHONPATH.

For processes that a test starts; in a test's own process `fake_cupy.installed` is enough.
"""

import sys

import fake_cupy

sys.modules["cupy"] = fake_cupy.module()
