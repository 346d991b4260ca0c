"""DASO on ranks, its limits, and what it refuses."""

import functools

import numpy as np
import pytest

from refgf.machine import threads
from refgf.machine.digits import digits
from refgf.nn.alexnet import AlexNet
from refgf.papers.daso.daso import DASO
from refgf.papers.daso.phases import BLOCKING, Constant, Phase, Phases
from refgf.papers.jia.hierarchical import consecutive_nodes
from tests.support.conforms import require_on_ranks
from tests.support.project import Project
from tests.support.stacks import new_model
from tests.support.tiny import N, Prescribed


def gradients(size, batches):
    rng = np.random.default_rng([size, batches])
    return rng.standard_normal((batches, size, N)).astype(np.float32)


def run(comm, stack, gs):
    for step in gs:
        stack.step(step[comm.Get_rank()][None], None, 1, rate=0.125)


def new_daso(comm, per_node, phases, batches, momentum=0.9, **settings):
    nodes = consecutive_nodes(comm.Get_size(), per_node)
    return DASO(comm, new_model(Prescribed(), momentum), nodes, phases, batches, **settings)


def test_on_ranks_the_bits_of_the_definition(on_ranks):
    on_ranks(require_on_ranks, Project(), "daso_run heat_run", sizes=(2, 4))


# ranks that another rank ended
ABORTED = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


# ---- the limits ----


@functools.cache
def both_sets():
    return digits(67)


def test_alexnet_and_the_loss_of_all_ranks_decide(on_ranks):
    """A real network: evaluation at the end, phases get the mean loss of all ranks."""

    def body(comm):
        train, held_out = both_sets()
        size, seen = comm.Get_size(), []
        phases = Constant(Phase(2))
        phases.end_epoch = seen.append
        network = AlexNet(10, 67, width=1 / 32)
        network.dropout_rng = np.random.default_rng(comm.Get_rank())
        with DASO(comm, new_model(network), consecutive_nodes(size, 1), phases, 3) as stack:
            mine = 0.0
            for step in range(3):
                images, labels = train.load(
                    np.arange(10 * step, 10 * step + 10)[comm.Get_rank() :: size]
                )
                mine += stack.step(images, labels, 10, rate=0.01)
            assert seen == [sum(comm.allgather(mine / 3))]
            assert len(set(comm.allgather(stack.require_same_parameters()))) == 1
            right, samples = stack.evaluate(held_out)
            assert samples == held_out.size and 0 <= right <= samples

    on_ranks(body, sizes=(1, 3))


# ---- what is refused ----


@pytest.mark.parametrize("wrong", ["rate", "global_batch"])
def test_steps_that_differ_between_ranks_are_seen_where_they_are_compared(wrong):
    """All nodes end with the same parameters, of rates that nobody chose."""

    def body(comm):
        daso = DASO(comm, new_model(Prescribed()), [[0], [1]], Constant(BLOCKING), 2)
        settings = {"rate": 0.1, "global_batch": 8}
        settings[wrong] *= 1 + comm.Get_rank()
        for own in gradients(2, 2):
            daso.step(own[comm.Get_rank()][None], None, settings["global_batch"], settings["rate"])
        daso.require_same_parameters()

    with pytest.raises(ValueError, match="hash of the parameters"):
        threads.run(2, body)


def test_a_call_after_close_is_a_sentence():
    def body(comm):
        daso = DASO(comm, new_model(Prescribed()), [[0], [1]], Constant(BLOCKING), 2)
        daso.close()
        for call in (lambda: daso.step(None, None, 2, 0.1), daso.require_same_parameters):
            with pytest.raises(ValueError, match="got a call after close; wanted it before"):
                call()

    threads.run(2, body)


@pytest.mark.parametrize("values", [(1, 1, 2), (4, -1, 1), (4, 1, -1), (0, 1, 1)])
def test_bad_phases(values):
    with pytest.raises(ValueError, match="wanted 0 <= W <= B and L >= 0"):
        Phase(*values)


@pytest.mark.parametrize(
    "values", [{"epochs": 0}, {"largest": 0}, {"warmup": -1}, {"threshold": 1.0}, {"patience": -1}]
)
def test_bad_cycles(values):
    with pytest.raises(ValueError, match="wanted epochs and largest >= 1"):
        Phases(**{"epochs": 9, **values})


@pytest.mark.parametrize(
    "nodes, batches, message",
    [
        ([[0], [1], [2]], 2.5, "got batches=2.5; wanted a whole number"),
        ([[0, 1], [2]], 3, "wanted equally many ranks on each"),
        ([[0, 1]], 3, "wanted every rank of 0..2 once"),
        ([[0], [1], [1, 2]], 3, "wanted every rank of 0..2 once"),
        ([[0], [1], [2]], 0, "got batches=0"),
    ],
)
def test_bad_settings(nodes, batches, message):
    with pytest.raises(ValueError, match=message):
        threads.run(
            3, lambda comm: DASO(comm, new_model(Prescribed()), nodes, Constant(BLOCKING), batches)
        )


def test_ranks_with_different_settings_say_so(on_ranks):
    def body(comm):
        phase = Phase(2 + (comm.Get_rank() == 0))
        with pytest.raises(ValueError, match="settings of DASO differs between ranks"):
            new_daso(comm, 1, Constant(phase), 3)

    on_ranks(body, sizes=(2, 3))


def test_hashes_are_not_compared_while_nodes_differ():
    def body(comm):
        with new_daso(comm, 2, Constant(Phase(4)), 6) as stack:
            run(comm, stack, gradients(4, 2))
            for ask in (stack.require_same_parameters, lambda: stack.evaluate(None)):
                with pytest.raises(ValueError, match="batch 2 of 6 of a cycling epoch"):
                    ask()
            run(comm, stack, gradients(4, 4))
            stack.require_same_parameters()

    threads.run(4, body)


@ABORTED
@pytest.mark.parametrize("phase", [Phase(1, 1, 0), Phase(1), BLOCKING])
def test_parameters_that_are_not_finite_are_reported(phase):
    def body(comm):
        with (
            new_daso(comm, 2, Constant(phase), 6) as stack,
            np.errstate(invalid="ignore"),
        ):
            gs = gradients(4, 3)
            gs[0, 3, 5] = np.inf
            run(comm, stack, gs)

    with pytest.raises(ValueError, match="a sum of parameters that is infinite or NaN"):
        threads.run(4, body)
