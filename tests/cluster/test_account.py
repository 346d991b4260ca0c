"""Counters against traces, on artificial traffic."""

import json

import pytest

from refgf.cluster.account import Account, Traffic, crossing, read_traces
from refgf.cluster.settings import Settings

MB = 10**6


def traces(messages=20, nbytes=10 * MB, nodes=2, each=2, opaque=False):
    """Ranks in blocks on the nodes; each sends to its right neighbour in a ring."""
    ranks = nodes * each
    return {
        r: {
            "rank": r,
            "host": f"node{r // each}",
            "peers": {str((r + 1) % ranks): [messages, nbytes]},
            "opaque": opaque,
        }
        for r in range(ranks)
    }


def account(counted, saved=None, each=2):
    saved = traces() if saved is None else saved
    return Account(Settings(nodes=2, ranks_per_node=each), counted, saved)


def test_only_what_leaves_a_node_crosses():
    assert crossing(traces()) == {
        "node0": Traffic(10 * MB, 10 * MB, 40),
        "node1": Traffic(10 * MB, 10 * MB, 40),
    }


def test_both_directions_are_separate():
    saved = {r: {"rank": r, "host": f"node{r}", "peers": {}} for r in range(3)}
    saved[2]["peers"] = {"0": [3, 500], "2": [1, 7]}
    assert crossing(saved) == {
        "node0": Traffic(0, 500, 3),
        "node1": Traffic(),
        "node2": Traffic(500, 0, 3),
    }


# both directions: 20 MB of payload, 40 messages -> at most 22 MB + 12 kB + 1 MB
FITTING = [(10 * MB, 10 * MB), (11 * MB, 11 * MB), (11_506_000, 11_506_000)]
TOO_LITTLE = [(10 * MB - 1, 11 * MB), (11 * MB, 10 * MB - 1), (0, 0)]
TOO_MUCH = [(11_506_000, 11_506_001), (10 * MB, 20 * MB)]


@pytest.mark.parametrize("counted", FITTING)
def test_counters_that_fit(counted):
    assert account([counted, (11 * MB, 11 * MB)]).faults() == []


@pytest.mark.parametrize("counted", TOO_LITTLE)
def test_traffic_that_took_another_path(counted):
    (fault,) = account([(11 * MB, 11 * MB), counted]).faults()
    assert fault.startswith("node1's link") and "took another path" in fault


@pytest.mark.parametrize("counted", TOO_MUCH)
def test_traffic_that_no_trace_counts(counted):
    (fault,) = account([counted, (11 * MB, 11 * MB)]).faults()
    assert fault.startswith("node0's link: got") and "no trace counts" in fault


@pytest.mark.parametrize("counted", TOO_MUCH)
def test_opaque_traffic_lifts_only_the_upper_bound(counted):
    saved = traces(opaque=True)
    assert account([counted, (11 * MB, 11 * MB)], saved).faults() == []
    assert len(account([(0, 0), counted], saved).faults()) == 1
    text = account([counted, (11 * MB, 11 * MB)], saved).text(0)
    assert text.endswith("and more: MPI's own calls are not traced")


def test_ranks_outside_the_cluster_are_seen():
    saved = traces()
    saved[3]["host"] = "laptop"
    (fault,) = account([(99 * MB, 99 * MB)] * 2, saved).faults()
    assert fault.startswith("account: got ranks on laptop; wanted only nodes of this cluster")


def test_without_all_traces_only_the_counters_are_reported():
    saved = traces()
    del saved[2]
    some, none = account([(0, 0)] * 2, saved), account([(0, 0)] * 2, {})
    assert some.faults() == none.faults() == []
    assert "counters only: 3 of 4 ranks left a trace" in some.text(0)
    failed = "counters only: no rank left a trace, the command failed with exit code 5"
    assert failed in none.text(5)


def test_the_table_shows_both_sides():
    text = account([(10_500_000, 10_250_000), (10_250_000, 10_500_000)]).text(0)
    row = next(line for line in text.splitlines() if line.startswith("node0"))
    assert row.split() == ["node0", "10.50", "10.25", "10.00", "10.00", "40"]
    assert text.endswith("what the ranks sent, and the headers of TCP and Ethernet")
    assert "FAILED: node0's link" in account([(0, 0), (11 * MB, 11 * MB)]).text(0)


def test_one_node_has_nothing_to_cross():
    saved = traces(nodes=1, each=3)
    assert Account(Settings(nodes=1, ranks_per_node=3), [(5000, 9000)], saved).faults() == []


def test_reading_traces(tmp_path):
    for rank, trace in traces().items():
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(trace))
    (tmp_path / "notes.json").write_text("not a trace")
    assert read_traces(tmp_path) == traces()
    assert read_traces(tmp_path / "nowhere") == {}
