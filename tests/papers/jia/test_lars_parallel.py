"""LARS's norms in parallel: shares cover each element once, and give one rank's result."""

from collections import namedtuple

import numpy as np
import pytest

from refgf.comm import direct
from refgf.comm.direct import direct_allreduce
from refgf.comm.schedule import collective
from refgf.comm.slices import length
from refgf.machine import threads
from refgf.machine.trace import TracedComm
from refgf.oracle.definitions import (
    LARSSettings,
    direct_traffic,
    lars_step,
    same_bits,
)
from refgf.papers.jia.doubling import recursive_doubling
from refgf.papers.jia.lars import LARS, ParallelNorms, squared_norms
from tests.support.stacks import new_flow
from tests.support.tiny import SPECS, N, Prescribed

SIZES, DECAYED = [spec.size for spec in SPECS], [spec.decay for spec in SPECS]
RANKS = (1, 3, 5, 7, 100)
Spec = namedtuple("Spec", "name shape decay size")
WHOLE = [[slice(0, 3)], [slice(3, 23)], [], [slice(24, 66)], [slice(68, 81)]]
CHUNKED = [[slice(8, 16), slice(16, 23)], [], [slice(24, 32), slice(64, 66)], [slice(80, 81)]]


def dyadic(seed, n=N):
    return np.random.default_rng(seed).integers(-64, 65, n).astype(np.float32) / 16


def no_sum(x):
    pass


def shared_norms(comm, by):
    """by None: each rank forms all norms."""
    if by is None:
        return squared_norms
    return ParallelNorms(direct_allreduce(comm), comm.Get_rank(), comm.Get_size(), by)


@pytest.mark.parametrize("size", RANKS)
@pytest.mark.parametrize("by", ["slices", "layers"])
@pytest.mark.parametrize("tensors", [WHOLE, CHUNKED, [], [[]], [[slice(0, N)]]])
def test_shares_cover_every_element_once(tensors, by, size):
    counts = np.zeros(N, int)
    for rank in range(size):
        share = ParallelNorms(no_sum, rank, size, by).share(tensors)
        assert len(share) == len(tensors)
        for parts, own in zip(tensors, share):
            inside = {i for part in parts for i in range(part.start, part.stop)}
            for part in own:
                assert part.stop > part.start and inside >= set(range(part.start, part.stop))
                counts[part] += 1
    wanted = np.zeros(N, int)
    for parts in tensors:
        for part in parts:
            wanted[part] += 1
    assert counts.tolist() == wanted.tolist()


@pytest.mark.parametrize("by", ["slices", "layers"])
def test_on_exact_data_the_bits_are_those_of_one_rank(on_ranks, by):
    """Squares of multiples of 1/16 are exact in float64, and so are their sums in any order."""

    def body(comm):
        norms = ParallelNorms(
            collective(comm, recursive_doubling), comm.Get_rank(), comm.Get_size(), by
        )
        single = LARS(SPECS, dyadic(1), trust=0.01)
        together = LARS(SPECS, dyadic(1), trust=0.01, norms=norms)
        for step in range(4):
            single.parameters[:], single.velocity[:] = together.parameters, together.velocity
            if step == 0:
                assert (
                    norms(dyadic(1), dyadic(2), WHOLE).tolist()
                    == squared_norms(dyadic(1), dyadic(2), WHOLE).tolist()
                )
            parts = None if step % 2 == 0 else [slice(8, 16), slice(16, 24), slice(40, 48)]
            for optimizer in (single, together):
                optimizer.step(dyadic(10 + step), 0.3, parts, parts and [1, 2, 1])
            if step == 0:
                assert same_bits(single.parameters, together.parameters)
            assert np.allclose(single.parameters, together.parameters, rtol=1e-6, atol=0)
        everybody = comm.allgather(together.parameters.tobytes())
        assert len(set(everybody)) == 1

    on_ranks(body)


