"""The direct allreduce adds in blocks."""

from refgf.comm import direct, schedule
from refgf.comm.replay import replay
from tests.support.comm_cases import (
    order_sensitive,
    same_bits,
)


def test_blocks_do_not_change_bits(monkeypatch):
    xs = order_sensitive(3, 1000, "float32")
    schedules = [direct.allreduce(r, 3, 1000) for r in range(3)]
    whole = replay(schedules, xs, "float16")
    monkeypatch.setattr(schedule, "BLOCK_ELEMENTS", 7)
    assert all(map(same_bits, replay(schedules, xs, "float16"), whole))
