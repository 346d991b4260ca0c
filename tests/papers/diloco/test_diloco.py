"""DiLoCo without the engine, in nodes, next to plan and synchronous training; refusals.

Its bits and cost conform: test_oracle_own.py.
"""

from functools import partial

import numpy as np
import pytest

from refgf import engine
from refgf.comm.schedule import collective
from refgf.machine import threads
from refgf.machine.trace import TracedComm
from refgf.papers.diloco.diloco import DiLoCo
from refgf.papers.jia.hierarchical import consecutive_nodes, two_level_ring
from refgf.plan import sharding
from refgf.plan.fabric import Fabric
from refgf.plan.question import Question
from refgf.plan.sharding import Sharded
from refgf.plan.step_times import StepTimes
from refgf.predict.cost import Link
from refgf.training.gradientflow import GradientFlow
from tests.support.conforms import conforms, require_on_ranks
from tests.support.own.prescribed import Prescribed, Spec
from tests.support.project import Project
from tests.support.stacks import new_model

STEPS, RATE = 7, 0.1


def gradients(rank, step, n):
    return np.random.default_rng([rank, step]).standard_normal(n).astype(np.float32)


def model_of(n, momentum=0.9):
    w = np.random.default_rng(9).standard_normal(n).astype(np.float32)
    return new_model(Prescribed(w, [Spec("w", w.shape, True, n)]), momentum=momentum)


def trained(comm, n, inner_steps, steps=STEPS, **settings):
    """[parameters] after each inner step, and the bytes that they sent."""
    traced, rows = TracedComm(comm), []
    with DiLoCo(traced, model_of(n), inner_steps, **settings) as diloco:
        traced.reset()
        for step in range(steps):
            diloco.step(gradients(comm.Get_rank(), step, n)[None], None, 1, RATE)
            rows.append(diloco.model.parameters.flat.copy())
        return rows, traced.bytes


def test_without_the_engine_the_bits_are_those_of_the_statements():
    """Threads share the functions that the engine replaces."""
    with engine.off():
        conforms(Project(), "diloco_outer diloco_run", drawn=3)


def test_on_ranks_the_bits_of_the_definition(on_ranks):
    on_ranks(require_on_ranks, Project(), "diloco_run", sizes=(1, 3, 6))


@pytest.mark.parametrize("size, n", [(3, 3000), (5, 250_000)])
def test_plan_sends_as_many_bytes(size, n):
    """Seconds of plan's row over a link without latency are bytes a step."""
    step, h = StepTimes("one", "this test", ((1.0, n),)), 3
    link = Link(0.0, 1.0)
    asked = Question(step, Fabric("net", "this test", link, link), size, 1)
    planned = sharding.seconds("DiLoCo", asked, Sharded(inner_steps=h), 4) - 1.0
    sent = [sent for _, sent in threads.run(size, trained, n, h, h)]
    assert planned == pytest.approx(np.mean(sent) / h, rel=1e-9)


@pytest.mark.parametrize("size, k", [(4, 2), (6, 3), (6, 1)])
def test_the_ranks_of_a_node_are_one_worker(size, k):
    """They hold the same bits after every step, and the nodes those of DiLoCo on means."""
    n, nodes = 29, consecutive_nodes(size, k)

    def two_level(comm):
        return collective(comm, two_level_ring(nodes))

    def with_nodes(comm):
        node = next(node for node in nodes if comm.Get_rank() in node)
        return trained(comm, n, 3, node=node, allreduce=two_level)[0]

    def means(comm):
        rows = []
        with DiLoCo(comm, model_of(n), 3) as diloco:
            for step in range(STEPS):
                mine = [gradients(rank, step, n) for rank in nodes[comm.Get_rank()]]
                diloco.step(np.sum(mine, axis=0)[None], None, 1, RATE)
                rows.append(diloco.model.parameters.flat.copy())
        return rows

    found, wanted = threads.run(size, with_nodes), threads.run(size // k, means)
    for number, node in enumerate(nodes):
        for step in range(STEPS):
            assert len({found[rank][step].tobytes() for rank in node}) == 1
            pair = found[node[0]][step], wanted[number][step]
            np.testing.assert_allclose(*pair, rtol=1e-4, atol=1e-5)


def test_one_inner_step_of_rate_1_follows_synchronous_training():
    """Without momentum the mean of the weights is the step by the mean gradient."""
    size, n = 3, 29

    def synchronous(comm):
        with GradientFlow(comm, model_of(n, 0.0)) as flow:
            for step in range(STEPS):
                flow.step(gradients(comm.Get_rank(), step, n)[None], None, 1, RATE)
            return flow.model.parameters.flat.copy()

    def averaged(comm):
        with DiLoCo(comm, model_of(n, 0.0), 1, rate=1.0, momentum=0.0) as diloco:
            for step in range(STEPS):
                diloco.step(gradients(comm.Get_rank(), step, n)[None], None, 1, RATE)
            diloco.require_same_parameters()
            return diloco.model.parameters.flat.copy()

    for got, wanted in zip(threads.run(size, averaged), threads.run(size, synchronous)):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_an_outer_step_may_come_early_and_does_nothing_twice():
    def early(comm):
        with DiLoCo(comm, model_of(5), 10) as diloco:
            diloco.step(gradients(comm.Get_rank(), 0, 5)[None], None, 1, RATE)
            with pytest.raises(ValueError, match=r"^DiLoCo.evaluate on rank \d: got inner step 1 "):
                diloco.evaluate(None)
            diloco.synchronise()
            once = diloco.model.parameters.flat.tobytes()
            diloco.synchronise()
            assert diloco.model.parameters.flat.tobytes() == once
            return diloco.require_same_parameters()

    assert len(set(threads.run(3, early))) == 1


WRONG = {
    "inner_steps=0": {"inner_steps": 0},
    "rate=inf": {"rate": np.inf},
    "momentum=1": {"momentum": 1.0},
    "node=[1]": {"node": (1,)},
    "node=[0, 7]": {"node": (0, 7)},
    "node=[0, 0]": {"node": (0, 0)},
}


@pytest.mark.parametrize("got", WRONG)
def test_what_does_not_fit_is_refused(got):
    with pytest.raises(ValueError, match=r"^DiLoCo on rank 0: got ") as error:
        threads.run(1, lambda comm: DiLoCo(comm, model_of(3), **WRONG[got]))
    assert got.split("=")[0] in str(error.value)


def test_ranks_agree_on_settings_and_refuse_infinite_sums():
    with pytest.raises(ValueError, match="settings of DiLoCo"):
        threads.run(2, lambda comm: DiLoCo(comm, model_of(3), 2 + comm.Get_rank()))
    nan = partial(np.full, (1, 3), np.nan, np.float32)

    def diverged(comm):
        with DiLoCo(comm, model_of(3), 1) as diloco:
            diloco.step(nan() if comm.Get_rank() else np.zeros((1, 3), "f4"), None, 1, RATE)

    with pytest.raises(ValueError, match="outer gradient that is infinite or NaN"):
        threads.run(2, diverged)
