"""Every stack against the definition, step by step: weights, residual, choices, scale."""

import functools
import math

import numpy as np
import pytest
from tests.support.comm_cases import ONE_BY_ONE
from tests.support.tiny import SPECS, N, Prescribed

from tests.support.stacks import new_flow

from refgf.exchange.chunk_choice import Density
from refgf.engine.residual import FusedResidual
from refgf.exchange.momentum_correction import FORMS, Residual
from refgf.exchange.precision import LossScale
from refgf.oracle.definitions import CSCRunSettings, csc_run, percent_of_step, same_bits
from refgf.comm.direct import direct_allreduce
from refgf.comm.ring import ring_allreduce

STEPS, STEPS_PER_EPOCH, WARMUP = 12, 2, (100, 50)
RESIDUALS = [Residual, FusedResidual]
SIZES, DECAYED = tuple(spec.size for spec in SPECS), tuple(spec.decay for spec in SPECS)


ENGINE = pytest.mark.parametrize("engine", [False, True], ids=["plain", "engine"])


def gradients(rank, dyadic, steps=STEPS):
    """Of one rank, for each step. dyadic: few bits, so sums are exact; else order matters."""
    rng = np.random.default_rng([7, rank])
    if dyadic:
        return rng.integers(-16, 17, (steps, N)).astype(np.float32) / 8
    spread = rng.choice([1.0, 1e-3, 300.0], (steps, N))
    return (rng.standard_normal((steps, N)) * spread).astype(np.float32)


def initial(dyadic):
    w = np.random.default_rng(3).integers(-8, 9, N) / 4
    return w.astype(np.float32) if dyadic else (w * 0.37).astype(np.float32)


def run(comm, settings, gs, dyadic, order, overlap, percent, scale, engine):
    """The stack on one rank: what it reports after each step."""
    network = Prescribed(initial=initial(dyadic))
    flow = new_flow(
        comm,
        network,
        allreduce={"ring": ring_allreduce, "direct": direct_allreduce}[order],
        wire=settings.wire,
        theta_bytes=settings.theta_bytes,
        density=Density(percent, WARMUP, STEPS_PER_EPOCH, STEPS),
        overlap=overlap,
        chunk=settings.chunk,
        form=settings.form,
        after=settings.after,
        momentum=settings.momentum,
        weight_decay=settings.decay,
        trust=settings.trust,
        loss_scale=scale,
        residual=RESIDUALS[engine],
    )
    reports = []
    with flow, np.errstate(over="ignore"):
        for g in gs:
            chosen = flow.csc.chosen
            flow.step(g[None], None, 1, settings.rate)
            kept = {name: array.copy() for name, array in flow.csc.residual.current_state().items()}
            weights, importance = flow.model.parameters.flat.copy(), flow.csc.importance
            reports.append(
                {
                    "w": weights,
                    "chosen": chosen,
                    "kept": kept,
                    "finite": flow.result.accepted,
                    "scale": flow.model.loss_scale.scale,
                    "importance": importance,
                }
            )
    return reports


def compare(got, want, rank, dyadic):
    """got: reports of this rank; want: the definition's."""
    for t, (g, w) in enumerate(zip(got, want, strict=True)):
        where = f"rank {rank}, step {t}"
        assert g["chosen"] == w["chosen"][rank], where
        assert g["finite"] == w["finite"] and g["scale"] == w["scale"], where
        assert same_bits(g["w"], w["w"][rank]), where
        for name, array in w["kept"][rank].items():
            assert same_bits(g["kept"][name], array), f"{where}, {name}"
        if g["finite"] and dyadic:
            assert same_bits(g["importance"], w["importance"]), where
        elif g["finite"]:  # our sums of n numbers are not exact; both in float64
            assert np.allclose(g["importance"], w["importance"], rtol=N * 2.0**-52, atol=0), where


@functools.lru_cache(maxsize=32)
def defined(settings, size, dyadic, percent, lists):
    """The definition's reports: all ranks on threads, and both values of `engine`, share them."""
    percents = [percent_of_step(t, STEPS_PER_EPOCH, WARMUP, percent) for t in range(STEPS + 1)]
    gs = list(zip(*(gradients(r, dyadic) for r in range(size))))
    chosen = lists and [None if chunks is None else list(chunks) for chunks in lists]
    return csc_run(initial(dyadic), gs, settings, percents, chosen)


