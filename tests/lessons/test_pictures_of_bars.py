"""What lessons 01, 05, 07 and 08 write into their figures of known numbers."""

from argparse import Namespace
from unittest.mock import Mock

import matplotlib
import numpy as np
import pytest

matplotlib.use("Agg")

from kit import axes, claims  # noqa: E402  after the backend is chosen
from lab.precision import loss_scales  # noqa: E402
from lab.precision.claims import CLAIMS  # noqa: E402
from lab.ring import claims as ring_names  # noqa: E402
from lab.ring import picture as ring_picture  # noqa: E402
from lab.ring import times as ring_times  # noqa: E402
from lab.stack import bars  # noqa: E402
from lab.stack import claims as stack_claims  # noqa: E402
from lab.stack import picture as stack_picture  # noqa: E402
from lab.two_ranks.naive import through_rank_0  # noqa: E402
from refgf.comm.ring import ring_allreduce  # noqa: E402
from refgf.machine import threads  # noqa: E402
from refgf.machine.trace import TracedComm  # noqa: E402
from refgf.predict.cost import Link, ring_allreduce_s  # noqa: E402


def timing(median_s: float, spread: float = 0.01) -> dict:
    low_s, high_s = (1 - spread) * median_s, (1 + spread) * median_s
    return {"median_s": median_s, "low_s": low_s, "high_s": high_s}


def texts(axis) -> list[str]:
    return [text.get_text() for text in axis.texts]


@pytest.mark.parametrize(
    "shared_s, said, names",
    [(1.005, "level", "MPI's own and shared memory"), (2.0, "fastest", "MPI's own")],
)
def test_the_fastest_are_named_with_their_length(shared_s, said, names):
    times = {ring_names.RING: 3.0, ring_names.OWN: 1.0, ring_names.SHARED: shared_s}
    measured = {name: timing(t) for name, t in times.items()}
    points = [{"bytes": n, "measured": measured} for n in (1024, 2**26)]
    _, (axis,) = axes.frame("a title", 1, 1)
    ring_picture.label_fastest(axis, {"points": points})
    assert texts(axis) == [f"{said} at 1 KiB: {names}", f"{said} at 64 MiB: {names}"]


def test_all_that_are_level_overlap_each_other():
    """The fastest has one slow repeat, as slow as the ring, which MPI's own never is."""
    measured = {ring_names.RING: timing(20.0), ring_names.OWN: timing(1.0)}
    measured[ring_names.SHARED] = timing(0.99) | {"high_s": 21.0}
    points = [{"bytes": 1024, "measured": measured}]
    _, (axis,) = axes.frame("a title", 1, 1)
    ring_picture.label_fastest(axis, {"points": points})
    assert set(texts(axis)) == {"level at 1 KiB: shared memory and MPI's own"}


def test_a_sum_that_stops_earlier_is_not_the_fastest_of_the_longest_vector():
    """Through rank 0 1 s at 4 MiB, its last; the ring 3 s at 64 MiB, which it sums alone."""
    ring, naive = {ring_names.RING: timing(3.0)}, {ring_names.NAIVE: timing(1.0)}
    points = [{"bytes": n, "measured": ring | naive} for n in (1024, 2**22)]
    points.append({"bytes": 2**26, "measured": ring | {ring_names.OWN: timing(4.0)}})
    _, (axis,) = axes.frame("a title", 1, 1)
    ring_picture.label_fastest(axis, {"points": points})
    assert texts(axis) == ["fastest at 1 KiB: rank 0", "fastest at 64 MiB: ring"]


@pytest.mark.parametrize("naive_s, verdict", [(7.0, claims.HOLDS), (5.0, claims.FAILS)])
def test_the_naive_sum_is_compared_where_both_are_measured(naive_s, verdict):
    both = {ring_names.RING: timing(3.0), ring_names.NAIVE: timing(naive_s)}
    points = [{"measured": both}, {"measured": {ring_names.RING: timing(9.0)}}]
    (claim,) = [each for each in ring_names.CLAIMS if "through rank 0" in each.text]
    assert claims.decide(claim, {"curves": {"": {"points": points}}}).verdict == verdict
    none = {"curves": {"": {"points": points[1:]}}}
    assert claims.decide(claim, none).verdict == claims.NOT_MEASURED


