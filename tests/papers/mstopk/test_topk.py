"""Top-k: the definition's sums and bits, conservation, 100 % = dense, counted costs."""

import numpy as np
import pytest

from refgf.comm import direct, gather
from refgf.comm.replay import replay
from refgf.comm.slices import slices
from refgf.machine import threads
from refgf.papers.jia.hierarchical import consecutive_nodes
from refgf.papers.mstopk.hitopk_pairs import HiTopKPairs
from refgf.papers.mstopk.topk import ErrorFeedback, HiTopK, TopK, exact_top_k, keep_count, mstopk
from tests.support.conforms import require_on_ranks
from tests.support.project import Project
from tests.support.topk_cases import data


def rank_gradients(p, n, steps):
    return [[data("heavy tail", n, seed=100 * t + r) for r in range(p)] for t in range(steps)]


def test_on_ranks_the_bits_of_the_definition(on_ranks):
    on_ranks(require_on_ranks, Project(), "topk_run hitopk_run", sizes=(2, 4))


def order_sensitive(p, n):
    random = np.random.default_rng(p)
    return [
        random.choice([2.0**24, 1.0, -(2.0**24), 0.5, -0.0, 0.0], n).astype(np.float32)
        for _ in range(p)
    ]


@pytest.mark.parametrize("select", [exact_top_k, mstopk])
def test_everything_is_the_dense_sum(on_ranks, select):
    """At 100 % the bits of the direct allreduce, except that no zero is negative; any p."""

    def body(comm):
        p, r = comm.Get_size(), comm.Get_rank()
        for n in (1, 7, 100):
            xs = order_sensitive(p, n)
            exchange, x = TopK(n, 100, gather.allgather(comm), select), xs[r].copy()
            exchange(x)
            wanted = replay([direct.allreduce(i, p, n) for i in range(p)], xs)[r]
            assert x.tobytes() == (wanted + 0.0).tobytes()
            assert not exchange.feedback.residual.any()

    on_ranks(body)


@pytest.mark.parametrize("select", [exact_top_k, mstopk])
def test_nothing_is_lost(select):
    """sent + kept = accumulated, bit for bit: each element is whole in one of the two."""
    feedback, random = ErrorFeedback(200), np.random.default_rng(1)
    for _ in range(5):
        gradient = random.standard_normal(200).astype(np.float32)
        accumulated = feedback.residual + gradient
        values, indices = feedback.take(gradient, lambda a: select(a, 20))
        sent = np.zeros(200, bool)
        sent[indices] = True
        assert values.tobytes() == accumulated[sent].tobytes()
        assert feedback.residual[~sent].tobytes() == accumulated[~sent].tobytes()
        assert not feedback.residual[sent].any()


def hitopk(comm, n, percent, g, select=exact_top_k):
    """HiTopK over nodes of g ranks, and the place of this rank."""
    nodes = consecutive_nodes(comm.Get_size(), g)
    i, j = divmod(comm.Get_rank(), g)
    owners = [node[j] for node in nodes]
    node = (
        gather.reduce_scatter(comm, nodes[i]),
        gather.allgather(comm, owners),
        gather.allgather_slices(comm, nodes[i]),
    )
    return HiTopK(n, percent, *node, select=select)


def test_hitopk_at_100_percent_is_the_dense_sum_of_two_levels():
    """Nothing kept; the sum lies within the bound of the dense one, whatever the order."""

    def body(comm):
        gs = rank_gradients(6, 101, 1)[0]
        x, exchange = gs[comm.rank].copy(), hitopk(comm, 101, 100, 2, mstopk)
        exchange(x)
        dense = np.sum(np.stack(gs).astype(np.float64), axis=0)
        assert (np.abs(x - dense) <= 6 * 2.0**-24 * np.sum(np.abs(gs), axis=0)).all()
        assert not exchange.feedback.residual.any()

    threads.run(6, body)


