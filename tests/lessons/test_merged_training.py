"""Lesson 09 trains with merged groups: the bits of eager calls; and predicts 4 to 2048 GPUs."""

from types import SimpleNamespace

import pytest

import kit
from lab.merge import curves, picture, training
from lab.merge.curves import BEST, IB, RULE, SYNC, TEN, WFBP, efficiency
from lab.merge.steps import EAGER, EXACT, GREEDY
from refgf.comm.ring import ring_allreduce
from refgf.machine import threads
from refgf.papers.scaling.scaling import ready_of
from refgf.papers.scaling.systems import scaling_efficiency
from refgf.papers.scaling.workloads import resnet50
from refgf.predict.timeline import eager, predict

OPTIONS = {"quick": True, "full": False, "link": None, "like": None, "verbose": False}


def compare_on(ranks):
    def body(comm):
        run = kit.Run(comm, SimpleNamespace(**OPTIONS, threads=ranks, lesson="09"))
        return training.compare(run)

    return threads.run(ranks, body)


def test_a_training_with_merged_groups_is_that_of_eager_calls():
    found, *_ = compare_on(3)
    rows = found["rows"]
    assert list(rows) == [EAGER, GREEDY, EXACT] and rows[EAGER]["calls"] == 26
    assert max(rows[name]["calls"] for name in (GREEDY, EXACT)) < 26
    for name in (GREEDY, EXACT):
        assert rows[name]["loss"] == rows[EAGER]["loss"]
        assert rows[name]["accuracy"] == rows[EAGER]["accuracy"]


def test_sums_that_depend_on_the_groups_are_noticed(monkeypatch):
    """A ring adds an element in an order that depends on its slice, so on the group."""
    monkeypatch.setattr(training, "direct_allreduce", lambda comm, **given: ring_allreduce(comm))
    with pytest.raises(AssertionError, match="wanted the same bits"):
        compare_on(3)


@pytest.fixture(scope="module")
def predicted():
    options = SimpleNamespace(**OPTIONS, threads=1, lesson="09")
    return {"curves": threads.run(1, lambda comm: curves.predict(kit.Run(comm, options)))[0]}


def test_a_point_of_the_curves_is_the_timeline(predicted):
    """WFBP on 64 GPUs, by the ring's formula on the authors' link."""
    link = {given.name: given.values[0] for given in curves.CLUSTERS[TEN]}
    alpha_s, beta, gamma = link["alpha_s"], 1 / link["bandwidth"], link["gamma_s_per_byte"]
    gradients = [(t, 4 * n) for t, n in ready_of(resnet50(), 64, 253.1)]
    step = predict(
        gradients,
        eager(gradients),
        lambda nbytes: 126 * alpha_s + 63 / 64 * (2 * beta + gamma) * nbytes,
    )
    wanted = scaling_efficiency(step)
    assert efficiency(predicted, TEN, WFBP, 64, 0) == pytest.approx(wanted, rel=1e-12)


def test_no_system_is_above_the_best_merge(predicted):
    for cluster in (TEN, IB):
        systems = predicted["curves"][cluster]["systems"]
        for name in (WFBP, SYNC, RULE):
            pairs = zip(systems[name], systems[BEST])
            assert all(a <= b + 1e-9 for ends in pairs for a, b in zip(*ends)), name


def test_points_that_were_not_predicted_are_none(predicted):
    assert efficiency({}, TEN, WFBP, 64, 0) is None
    assert efficiency(predicted, TEN, WFBP, 63, 0) is None


def test_the_title_says_from_where_on_the_rule_makes_one_call(predicted):
    def found(rule, sync):
        return {"sizes": [4, 8, 16], "systems": {RULE: rule, SYNC: sync}}

    said = picture.becomes_one_call
    assert said(found([9, 5, 4], [7, 5, 4])) == "from 8 GPUs on the greedy rule makes one call"
    assert said(found([9, 5, 5], [7, 5, 4])) == "the greedy rule never makes one call"
