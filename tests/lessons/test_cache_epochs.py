"""Lesson 14 measures each case once, so both panels of its figure show the same numbers."""

from types import SimpleNamespace

import pytest

from docs.tools import gains
from kit.claims import FAILS, HOLDS, decide
from kit.reveal import number
from lab.cache import claims, epochs, picture, training

STORE = "slow"
SECONDS = {"no cache": 1.0, "disk": 0.5, "half memory": 0.6, "half memory + disk": 0.3}
SECONDS |= {"memory": 0.02, "memory + disk": 0.01}

RUN = SimpleNamespace(
    quick=lambda quick, default, full=None: default,
    section=print,
    say=print,
    table=lambda header, rows: None,
)


def timed(later_s):
    later = [{"seconds": s, "predicted_s": 0.9 * s} for s in (later_s, later_s, 3 * later_s)]
    return [{"seconds": 2.0, "predicted_s": 2.0}, *later]


@pytest.fixture
def rows():
    first_s = [1.9, 2.0, 2.3]
    return [
        {"store": STORE, "name": n, "epochs": timed(s), "first_s": first_s}
        for n, s in SECONDS.items()
    ]


class Bench(epochs.CacheBench):
    """Notes what it is asked to measure."""

    def epochs(self, store, setting, count, cost):
        self.load.append(setting)
        return timed(0.7)


def swept(compared):
    place, asked = SimpleNamespace(data=SimpleNamespace(size=100)), []
    return Bench(RUN, place, asked, None).sweep(STORE, {}, compared), asked


def test_what_the_table_has_measured_is_not_measured_again(rows):
    found, asked = swept(rows)
    assert sorted({share for share, _ in asked}) == [0.25, 0.75, 0.9]
    assert len(asked) == len(set(asked)) == 6
    by_share = {row["share"]: row for row in found}
    for name, (share, disk) in epochs.SETTINGS.items():
        later = by_share[share]["disk" if disk else "store"]
        assert later["seconds"] == [SECONDS[name], SECONDS[name], 3 * SECONDS[name]], name


def test_of_another_store_nothing_is_used(rows):
    _, asked = swept([row | {"store": "another"} for row in rows])
    assert len(asked) == 12


def test_claims_and_rows_take_the_median_of_the_later_epochs(rows):
    result = {"rows": rows}
    assert (
        claims.later_s(result, "half memory") == 0.6
        and claims.first(result, "disk")["median_s"] == 2.0
    )
    rows = [number(row.measured) for row in claims.rows(result)]
    assert rows == [2.0, 1.0, 0.6, 0.3, 0.02]


def test_the_left_panel_names_the_gains_of_the_right_one(rows):
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    figure, (left, right) = plt.subplots(1, 2)
    costs = {STORE: {"store": 1.0, "disk": 0.5, "memory": 0.01}}
    result = {"rows": rows, "sweep": swept(rows)[0], "costs": costs}
    picture.draw_epochs(left, result, STORE)
    picture.draw_share(right, result, STORE)
    named = [text.get_text() for text in left.texts]
    assert named == ["2.0 x", "1.7 x", "3.3 x", "50 x", "100 x"]
    assert "1.7" in [text.get_text() for text in right.texts]
    plt.close(figure)


def test_first_epochs_are_measured_more_than_once():
    """Each with an empty cache; the later ones come from the first cache."""
    asked = []

    class Filled(epochs.CacheBench):
        def epochs(self, store, setting, count, cost):
            asked.append(count)
            one = {"seconds": float(len(asked)), "hits": {}, "predicted_s": 1.0}
            return count * [one]

    place = SimpleNamespace(data=SimpleNamespace(size=100))
    (row, *_) = Filled(RUN, place, None, None).compare(STORE, {})
    assert row["first_s"] == [1.0, 2.0, 3.0] and asked[:3] == [3, 1, 1]
    assert len(row["epochs"]) == 3


def test_timings_of_each_epoch_over_trainings():
    run = SimpleNamespace(slowest=sorted)
    one, other = [{"seconds": 2.0}, {"seconds": 5.0}], [{"seconds": 1.0}, {"seconds": 4.0}]
    found = training.slowest(run, [one, other])
    assert found == [{"seconds": [1.0, 2.0]}, {"seconds": [4.0, 5.0]}]


def test_the_first_epoch_is_judged_by_the_cache_that_fills_longest():
    """One cache that takes 1.2 times as long to fill is enough to lose the claim."""
    result, judged = gains.figure("14_data_cache"), claims.CLAIMS[0]
    assert decide(judged, result).verdict == HOLDS
    plain, *cached = result["rows"][:6]
    cached[1]["first_s"] = [1.2 * seconds for seconds in plain["first_s"]]
    assert decide(judged, result).verdict == FAILS
    cached[1]["first_s"] = [0.9 * seconds for seconds in plain["first_s"]]
    assert decide(judged, result).verdict == FAILS  # were some of them hits?


def test_predictions_miss_by_a_factor_either_way():
    result, judged = gains.figure("14_data_cache"), claims.CLAIMS[5]
    assert decide(judged, result).verdict == HOLDS
    epoch = result["rows"][0]["epochs"][1]
    for times in (1.7, 1 / 1.7):
        epoch["predicted_s"] = epoch["seconds"] * times
        assert decide(judged, result).verdict == FAILS