@pytest.mark.parametrize("by", ["slices", "layers"])
def test_gradientflow_with_norms_in_parallel(on_ranks, by):
    """Dense and under CSC, exact data: the first update has the bits of the definition."""

    def body(comm, **parts):
        p, rank, w = comm.Get_size(), comm.Get_rank(), dyadic(1)
        gs = [dyadic(20 + r) for r in range(p)]
        parts |= {
            "trust": 0.01,
            "norms": shared_norms(comm, by),
            "momentum": 0.5,
            "weight_decay": 0.125,
        }
        with new_flow(comm, Prescribed(initial=w), **parts) as flow:
            flow.step(gs[rank][None], None, 1, rate=0.3)
            flow.require_same_parameters()
            settings = LARSSettings(SIZES, 0.3, 0.5, 0.01, 0.125, DECAYED)
            wanted = lars_step(w, np.zeros_like(w), np.sum(gs, axis=0), settings)[0]
            assert same_bits(flow.model.parameters.flat, wanted)
            flow.step(gs[rank][None], None, 1, rate=0.3)
            flow.require_same_parameters()

    on_ranks(body)
    on_ranks(lambda comm: body(comm, density=30, chunk=8, form="history"))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("by", ["slices", "layers"])
def test_cost_is_one_allreduce_of_2L_float64(by, size):
    def body(comm):
        traced = TracedComm(comm)
        norms = ParallelNorms(collective(traced, direct.allreduce), comm.Get_rank(), size, by)
        optimizer = LARS(SPECS, dyadic(1), trust=0.01, norms=norms)
        optimizer.step(dyadic(2), 0.3)
        return traced.messages, traced.bytes

    n = 2 * sum(DECAYED)
    wanted = [
        (m, 8 * elements) for m, elements in (direct_traffic(n, size, rank) for rank in range(size))
    ]
    assert threads.run(size, body) == wanted


@pytest.mark.parametrize("size", [1, 3, 4])
def test_a_rank_reads_its_share_only(size, monkeypatch):
    """By slices 2n/p elements, by layers twice its tensors: nearly all where one layer is large."""
    from refgf.papers.jia import lars

    specs = [
        Spec("large", (600,), True, 600),
        *(Spec(f"t{i}", (100,), True, 100) for i in range(3)),
    ]

    def read(by, rank):
        seen, square = [], lars._square
        monkeypatch.setattr(
            lars, "_square", lambda x, parts: seen.extend(map(length, parts)) or square(x, parts)
        )
        LARS(specs, dyadic(1, 900), norms=ParallelNorms(no_sum, rank, size, by)).step(
            dyadic(2, 900), 0.1
        )
        monkeypatch.setattr(lars, "_square", square)
        return sum(seen)

    assert [read("slices", rank) for rank in range(size)] == [2 * 900 // size] * size
    assert max(read("layers", rank) for rank in range(size)) == 2 * {1: 900, 3: 700, 4: 600}[size]


# ---- what is refused ----


@pytest.mark.parametrize("wrong", [("heads", 0, 2), ("slices", 2, 2), ("layers", -1, 2)])
def test_bad_shares(wrong):
    by, rank, size = wrong
    with pytest.raises(ValueError, match="ParallelNorms on rank .* got by="):
        ParallelNorms(no_sum, rank, size, by)


@pytest.mark.parametrize(
    "parameters",
    [
        *(np.zeros(N, np.float16), np.zeros(N - 1, np.float32), np.zeros((N, 1), np.float32)),
        np.broadcast_to(np.float32(1), (N,)),
    ],
)
def test_bad_parameters(parameters):
    with pytest.raises(ValueError, match="LARS: got .*parameters .*use float32 master weights"):
        LARS(SPECS, parameters)


def test_bad_gradients():
    with pytest.raises(ValueError, match="LARS.step: got gradients"):
        LARS(SPECS, dyadic(1)).step(dyadic(1).astype(np.float64), 0.1)