def judge(
    comm,
    form,
    dyadic,
    wire=None,
    order="direct",
    theta=math.inf,
    overlap=False,
    percent=30,
    chunk=8,
    after=False,
    decay=0.0,
    scale=1.0,
    momentum=0.5,
    trust=None,
    engine=False,
    mistake=lambda reports: reports,
):
    size = comm.Get_size()
    settings = CSCRunSettings(
        SIZES,
        chunk,
        form,
        rate=0.125,
        momentum=momentum,
        decay=decay,
        decayed=DECAYED,
        wire=wire,
        order=order,
        theta_bytes=theta,
        after=after,
        trust=trust,
        scale=scale,
        scale_interval=10**9,
    )
    loss_scale = LossScale(scale, dynamic=True, interval=10**9)
    got = run(
        comm,
        settings,
        gradients(comm.Get_rank(), dyadic),
        dyadic,
        order,
        overlap,
        percent,
        loss_scale,
        engine,
    )
    # on data that are not exact, norms that are equal but for rounding may be chosen either way
    lists = None if dyadic else tuple(r["chosen"] and tuple(r["chosen"]) for r in got)
    with ONE_BY_ONE:
        want = defined(settings, size, dyadic, percent, lists)
    compare(mistake(got), want, comm.Get_rank(), dyadic)


@ENGINE
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.25])
@pytest.mark.parametrize("form", FORMS)
def test_forms_on_exact_data(on_ranks, form, decay, after, engine):
    on_ranks(lambda comm: judge(comm, form, dyadic=True, decay=decay, after=after, engine=engine))


@ENGINE
@pytest.mark.parametrize("decay", [0.0, 0.25])
@pytest.mark.parametrize("percent", [30, 100])
def test_lars_takes_its_ratios_from_what_was_sent(on_ranks, percent, decay, engine):
    on_ranks(
        lambda comm: judge(
            comm, "history", True, percent=percent, decay=decay, trust=0.01, engine=engine
        )
    )


@ENGINE
@pytest.mark.parametrize("order", ["ring", "direct"])
@pytest.mark.parametrize("theta", [0, 17, 64, math.inf])
@pytest.mark.parametrize("wire", [None, "float16"])
@pytest.mark.parametrize("form", ["dgc", "history"])
def test_wire_theta_and_order_of_summation(on_ranks, form, wire, theta, order, engine):
    on_ranks(
        lambda comm: judge(
            comm,
            form,
            False,
            wire,
            order,
            theta,
            decay=0.01,
            scale=16.0,
            momentum=0.9,
            engine=engine,
        )
    )


@ENGINE
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("chunk", [1, 7, 8, 40, 81, 1000])
def test_chunk_sizes(on_ranks, chunk, overlap, engine):
    on_ranks(
        lambda comm: judge(
            comm,
            "dgc",
            False,
            "float16",
            "ring",
            20,
            overlap,
            chunk=chunk,
            decay=0.01,
            engine=engine,
        )
    )


@ENGINE
@pytest.mark.parametrize("percent", [0.1, 9, 10, 50, 99.9, 100])
def test_densities(on_ranks, percent, engine):
    on_ranks(lambda comm: judge(comm, "dgc_masked", True, percent=percent, engine=engine))


def test_the_comparison_can_fail(on_ranks):
    """One bit of one kept value, one chunk more, on the last rank only."""

    def one_bit(reports):
        v = reports[5]["kept"]["v"]
        i = int(np.flatnonzero(v)[0])
        v[i] = np.nextafter(v[i], np.float32(np.inf))
        return reports

    def one_chunk_more(reports):
        chosen = reports[7]["chosen"]
        reports[7]["chosen"] = sorted([*chosen, next(c for c in range(11) if c not in chosen)])
        return reports

    for mistake in (one_bit, one_chunk_more):
        with pytest.raises(AssertionError):
            on_ranks(lambda comm, m=mistake: judge(comm, "dgc", True, percent=30, mistake=m))


def test_the_data_are_order_sensitive(on_ranks):
    """On these data ring and direct differ, or the tests above would prove less."""

    def body(comm):
        g = gradients(comm.Get_rank(), dyadic=False)[0]
        by_ring, by_direct = g.copy(), g.copy()
        ring_allreduce(comm)(by_ring)
        direct_allreduce(comm)(by_direct)
        assert comm.Get_size() < 3 or not same_bits(by_ring, by_direct)

    on_ranks(body)
