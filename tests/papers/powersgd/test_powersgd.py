"""PowerSGD next to its naive form, in float32; refusals.

Its sums and cost conform: test_oracle_own.py. What every compressor promises: test_compressor.py.
"""

import numpy as np
import pytest

from refgf.comm.direct import direct_allreduce
from refgf.machine import threads
from refgf.papers.powersgd.low_rank import factor_elements, low_rank_sum, orthogonal
from tests.support.compressor_cases import on
from tests.support.compressor_cases import power_sgd as of


def test_a_scalar_is_sent_as_it_is():
    """W1's shapes have a dimension or more."""
    assert factor_elements((), 1) == (1, 0)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_one_matrix_has_the_bits_of_the_naive_form(size):
    m = np.random.default_rng(3).standard_normal((3, size, 9, 8)).astype(np.float32)

    def body(comm):
        sums = direct_allreduce(comm)
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


def test_what_is_refused():
    with pytest.raises(ValueError, match="PowerSGD on rank 0: got wire float16"):
        on(1, of(), [0], wire=np.float16)
    with pytest.raises(ValueError, match="PowerSGD on rank 0: got rank=0"):
        on(1, of(rank=0), [0])
    with pytest.raises(ValueError, match="got shapes of 6 elements; wanted the pool's 81"):
        on(1, of([(2, 3)]), [0])
    with pytest.raises(ValueError, match="got csc and the compressor PowerSGD"):
        on(1, of(), [0], density=10)
