"""Three phases, log phases, two-level ring, hybrid: every split of p, bits, costs, refusals."""

import functools
import itertools

import numpy as np
import pytest

from refgf.comm import compose, ring, tree
from refgf.comm.replay import check, replay
from refgf.comm.schedule import collective
from refgf.comm.slices import length
from refgf.machine import threads
from refgf.machine.trace import TracedComm
from refgf.papers.jia import doubling
from refgf.papers.jia.hierarchical import (
    consecutive_nodes,
    hybrid,
    log_phases,
    ring_to_master,
    three_phase,
    two_level_ring,
)
from refgf.papers.scaling.collectives import halving_doubling_s, hierarchical_s, tree_s
from refgf.papers.scaling.simulate import from_schedules
from refgf.predict.cost import Link, ring_allreduce_s
from tests.support.comm_cases import ONE_BY_ONE, order_sensitive, same_bits, sizes_of
from tests.support.hierarchy_cases import (
    CASES,
    COSTS,
    FORMS,
    equal,
    shuffled,
    splits,
    three_phase_sum,
)


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("p", range(1, 10))
@pytest.mark.parametrize("name", CASES)
def test_every_split_gives_the_bits_of_the_definition(name, p):
    make, definition = CASES[name]
    for split in splits(p):
        if make is two_level_ring and not equal(split):
            continue
        for nodes, wire in [(split, None), (shuffled(split), "float16")]:
            for n in (1, 29):
                xs = order_sensitive(p, n, "float32")
                schedules = [make(nodes)(r, p, n) for r in range(p)]
                wanted = definition(xs, nodes, wire)
                assert all(same_bits(x, wanted) for x in replay(schedules, xs, wire)), (nodes, n)
            check(schedules)


@functools.lru_cache(maxsize=8)
def numbers_and_sum(name, nodes, n, dtype, wire):
    """Ranks on threads share what the first of them computes."""
    xs = order_sensitive(sum(map(len, nodes)), n, dtype, wire)
    return xs, CASES[name][1](xs, nodes, wire)


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize(
    "dtype, wire", [("float32", None), ("float16", None), ("float32", "float16")]
)
@pytest.mark.parametrize("name", CASES)
def test_same_bits_on_ranks(on_ranks, name, dtype, wire):
    make = CASES[name][0]

    def body(comm):
        p = comm.Get_size()
        for k in (k for k in range(1, p + 1) if make is not two_level_ring or p % k == 0):
            nodes = tuple(map(tuple, consecutive_nodes(p, k)))
            allreduce = collective(comm, make(consecutive_nodes(p, k)), wire)
            for n in sizes_of(p):
                with ONE_BY_ONE:
                    xs, wanted = numbers_and_sum(name, nodes, n, dtype, wire)
                x = xs[comm.Get_rank()].copy()
                allreduce(x)
                assert same_bits(x, wanted), (p, k, n)

    on_ranks(body, sizes=range(1, 10))


@pytest.mark.parametrize("p", range(1, 10))
@pytest.mark.parametrize("name", CASES)
def test_every_split_runs(name, p):
    """On p threads, for every split of p into nodes: the bits, messages and bytes."""
    make, definition = CASES[name]
    wanted = [split for split in splits(p) if make is not two_level_ring or equal(split)]
    xs = {n: order_sensitive(p, n, "float32") for n in (0, p - 1, 29)}
    sums = [{n: definition(xs[n], nodes, None) for n in xs} for nodes in wanted]

    def body(comm):
        traced = TracedComm(comm)
        for nodes, sum_of in zip(wanted, sums):
            i, j = next(
                (i, node.index(comm.rank)) for i, node in enumerate(nodes) if comm.rank in node
            )
            for n, everybody in xs.items():
                x = everybody[comm.rank].copy()
                traced.reset()
                collective(traced, make(nodes))(x)
                assert same_bits(x, sum_of[n]), (nodes, n)
                messages, elements = COSTS[name](nodes, i, j, n)
                assert (traced.messages, traced.bytes) == (messages, 4 * elements), (nodes, n)

    threads.run(p, body)


def test_order_sensitive_data_tells_orders_apart():
    """Four orders of summation; doubling phases share that of log phases."""
    xs, nodes = order_sensitive(8, 1000, "float32"), consecutive_nodes(8, 2)
    flat = replay([ring.allreduce(r, 8, 1000) for r in range(8)], xs)[0]
    results = [
        flat,
        *(
            definition(xs, nodes, None)
            for definition in {definition for _, definition in CASES.values()}
        ),
    ]
    assert not any(same_bits(a, b) for a, b in itertools.combinations(results, 2))


