"""Lesson 09's steps take turns, say what their calls took, and sleep a longer latency."""

from types import SimpleNamespace

import numpy as np
import pytest

import kit
from docs.tools import gains
from kit.replay import Size, replay_backward
from lab.lazy.grouped_steps import Bench, link_here
from lab.merge import far, rotation
from lab.merge.picture import against_theta
from lab.merge.steps import EXACT, GREEDY
from refgf.exchange.pool import Pool
from refgf.machine import threads
from refgf.predict.cost import Line

LESSON = gains.ROOT / "lessons" / "09_merged_gradients.py"
OPTIONS = {"quick": True, "full": False, "link": None, "verbose": False, "lesson": "09"}


def run_on(ranks, body, like=None):
    options = SimpleNamespace(**OPTIONS, like=like, threads=ranks)
    return threads.run(ranks, lambda comm: body(kit.Run(comm, options)))


@pytest.mark.parametrize(
    "rounds, wanted",
    [
        (1, "abc"),
        (3, "abc bca cab"),
        (4, "abc abc bca cab"),
        (2, "abc bca"),
    ],
)
def test_each_round_begins_with_another(rounds, wanted):
    def body(run):
        seen = []
        found = rotation.in_rotation(run, {n: lambda n=n: seen.append(n) for n in "abc"}, rounds)
        assert list(found) == list("abc")
        assert {row["timing"].repeats for row in found.values()} == {rounds}
        return "".join(seen)

    assert run_on(3, body) == [wanted.replace(" ", "")] * 3


def test_a_clock_adds_up_calls_and_their_latency(monkeypatch):
    now = [0.0]

    def pass_(seconds):
        now[0] += seconds

    clock = SimpleNamespace(perf_counter=lambda: now[0], sleep=pass_)
    monkeypatch.setattr(rotation, "time", clock)
    late = rotation.Clocked(lambda x: pass_(2.0), 0.5)
    late(None)
    late(None)
    assert late.spent_s == 5.0
    prompt = rotation.Clocked(lambda x: pass_(2.0))
    prompt(None)
    assert prompt.spent_s == 2.0


def bench_of(run):
    """Three gradients that are far apart for this link, and near for one of 128 ranks."""
    pool = Pool([Size(f"g{i}", (50_000,)) for i in range(3)], np.float32, run.xp.zeros)
    gap_s = 20 * link_here(run).a_s
    ready_s = [gap_s, 1.1 * gap_s, 20 * gap_s]
    gradients = [(t, view.nbytes) for t, view in zip(ready_s, pool.views)]
    return Bench("", pool, lambda exchange: replay_backward(exchange, ready_s), gradients, gap_s)


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_longer_latency_merges_more(ranks):
    new_exchange = gains.module_of(LESSON).Exchange

    def body(run):
        bench, a_s = bench_of(run), link_here(run).a_s
        swept = [
            {"name": "eager", "theta": 0, "predicted_s": 2.0},
            {"name": "theta", "theta": 10**9, "predicted_s": 1.0},
        ]
        line, names = Line(a_s, a_s / 1e6), (GREEDY, EXACT)
        found = far.measure(run, bench, line, swept, 0.0, names, new_exchange)
        return found, a_s

    for found, a_s in run_on(ranks, body, "mgwfbp-10gbe"):
        alpha_s = a_s / (2 * (ranks - 1))
        assert found["late_s"] == pytest.approx(2 * (far.RANKS - ranks) * alpha_s)
        assert [row["name"] for row in found["rows"]] == ["theta", GREEDY, EXACT]
        assert [row["calls"] for row in found["rows"]] == [1, 2, 2]
        assert [row["theta"] for row in found["rows"]] == [10**9, None, None]
        assert all(row["calls_s"] >= row["calls"] * found["late_s"] for row in found["rows"])


@pytest.mark.parametrize("ranks, like", [(3, None), (1, "mgwfbp-10gbe")])
def test_nothing_is_slept_where_no_link_is(ranks, like):
    assert run_on(ranks, lambda run: far.measure(run, *[None] * 6), like) == [{}] * ranks


def test_the_texts_name_the_ranks_that_are_slept():
    for page in (LESSON, gains.ROOT / "lessons" / "teaching" / "09.md"):
        assert f"ring on {far.RANKS} ranks" in " ".join(page.read_text().split())


def test_the_best_merge_is_level_where_ranges_overlap():
    def row(name, theta, low_s, high_s):
        timing = {"low_s": low_s, "median_s": (low_s + high_s) / 2, "high_s": high_s}
        return {"name": name, "theta": theta, "timing": timing}

    rows = [row("lazy 4 MiB", 4, 2.0, 4.0), row("lazy 8 MiB", 8, 1.9, 2.1)]
    assert against_theta([*rows, row(EXACT, None, 2.0, 3.0)]).endswith("8 MiB, within noise")
    said = against_theta([*rows, row(EXACT, None, 2.9, 3.1)])
    assert said == "The best merge takes 1.50 times as long as theta = 8 MiB"
