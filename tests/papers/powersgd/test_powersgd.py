"""PowerSGD's numbers, and what it sends; tests/exchange/test_compressor.py has the rest."""

import numpy as np
import pytest

from refgf.comm.direct import direct_allreduce
from refgf.machine import threads
from refgf.machine.trace import TracedComm
from refgf.oracle.definitions import ring_traffic
from refgf.papers.powersgd.low_rank import (
    factor_elements,
    kept_where_zero,
    low_rank_sum,
    orthogonal,
)
from tests.support import stacks
from tests.support.compressor_cases import TINY, on
from tests.support.compressor_cases import power_sgd as of
from tests.support.tiny import N, Prescribed, samples


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_one_matrix_has_the_bits_of_the_naive_form(size):
    m = np.random.default_rng(3).standard_normal((3, size, 9, 8)).astype(np.float32)

    def body(comm):
        made, sums = of([(3, 3, 8)])(comm), direct_allreduce(comm)
        made = of([(3, 3, 8)], allreduce=direct_allreduce)(comm)
        made.start(np.zeros(72, np.float32))
        q, error = made.state["q"].reshape(8, 2).copy(), np.float32(0)
        for step in m[:, comm.Get_rank()]:
            x = step.reshape(-1).copy()
            made.sum(x, slice(0, 72))
            made.end(True)
            total, q, error = low_rank_sum(step + error, q, sums)
            assert x.tobytes() == total.tobytes()
            assert made.state["error"].tobytes() == error.tobytes()
            assert made.state["q"].tobytes() == q.tobytes()

    threads.run(size, body)


def test_a_sum_of_low_rank_is_found_and_a_fixed_one_sent_bit_by_bit():
    """Rank 2 finds a matrix of rank 2 in one step; of a full one, the error is sent later."""
    rng = np.random.default_rng(5)
    low = rng.standard_normal((7, 2)) @ rng.standard_normal((2, 6))
    q = rng.standard_normal((6, 2))
    found, _, error = low_rank_sum(low, q, lambda x: None)
    assert np.abs(found - low).max() < 1e-12 and np.abs(error).max() < 1e-12
    full, sent, error = rng.standard_normal((7, 6)), 0, 0
    for _ in range(40):
        total, q, error = low_rank_sum(full + error, q, lambda x: None)
        sent = sent + total
    assert np.abs(sent + error - 40 * full).max() < 1e-10
    assert np.abs(error).max() < 10 * np.abs(full).max()


def test_columns_that_are_zero_or_depend_on_others():
    a, b = np.float32([0.1, 0.3, 1000, 0]), np.float32([3, 0.1, 0, 1])
    p = orthogonal(np.stack([0 * a, a, 3 * a, b, a + b], axis=1))
    assert [bool(p[:, j].any()) for j in range(5)] == [False, True, False, True, False]
    kept = p[:, [1, 3]]
    assert np.abs(kept.T @ kept - np.eye(2)).max() < 1e-6
    q = np.float32([[1, 2], [3, 4]])
    assert kept_where_zero(np.float32([[0, 5], [0, 0]]), q).tolist() == [[1, 5], [3, 0]]
    # gradients of zeros, then others: what begins at 0 comes back
    zero, q, _ = low_rank_sum(np.zeros((4, 2), np.float32), q[:, :1], lambda x: None)
    assert not zero.any() and q.any()


def test_which_tensors_are_compressed():
    assert factor_elements((5, 4), 2) == (10, 8)  # 18 of 20
    assert factor_elements((4, 4), 2) == (16, 0)  # 16 would be no fewer
    assert factor_elements((3, 3, 8, 16), 4) == (288, 64)
    assert [factor_elements(s, 1) for s in ((), (9,), (0,), (0, 5))] == [
        (1, 0),
        (9, 0),
        (0, 0),
        (0, 0),
    ]


def test_every_rank_sees_an_infinity_of_one():
    def body(comm, place):
        made = of()(comm)
        made.start(np.zeros(N, np.float32))
        x = np.ones(N, np.float32)
        if comm.Get_rank() == 1:
            x[place] = np.inf
        with np.errstate(all="ignore"):
            made.sum(x, slice(0, N))
        return bool(np.isfinite(x).all())

    assert not any(any(threads.run(3, body, place)) for place in range(N))


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_bytes_and_messages(size, rank):
    first, second = np.sum([factor_elements(shape, rank) for shape in TINY], axis=0)

    def body(comm):
        traced = TracedComm(comm)
        with stacks.new_flow(traced, Prescribed(), allreduce=of(rank=rank)) as flow:
            traced.reset()
            flow.step(samples(0)[:1], None, 1, rate=0.1)
            return traced.messages, traced.bytes

    traffic = [[ring_traffic(int(k), size, r) for k in (first, second)] for r in range(size)]
    wanted = [tuple(np.sum(calls, axis=0) * (1, 4)) for calls in traffic]
    assert threads.run(size, body) == wanted


def test_what_is_refused():
    with pytest.raises(ValueError, match="PowerSGD on rank 0: got wire float16"):
        on(1, of(), [0], wire=np.float16)
    with pytest.raises(ValueError, match="PowerSGD on rank 0: got rank=0"):
        on(1, of(rank=0), [0])
    with pytest.raises(ValueError, match="got shapes of 6 elements; wanted the pool's 81"):
        on(1, of([(2, 3)]), [0])
    with pytest.raises(ValueError, match="got csc and the compressor PowerSGD"):
        on(1, of(), [0], density=10)