@pytest.mark.parametrize("p", [1, 2, 3, 5])
def test_through_rank_0_all_ranks_hold_the_sum(p):
    def body(comm):
        x = np.arange(3.0) + comm.Get_rank()
        through_rank_0(comm, x)
        return x.tolist()

    wanted = [sum(r + i for r in range(p)) for i in range(3)]
    assert threads.run(p, body) == [wanted] * p


@pytest.mark.parametrize("p", [2, 3, 8])
def test_beta_is_that_of_a_link_that_sends_short_messages_faster(p, monkeypatch):
    """By hand: 30 us a step, 8 ns a byte after the first 256 KiB, which cost nothing."""

    def message(run, nbytes, repeats):
        return 10e-6 + 8e-9 * max(0, nbytes - 2**18)

    monkeypatch.setattr(ring_times, "ping_pong", message)
    monkeypatch.setattr(ring_times, "neighbours", message)
    monkeypatch.setattr(ring_times, "empty_step", lambda *_: 30e-6)
    links = ring_times.measure_links(Mock(size=p, quick=lambda _, default: default), None)
    assert [links[name].alpha_s for name in ("pair", "busy")] == pytest.approx([10e-6, 30e-6], 0.01)
    assert links["busy"].beta_s_per_byte == pytest.approx(8e-9, rel=0.2)


@pytest.mark.parametrize("p", [2, 3, 5])
def test_alpha_is_of_one_message_of_an_empty_ring(p):
    """A clock that counts messages: one for each step."""

    def body(comm):
        traced = TracedComm(comm)
        ring = ring_allreduce(traced)

        def time(function, repeats, warmup):
            function()
            return Mock(median_s=float(traced.messages))

        run = Mock(size=p, time=time, xp=np)
        return ring_times.empty_step(run, ring, 1), traced.bytes

    assert threads.run(p, body) == [(1.0, 0)] * p


