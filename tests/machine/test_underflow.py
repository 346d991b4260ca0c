"""The share that underflows on the wire, against its definition."""

import numpy as np
import pytest

from refgf.machine.underflow import Underflow
from refgf.oracle.definitions import underflow_share

X = np.array([0, -0.0, 1, -1, 65504, -1e9, 6.1e-5, 5.96e-8, 2.98e-8, 2.99e-8, 1e-20], np.float32)


@pytest.mark.parametrize("factor", [1, 2.0**-10, 2.0**-24])
def test_underflow_share(factor):
    x = (X * np.float32(factor)).astype(np.float32)
    seen = []
    underflow = Underflow(seen.append, np.float16)
    underflow(x)
    assert underflow.share == underflow_share(x, "float16") and seen[0] is x
    underflow(np.array([1.0, 2.0], np.float32))
    assert underflow.nonzero == np.count_nonzero(x) + 2
