"""Top-k on ranks: the definition's bits, pairs for dense slices, and steps that are refused."""

import numpy as np
import pytest

from refgf.comm import gather
from refgf.machine import threads
from refgf.papers.jia.hierarchical import consecutive_nodes
from refgf.papers.mstopk.hitopk_pairs import HiTopKPairs
from refgf.papers.mstopk.topk import HiTopK, TopK, exact_top_k, keep_count, mstopk
from tests.support.conforms import require_on_ranks
from tests.support.project import Project
from tests.support.topk_cases import data


def rank_gradients(p, n, steps):
    return [[data("heavy tail", n, seed=100 * t + r) for r in range(p)] for t in range(steps)]


def test_on_ranks_the_bits_of_the_definition(on_ranks):
    on_ranks(require_on_ranks, Project(), "topk_run hitopk_run", sizes=(2, 4))


def hitopk(comm, n, percent, g):
    """HiTopK over nodes of g ranks, and HiTopKPairs, which sends pairs inside a node, too."""
    nodes = consecutive_nodes(comm.Get_size(), g)
    i, j = divmod(comm.Get_rank(), g)
    first = gather.reduce_scatter(comm, nodes[i]), gather.allgather(comm, [n[j] for n in nodes])
    return (
        HiTopK(n, percent, *first, gather.allgather_slices(comm, nodes[i])),
        HiTopKPairs(n, percent, g, *first, gather.allgather(comm, nodes[i])),
    )


@pytest.mark.parametrize("p, g", [(1, 1), (2, 1), (2, 2), (4, 2), (6, 2), (6, 3), (6, 6), (9, 3)])
@pytest.mark.parametrize("percent", [5, 100])
def test_pairs_have_the_bits_of_hitopk(p, g, percent):
    def body(comm, n):
        dense, sparse = hitopk(comm, n, percent, g)
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
        sums = TopK(20, 10, gather.allgather(comm)) if flat else hitopk(comm, 20, 10, 2)[0]
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