def test_hitopk_loses_nothing_over_nodes():
    """Integers, so sums are exact: everything put in = everything sent + residuals."""

    def body(comm):
        exchange, put, out = hitopk(comm, 103, 3, 2), 0, 0
        for t in range(6):
            x = np.random.default_rng(10 * t + comm.rank).integers(-50, 50, 103).astype(np.float32)
            put = put + x
            exchange(x)
            out = out + x
        return put, out, exchange.feedback.residual

    results = threads.run(4, body)
    kept = np.zeros(103)
    for rank, (_, _, mine) in enumerate(results):
        kept[slices(103, 2)[(rank % 2 + 1) % 2]] += mine
    assert (sum(put for put, _, _ in results) == results[0][1] + kept).all()


def pairs(comm, n, percent, g, select=exact_top_k):
    """HiTopKPairs over nodes of g ranks."""
    nodes = consecutive_nodes(comm.Get_size(), g)
    i, j = divmod(comm.Get_rank(), g)
    node = (
        gather.reduce_scatter(comm, nodes[i]),
        gather.allgather(comm, [node[j] for node in nodes]),
        gather.allgather(comm, nodes[i]),
    )
    return HiTopKPairs(n, percent, g, *node, select=select)


@pytest.mark.parametrize("p, g", [(1, 1), (2, 1), (2, 2), (4, 2), (6, 2), (6, 3), (6, 6), (9, 3)])
@pytest.mark.parametrize("percent", [5, 100])
def test_pairs_have_the_bits_of_hitopk(p, g, percent):
    def body(comm, n):
        dense, sparse = (make(comm, n, percent, g) for make in (hitopk, pairs))
        for gs in rank_gradients(p, n, 3):
            wanted, x = gs[comm.rank].copy(), gs[comm.rank].copy()
            dense(wanted)
            sparse(x)
            assert x.tobytes() == wanted.tobytes()
            assert sparse.feedback.residual.tobytes() == dense.feedback.residual.tobytes()

    for n in (0, g, 24 * g):
        threads.run(p, body, n)


@pytest.mark.parametrize(
    "call, message",
    [
        (
            lambda: HiTopKPairs(7, 10, 2, len, len, len),
            "got 7 elements for 2 ranks per node; wanted a multiple",
        ),
        (lambda: exact_top_k(np.ones(3), 4), "got k = 4; wanted 0 to 3"),
        (lambda: mstopk(np.ones(3), -1), "got k = -1"),
        (lambda: exact_top_k(np.array([1.0, np.nan]), 1), "infinity or NaN among 2 elements"),
        (lambda: mstopk(np.array([1.0, -np.inf]), 1), "infinity or NaN among 2 elements"),
        (lambda: keep_count(10, 0), "density of 0 %"),
        (lambda: keep_count(10, 101), "density of 101 %"),
        (
            lambda: TopK(10, 10, lambda x: x[None])(np.ones(11, np.float32)),
            r"shape \(11,\), type float32; wanted a writable array .* shape \(10,\)",
        ),
        (lambda: TopK(10, 10, lambda x: x[None])(np.ones(10, int)), "type int64; wanted"),
        (lambda: TopK(10, 10, lambda x: x[None])([1.0] * 10), "got a list; wanted"),
        (
            lambda: TopK(10, 10, lambda x: x[None])(np.broadcast_to(np.float32(1), 10)),
            "got a read-only array",
        ),
        (lambda: TopK(-1, 10, lambda x: x[None]), "of -1 elements; wanted"),
    ],
)
def test_nonsense_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("kind", ["TopK", "HiTopK"])
def test_a_step_that_one_rank_spoils_is_skipped_by_all(kind, bad):
    """As the message says: the steps after it are those of a run that never had it."""

    def body(comm, spoilt):
        flat = kind == "TopK"
        sums = TopK(20, 10, gather.allgather(comm)) if flat else hitopk(comm, 20, 10, 2)
        results = []
        for step in range(4):
            x = data("normal", 20, 10 * step + comm.rank)
            if step == 2:
                if not spoilt:
                    continue
                x[3] = bad if comm.rank == 1 else x[3]
                with pytest.raises(ValueError, match="got an infinity or NaN.*; next: skip this"):
                    sums(x)
                continue
            sums(x)
            results.append(x.tobytes())
        return results

    assert threads.run(4, body, True) == threads.run(4, body, False)
