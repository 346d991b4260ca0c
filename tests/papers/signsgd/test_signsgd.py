"""Sign-SGD's bits and bytes. What every compressor promises: tests/exchange/test_compressor.py."""

import numpy as np
import pytest

from refgf.comm.slices import slices
from refgf.machine import threads
from refgf.machine.trace import TracedComm
from refgf.papers.signsgd.signsgd import SignSGD
from tests.support import stacks
from tests.support.compressor_cases import on
from tests.support.tiny import BATCH, N, Prescribed, samples


def by_definition(size, steps):
    """One call, all ranks in one process, in plain NumPy. -> (parameters, error of each rank)"""
    w = np.random.default_rng(1).standard_normal(N).astype(np.float32)
    v, errors = np.zeros(N, np.float32), np.zeros((size, N), np.float32)
    for step in steps:
        total = np.zeros(N, np.float32)
        for rank, part in enumerate(slices(BATCH, size)):
            p = (samples(step)[part].sum(axis=0) / BATCH).astype(np.float32) + errors[rank]
            scale = np.float32(np.abs(p).mean(dtype=np.float64))
            sent = np.where(p >= 0, scale, -scale)
            errors[rank] = p - sent
            total += sent
        v = np.float32(0.5) * v + total
        w = w - np.float32(0.1) * v
    return w.tobytes(), [error.tobytes() for error in errors]


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_bits_are_those_of_the_definition(size):
    got = on(size, SignSGD, range(6))
    w, errors = by_definition(size, range(6))
    assert got == [(w, error) for error in errors]


def test_bytes_and_messages():
    def body(comm):
        traced = TracedComm(comm)
        with stacks.new_flow(traced, Prescribed(), allreduce=SignSGD) as flow:
            traced.reset()
            flow.step(samples(0)[:1], None, 1, rate=0.1)
            p = comm.Get_size()
            assert (traced.messages, traced.bytes) == (p - 1, (p - 1) * (4 + -(-N // 8)))

    for size in (1, 3, 5):
        threads.run(size, body)