@pytest.mark.parametrize("p", [1, 3, 7])
def test_a_ring_adds_all_slices_but_one(p):
    added = []

    class Vector(np.ndarray):
        def __setitem__(self, part, values):
            added.append(len(values))
            super().__setitem__(part, values)

    zeros = Mock(zeros=lambda n, dtype: np.zeros(n, dtype).view(Vector))
    run = Mock(size=p, xp=zeros, time=lambda add, repeats: add())
    ring_times.measure_additions(run, 10)
    assert len(added) == p - 1 and sum(added) == 10 - -(-10 // p)


def test_both_terms_of_the_formula_are_equal_at_the_dotted_line():
    link, p = Link(30e-6, 8e-9), 5
    nbytes = ring_picture.equal_bytes({"ranks": p, "busy": vars(link)})
    elements = round(nbytes / 4)
    latency_s = ring_allreduce_s(p, elements, 4, Link(link.alpha_s, 0))
    assert ring_allreduce_s(p, elements, 4, link) == pytest.approx(2 * latency_s, rel=1e-3)


@pytest.mark.parametrize("adding_s, said", [(0.5, True), (0.05, False), (None, False)])
def test_additions_are_named_where_they_are_much(adding_s, said):
    points = [{"bytes": 2**26, "measured": {ring_names.RING: timing(1.0)}}]
    adding = {"adding": timing(adding_s)} if adding_s else {}
    text = ring_picture.additions({"shared memory, 2 cores": {"points": points} | adding})
    assert ("500 ms of 1 s for 64 MiB (shared memory)" in text) == said == bool(text)


@pytest.mark.parametrize("alpha_s, verdict", [(1e-4, claims.HOLDS), (5e-4, claims.FAILS)])
def test_a_prediction_that_misses_the_short_vectors_is_noticed(alpha_s, verdict):
    link = Link(1e-4, 8e-9)
    points = [
        {
            "bytes": 4 * n,
            "predicted_s": ring_allreduce_s(4, n, 4, link),
            "measured": {ring_names.RING: timing(ring_allreduce_s(4, n, 4, Link(alpha_s, 8e-9)))},
        }
        for n in (256, 2**24)
    ]
    curve = {"points": points, "ranks": 4, "adding": timing(1e-3)}
    (claim,) = [each for each in ring_names.CLAIMS if "factor of two" in each.text]
    assert claims.decide(claim, {"curves": {"emulated cluster": curve}}).verdict == verdict
    found = claims.decide(claim, {"curves": {"shared memory of one machine": curve}})
    assert found.verdict == claims.NOT_MEASURED


@pytest.mark.parametrize("ranks", [3, 4])
def test_mpis_own_call_is_no_bar_and_the_links_alone_are_marked(ranks):
    """The marks: of the cluster that they are computed for. CSC by hand: it hides all its bytes."""
    names = bars.NATIVE, bars.RING, bars.HALF, bars.CSC
    rows = [
        {"name": name, "step": timing(t), "predicted_s": t, "own_share": 0.0}
        for name, t in zip(names, (9.0, 8.0, 6.0, 5.0))
    ]
    place = {"place": "here", "network": "alexnet", "like": "v100-56gbit", "elements": 1}
    place |= {"rows": rows, "alone": timing(4.0), "dilation": 1.0, "ranks": ranks, "theta": 2**22}
    figure = stack_picture.draw({"places": {"": place}, "learning": None})[""]
    (axis,) = figure.axes
    assert ["gain" in text for text in texts(axis)] == [False, True, True]
    labels = [label.get_text() for label in axis.get_yticklabels()]
    assert labels == [bars.RING, bars.HALF, bars.CSC]
    marks = stack_picture.links_alone(place | {"rows": rows[1:]})
    assert [number for _, number in marks] == ([0, 1, 2] if ranks == 4 else [])
    assert all("Black mark" in text.get_text() for text in figure.texts[1:2]) == (ranks == 4)
    if marks:
        compute_ms = 1e3 * 128 / 3297  # a batch over images/s
        assert compute_ms < marks[2][0] < 1.02 * compute_ms
        assert marks[0][0] == pytest.approx(compute_ms + 1.5 * 4 * 62.378344 / 7, rel=0.02)


def test_each_network_has_a_figure_of_its_own():
    step = timing(4.0)
    row = {"name": bars.RING, "step": step, "predicted_s": 4.0, "own_share": 0.5}
    place = {"network": "alexnet", "like": "v100-56gbit", "elements": 1, "rows": [row]}
    place |= {"alone": step, "dilation": 1.0, "ranks": 1}
    others = {"b": {"network": "resnet50"}, "c": {"like": "mgwfbp-10gbe"}, "d": {"ranks": 2}}
    places = {"a": place} | {title: place | other for title, other in others.items()}
    found = stack_picture.draw({"places": places, "learning": None})
    assert set(found) == {"", "resnet50", "alexnet_mgwfbp-10gbe"}
    assert all(texts(figure.axes[0])[0] == "100 %" for figure in found.values())


def test_above_100_percent_is_compared_with_stacks_that_update_all():
    def place(ranks: int, ring_s: float, csc_s: float) -> dict:
        found = {bars.RING: ring_s, bars.CSC: csc_s}
        rows = [{"name": name, "step": timing(t)} for name, t in found.items()]
        return {"ranks": ranks, "alone": timing(4.0), "rows": rows}

    found = stack_claims.above_100([place(2, 2.0, 1.0), place(4, 5.0, 1.0)])
    assert found == (2.0, "ring on 2 ranks")
    assert stack_claims.above_100([place(2, 4.5, 1.0)]) == (0.0, "")


def test_lesson_05_without_trainings():
    run = Namespace(options=Namespace(epochs=None, pairs=0), quick=lambda *sizes: sizes[1])
    assert loss_scales.learn(run, None, None) is None
    trained = [claim for claim in CLAIMS if "2^-16" in claim.text or "dynamic" in claim.text]
    found = claims.verdicts(trained, {"learning": None})
    assert {verdict.verdict for verdict in found} == {claims.NOT_MEASURED} and len(found) == 3
