"""GradientFlow as an object: refusals, observers, dense mixed precision, a real network."""

import functools
import threading

import numpy as np
import pytest
from tests.support.tiny import SPECS, N, Prescribed

from tests.support.stacks import new_flow, new_model

from refgf.engine import fused
from refgf.machine import threads
from refgf.comm.native import mpi_allreduce
from refgf.comm.slices import slices
from refgf.machine.timeline import Timeline
from refgf.exchange import overlap
from refgf.exchange.chunk_choice import Density
from refgf.exchange.momentum_correction import FORMS, CSCSettings
from refgf.papers.mgwfbp.merged import Groups, Profile
from refgf.exchange.overlap import CommunicationThread
from refgf.exchange.precision import LossScale
from refgf.nn.alexnet import AlexNet
from tests.support.groups_of import groups_of
from refgf.machine.digits import digits
from refgf.comm.direct import direct_allreduce
from refgf.engine.pipelined import pipelined_ring_allreduce
from refgf.training.gradientflow import GradientFlow
from refgf.training.step import train_step


# ---- a real network ----


@functools.cache
def both_sets():
    return digits(67)


def train_alexnet(comm, allreduce=direct_allreduce, **parts):
    """Three steps, uneven shards. -> (bits of the parameters, running statistics)"""
    train, _ = both_sets()
    network = AlexNet(10, 67, width=1 / 32)
    network.dropout_rng = np.random.default_rng(comm.Get_rank())
    with new_flow(
        comm, network, allreduce=allreduce, chunk=100, weight_decay=5e-4, **parts
    ) as flow:
        for step in range(3):
            part = slices(12, comm.Get_size())[comm.Get_rank()]
            images, labels = train.load(np.arange(12 * step, 12 * step + 12)[part])
            flow.step(images, labels, 12, rate=0.01)
        flow.require_same_parameters()
        return flow.model.parameters.flat.tobytes(), b"".join(
            array.tobytes() for array in network.running
        )


def test_alexnet_climbs_the_ladder(on_ranks):
    def body(comm):
        dense = train_alexnet(comm)
        assert train_alexnet(comm, theta_bytes=5000, overlap=True) == dense
        assert (
            train_alexnet(comm, grouping=Groups(tuple(groups_of([4, 1, 15, 6]))), overlap=True)
            == dense
        )
        assert train_alexnet(comm, density=100, form="history") == dense
        sparse = train_alexnet(comm, density=10, wire=np.float16)
        assert sparse != dense
        assert (
            train_alexnet(comm, density=10, wire=np.float16, theta_bytes=3000, overlap=True)
            == sparse
        )

    on_ranks(body)


def test_groups_are_sent_one_by_one_and_a_profile_changes_nothing(on_ranks):
    def body(comm):
        network = Prescribed()
        with new_flow(comm, network, grouping=Groups(tuple(groups_of([2, 4, 1])))) as flow:
            profile = Profile(flow.model.gradients)
            for _ in range(2):
                train_step(flow.model, profile, np.ones((1, N)), None, comm.Get_size(), rate=0.1)
            assert len(profile.ready_s()) == len(SPECS)
            assert network.accepted == 0 and not flow.model.parameters.flat.any()
            flow.step(np.ones((1, N)), None, comm.Get_size(), rate=0.1)
            assert [(call.start, call.stop) for call in flow.calls] == [(0, 23), (23, 68), (68, N)]

    on_ranks(body)


# ---- what is refused ----


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize(
    "settings, message",
    [
        ({"density": 10, "trust": 0.001}, "LARS under CSC: got a form .* wanted 'history'"),
        (
            {"grouping": Groups((range(3),))},
            r"got groups \[range\(0, 3\)\]; wanted each of 7 gradients once",
        ),
        ({"allreduce": mpi_allreduce}, "wanted a communicator of MPI"),
        ({"wire": np.int8}, "on rank .: got wire=<class 'numpy.int8'>; wanted None or"),
        ({"wire": "banana"}, "got wire='banana'"),
        ({"allreduce": "ring"}, "GradientFlow: got 'ring'; wanted a Callable; next: help"),
    ],
)
def test_bad_settings(settings, message, size):
    with pytest.raises(ValueError, match=message):
        threads.run(size, lambda comm: new_flow(comm, Prescribed(), **settings))


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda comm, model: GradientFlow(None, model), "got None; wanted a communicator"),
        (lambda comm, model: GradientFlow(comm, model.network), "wanted a Replica"),
        (lambda comm, model: GradientFlow(comm, model, csc=10), "got 10; wanted a CSCSettings"),
    ],
)
def test_bad_parts(call, message):
    with pytest.raises(ValueError, match=f"GradientFlow: .*{message}; next: "):
        threads.run(1, lambda comm: call(comm, new_model(Prescribed())))


@pytest.mark.parametrize(
    "settings",
    [
        {"theta_bytes": 1},
        {"density": 10},
        {"density": 10, "form": "none"},
        {"wire": np.float16},
        {"allreduce": direct_allreduce},
        {"allreduce": pipelined_ring_allreduce},
        {"grouping": Groups((range(3), range(3, 7)))},
    ],
)
def test_ranks_with_different_settings_say_so(on_ranks, settings):
    def body(comm):
        odd = comm.Get_rank() == comm.Get_size() - 1
        same = {"density": 10} if "form" in settings else {}
        if comm.Get_size() == 1:  # under MPI; there is no other rank to differ from
            return
        with pytest.raises(ValueError, match="settings of GradientFlow differs between ranks"):
            new_flow(comm, Prescribed(), **(settings if odd else same))

    on_ranks(body, sizes=(2, 3, 5))


