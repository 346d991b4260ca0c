"""Three phases, log phases, two-level ring, hybrid: bits on ranks, closed forms, refusals."""

import itertools

import numpy as np
import pytest

from refgf.comm import ring, tree
from refgf.comm.replay import check, replay
from refgf.papers.jia import doubling
from refgf.papers.jia.hierarchical import (
    consecutive_nodes,
    hybrid,
    log_phases,
    ring_to_master,
    three_phase,
    two_level_ring,
)
from tests.support.comm_cases import same_bits
from tests.support.conforms import require_on_ranks
from tests.support.project import Project

FUNCTIONS = "three_phase_allreduce log_phases_allreduce two_level_allreduce hybrid_allreduce"


def test_the_bits_of_the_definitions_on_ranks(on_ranks):
    """On threads, with messages and elements: tests/oracle/test_oracle_own.py."""
    on_ranks(require_on_ranks, Project(), FUNCTIONS, sizes=(1, 2, 4, 6))


def splits(p):
    """Every way to cut ranks 0..p-1 into nodes of neighbours: 2**(p-1) of them."""
    for cuts in itertools.product([False, True], repeat=p - 1):
        bounds = [0, *(i + 1 for i, cut in enumerate(cuts) if cut), p]
        yield [list(range(a, b)) for a, b in zip(bounds, bounds[1:])]


def shuffled(nodes):
    """The same sizes, but any ranks in any order, as a launcher may deal them out."""
    ranks = iter(np.random.default_rng(len(nodes)).permutation(sum(map(len, nodes))).tolist())
    return [[next(ranks) for _ in node] for node in nodes]


def test_steps_of_the_paper():
    """p = 1024, k = 16: 186 steps on a master instead of 2046."""
    steps = three_phase(consecutive_nodes(1024, 16))(0, 1024, 10_000)
    assert len([s for s in steps if s.send_to is not None or s.receive_from is not None]) == 186
    flat = ring.allreduce(0, 1024, 10_000)
    assert len([s for s in flat if s.send_to is not None]) == 2046
    short = log_phases(consecutive_nodes(1024, 16))(0, 1024, 10_000)
    assert (
        len([s for s in short if s.send_to is not None or s.receive_from is not None])
        == 2 * 4 + 2 * 6
    )


@pytest.mark.parametrize("p", range(1, 8))
def test_any_inside_goes_with_any_between(p):
    """Whole numbers, whose sums are exact: the right sum on all ranks, in every split."""
    xs = [np.random.default_rng([p, r]).integers(-9, 9, 29).astype(np.float32) for r in range(p)]
    betweens = (
        ring.allreduce,
        tree.allreduce,
        doubling.recursive_doubling,
        doubling.halving_doubling,
    )
    for nodes in map(shuffled, splits(p)):
        for inside, between in itertools.product((ring_to_master, tree.reduce), betweens):
            schedules = [three_phase(nodes, inside, between)(r, p, 29) for r in range(p)]
            check(schedules)
            assert all(same_bits(x, np.sum(xs, axis=0)) for x in replay(schedules, xs)), (
                nodes,
                inside,
                between,
            )


def test_hybrid_takes_the_form_for_short_vectors():
    nodes = consecutive_nodes(8, 2)
    by_logs = hybrid(nodes, 100, short=log_phases)
    assert by_logs(2, 8, 99) == log_phases(nodes)(2, 8, 99) != three_phase(nodes)(2, 8, 99)
    assert by_logs(2, 8, 100) == ring.allreduce(2, 8, 100)


def test_blocks():
    assert consecutive_nodes(5, 2) == [[0, 1], [2, 3], [4]]
    assert consecutive_nodes(4, 9) == [[0, 1, 2, 3]]
    with pytest.raises(ValueError, match="consecutive_nodes: got 4 ranks in nodes of 0"):
        consecutive_nodes(4, 0)
    with pytest.raises(ValueError, match="got ranks_per_node=1.5; wanted a whole number"):
        consecutive_nodes(4, 1.5)


def test_unequal_nodes_are_refused_where_the_algorithm_needs_equal_ones():
    with pytest.raises(
        ValueError, match="two_level_ring: got nodes of 2, 2, 1 ranks; wanted the same number"
    ):
        two_level_ring(consecutive_nodes(5, 2))


@pytest.mark.parametrize(
    "nodes", [[[0, 1], [1, 2]], [[0, 1], [3, 4]], [[0, 1]], [[0, 1], [2, 3], [4, 5]]]
)
@pytest.mark.parametrize("make", [three_phase, log_phases, two_level_ring])
def test_nodes_that_are_not_the_ranks_are_refused(make, nodes):
    with pytest.raises(ValueError, match="wanted every rank 0 to 3 once"):
        make(nodes)(0, 4, 10)