@pytest.mark.parametrize("make, cost", FORMS)
@pytest.mark.parametrize("p", range(1, 10))
def test_costs_of_every_split(make, cost, p):
    """Messages and elements in the schedules, as the docstring says."""
    for nodes in splits(p):
        if make is two_level_ring and not equal(nodes):
            continue
        for n in (0, 5, 100):
            for i, j in ((i, j) for i, node in enumerate(nodes) for j in range(len(node))):
                sends = [s for s in make(nodes)(nodes[i][j], p, n) if s.send_to is not None]
                assert (len(sends), sum(length(s.send) for s in sends)) == cost(nodes, i, j, n), (
                    nodes,
                    i,
                    j,
                    n,
                )


@pytest.mark.parametrize("wire", [None, "float16"])
@pytest.mark.parametrize("make, cost", FORMS)
def test_counted_costs(on_ranks, make, cost, wire):
    def body(comm):
        traced, p, r = TracedComm(comm), comm.Get_size(), comm.Get_rank()
        for k in (k for k in (1, 2, p) if p % k == 0):
            for n in sizes_of(p):
                traced.reset()
                collective(traced, make(consecutive_nodes(p, k)), wire)(np.ones(n, np.float32))
                messages, elements = cost(consecutive_nodes(p, k), r // k, r % k, n)
                assert (traced.messages, traced.bytes) == (
                    messages,
                    elements * (2 if wire else 4),
                ), (p, k, n)

    on_ranks(body)


@pytest.mark.parametrize("m, k", [(1, 4), (4, 1), (4, 2), (2, 4), (3, 3)])
def test_schedules_take_as_long_as_the_closed_forms(m, k):
    """4(k-1) + 2(m-1) steps, 2(m-1) of them between nodes; n divisible by everything."""
    inside, between, n = Link(1.0, 0.25, 0.125), Link(8.0, 2.0, 0.125), 720
    nodes = consecutive_nodes(m * k, k)

    def link(source, dest):
        return inside if source // k == dest // k else between

    schedules = [three_phase(nodes)(r, m * k, n) for r in range(m * k)]
    assert from_schedules(schedules, 4, link) == hierarchical_s(m, k, n, 4, inside, between)
    schedules = [log_phases(nodes)(r, m * k, n) for r in range(m * k)]
    phases_s = tree_s(k, n, 4, inside), halving_doubling_s(m, n, 4, between)
    assert from_schedules(schedules, 4, link) == sum(phases_s)
    schedules = [two_level_ring(nodes)(r, m * k, n) for r in range(m * k)]
    rings_s = ring_allreduce_s(k, n, 4, inside), ring_allreduce_s(m, n // k, 4, between)
    assert from_schedules(schedules, 4, link) == sum(rings_s)


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


@pytest.mark.parametrize("p", range(1, 10))
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


def test_hybrid_picks_by_size():
    nodes = consecutive_nodes(8, 2)
    short, long = three_phase(nodes)(3, 8, 99), ring.allreduce(3, 8, 100)
    assert hybrid(nodes, 100)(3, 8, 99) == short and hybrid(nodes, 100)(3, 8, 100) == long
    assert hybrid(nodes, 0)(3, 8, 100) == long
    assert hybrid(nodes, float("inf"))(3, 8, 99) == short


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


def test_a_master_that_forgets_to_gather_is_caught():
    """Seeded mistake: the masters' ring works on partly summed slices."""
    xs, nodes = order_sensitive(4, 29, "float32"), consecutive_nodes(4, 2)
    got = replay([three_phase(nodes, inside=ring.reduce_scatter)(r, 4, 29) for r in range(4)], xs)
    assert not all(same_bits(x, three_phase_sum(xs, nodes, None)) for x in got)


def test_masters_of_the_wrong_rank_hang_and_are_named():
    """Seeded mistake: every rank takes itself for a master."""

    def all_masters(nodes):
        def algorithm(rank, size, n):
            i = next(i for i, node in enumerate(nodes) if rank in node)
            return compose.on_ranks([node[0] for node in nodes], ring.allreduce(i, len(nodes), n))

        return algorithm

    with pytest.raises(ValueError, match="deadlock"):
        check([all_masters(consecutive_nodes(4, 2))(r, 4, 8) for r in range(4)])
