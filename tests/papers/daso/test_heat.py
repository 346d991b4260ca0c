"""DASO's form `heat` against its definition, and beside the form `paper`."""

import pytest

from refgf.machine import threads
from refgf.machine.trace import TracedComm
from refgf.oracle.definitions import (
    heat_again,
    heat_traffic,
)
from refgf.oracle.spec.daso.traffic import tree_children
from refgf.papers.daso.daso import DASO
from refgf.papers.daso.heat import HeatPhase, HeatPhases
from refgf.papers.daso.phases import Constant, Phase, Phases
from refgf.papers.jia.hierarchical import consecutive_nodes
from tests.papers.daso.test_daso import gradients, run
from tests.support.stacks import new_model
from tests.support.tiny import N, Prescribed

NODES = [(1, 1), (3, 1), (3, 3), (4, 2), (6, 2), (6, 3)]  # ranks, nodes


@pytest.mark.parametrize("size, nodes", NODES)
@pytest.mark.parametrize(
    "phase", [(0, 0, 0), (1, 1, 0), (1, 1, 1), (3, 1, 2), (4, 3, 2), (8, 2, 2)]
)
def test_messages_are_those_of_heat_without_the_broadcast_that_the_last_batch_replaces(
    size, nodes, phase
):
    batches, k = 12, size // nodes
    counted = heat_traffic(N, size, nodes, batches, phase, chunk=30)
    again = heat_again(batches - 1, batches, phase, k)
    left_out = [0 if again is None else tree_children((r - again) % k, k) for r in range(size)]
    wanted = [
        (messages - children, nbytes - 4 * N * children)
        for (messages, nbytes), children in zip(counted, left_out)
    ]
    assert again is None or k == 1 or any(left_out)

    def body(comm):
        traced = TracedComm(comm)
        given = consecutive_nodes(size, k), Constant(HeatPhase(*phase)), batches
        with DASO(traced, new_model(Prescribed()), *given, chunk=30) as stack:
            stack._end_epoch = lambda: None  # the loss of all ranks is not the exchange
            traced.reset()
            run(comm, stack, gradients(size, batches))
            stack._thread.wait()
            return traced.messages, traced.bytes

    assert threads.run(size, body) == wanted


def test_waits_may_exceed_b_but_blocking_does_not_wait():
    assert HeatPhase(4, 1, 5).received_in(0, 99) == 4
    for values in [(0, 0, 1), (4, -1, 1), (4, 1, -1)]:
        with pytest.raises(ValueError, match="wanted 0 <= W <= B and L >= 0"):
            HeatPhase(*values)


def test_a_largest_b_below_4_is_refused():
    with pytest.raises(ValueError, match="got largest=2 for the form of Heat; wanted at least 4"):
        HeatPhases(30, largest=2)


@pytest.mark.parametrize(
    "described, heat",
    [(Phases(30), HeatPhases(30)), (Constant(Phase(2)), Constant(HeatPhase(2)))],
)
def test_ranks_with_different_forms_say_so(described, heat):
    def body(comm):
        phases = heat if comm.Get_rank() else described
        with pytest.raises(ValueError, match="settings of DASO differs between ranks"):
            DASO(comm, new_model(Prescribed()), consecutive_nodes(2, 1), phases, 3)

    threads.run(2, body)
