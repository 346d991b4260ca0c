"""Streams and events on NumPy, and on the stand-in for CuPy; tests/gpu uses the real ones."""

import numpy as np
import pytest

from refgf.machine import threads
from refgf.streams import follow, mark
from tests.support.fake_cupy import installed


@pytest.fixture
def cupy():
    with installed() as module:
        yield module


def test_host_arrays_have_no_events():
    x = np.zeros(3)
    assert mark(x) is None
    follow(x, None)


def test_a_thread_waits_for_the_event_on_a_stream_of_its_own(cupy):
    x, default = cupy.zeros(3), cupy.cuda.Stream.null
    event, before = mark(x), cupy.waits

    def body(comm):
        own = []
        for _ in range(2):
            follow(x, event)
            own.append(cupy.cuda.get_current_stream())
        return own

    (first, second), (other, _) = threads.run(2, body)
    assert cupy.waits == before + 4
    assert first is second is not default
    assert other is not first
    assert cupy.cuda.get_current_stream() is default