def test_global_batches_that_differ_are_seen_where_ranks_are_compared():
    """Every rank holds the same parameters, of a sum that was divided by unlike numbers."""

    def body(comm, wrong):
        with new_flow(comm, Prescribed()) as flow:
            flow.step(np.ones((2, N), np.float32), None, 6 + wrong * comm.Get_rank(), 0.1)
            return flow.require_same_parameters()

    assert len(set(threads.run(3, body, 0))) == 1
    with pytest.raises(ValueError, match="hash of the parameters differs.*, steps "):
        threads.run(3, body, 1)


def test_ranks_with_different_networks_say_so():
    def body(comm):
        network = Prescribed()
        if comm.rank == 1:
            network.tensors = network.tensors[::-1]
        new_flow(comm, network)

    with pytest.raises(ValueError, match="gradient pool differs between ranks"):
        threads.run(3, body)


# ---- what it tells ----


def test_other_threads_arrays_are_waited_for(monkeypatch):
    """On a GPU an array may be announced before it is computed; a lock plays the event."""
    computed = threading.Event()
    monkeypatch.setattr(overlap, "mark", lambda x: computed)
    monkeypatch.setattr(overlap, "follow", lambda x, event: event.wait(10))
    seen = []
    thread = CommunicationThread()
    x = np.zeros(1)
    thread.run(lambda x: seen.append(x[0]), x)
    x[0] = 1
    computed.set()
    thread.wait()
    thread.close()
    assert seen == [1]


@pytest.mark.parametrize("density", [None, 20])
def test_the_timeline_names_what_happens(on_ranks, density):
    def body(comm):
        timeline = Timeline()
        with new_flow(
            comm,
            Prescribed(),
            density=density,
            chunk=8,
            overlap=True,
            observe=timeline,
            wire=np.float16,
            theta_bytes=30,
        ) as flow:
            for _ in range(2):
                timeline.clear()
                flow.step(np.ones((1, N), np.float32), None, 1, rate=0.1)
            names = {event.name for event in timeline.lanes["compute"]}
            wanted = {"FORWARD", "BACKWARD", "WAIT_FOR_DATA", "UPDATE"}
            assert names == wanted | ({"CSC_AGREE", "CSC_UPDATE"} if density else set())
            names = {event.name for event in timeline.lanes["communication"]}
            assert names == {"MPI_ALLREDUCE"} | (
                {"CSC_NORMS", "MEMCPY_IN_FUSION_BUFFER"} if density else set()
            )
            calls = [
                event for event in timeline.lanes["communication"] if event.name == "MPI_ALLREDUCE"
            ]
            assert len(calls) == len(flow.calls)
            elements = (
                sum(s.size for s in SPECS)
                if density is None
                else sum(s.stop - s.start for s in flow.result.sent)
            )
            assert sum(event.bytes for event in calls) == 2 * elements

    on_ranks(body)


def test_density_schedule_reaches_csc(on_ranks):
    def body(comm):
        flow = new_flow(comm, Prescribed(), density=Density(10, (100, 50), 2, 8), chunk=8)
        sent = []
        for _ in range(6):
            flow.step(np.ones((1, N), np.float32), None, 1, rate=0.1)
            sent.append(sum(s.stop - s.start for s in flow.result.sent))
        assert sent == [81, 81, 48, 48, 16, 16]

    on_ranks(body)


def test_a_segment_of_the_pipelined_ring_is_long_enough_for_loops():
    assert (
        pipelined_ring_allreduce.keywords["segment_bytes"] // np.dtype(np.float16).itemsize
        >= fused.LONG
    )


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize(
    "call",
    [
        lambda flow: flow.ready(0),
        lambda flow: flow.finish(),
        lambda flow: flow.require_same_parameters(),
        lambda flow: flow.close(),
    ],
)
def test_nothing_is_sent_after_close(on_ranks, call, overlap):
    def body(comm):
        flow = new_flow(comm, Prescribed(), overlap=overlap)
        flow.close()
        assert flow.calls == [] and flow.communication_s == 0
        with pytest.raises(ValueError, match="GradientFlow: got a call after close"):
            call(flow)

    on_ranks(body, sizes=(1, 3))


@pytest.mark.parametrize("form", FORMS)
def test_after_close_the_model_has_its_optimiser_again(form):
    """Otherwise the next run with this model would have no decay, or no momentum."""

    def body(comm):
        model = new_model(Prescribed(), momentum=0.9, weight_decay=0.01)
        before = model.optimizer
        with GradientFlow(comm, model, csc=CSCSettings(10, form=form)):
            assert model.optimizer is not before
            if form in ("history", "none"):  # the velocity is the model's, before and after
                assert model.optimizer.velocity is before.velocity
        assert model.optimizer is before
        assert (before.momentum, before.weight_decay) == (0.9, 0.01)

    threads.run(2, body)


def test_ranks_with_different_loss_scales_are_refused():
    def body(comm):
        scale = LossScale(2.0 ** (4 * comm.Get_rank()))
        GradientFlow(comm, new_model(Prescribed(), loss_scale=scale))

    with pytest.raises(ValueError, match="settings of GradientFlow differs between ranks"):
        threads.run(2, body)
