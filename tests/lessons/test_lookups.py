"""Look-ups in results, comparisons that are data, variants in turn, and an oracle's message."""

from types import SimpleNamespace

import numpy as np
import pytest

import kit
from kit import claims, experiment, oracle, rows
from kit.claims import FAILS, HOLDS, NOT_MEASURED, Claim
from refgf.machine import threads


def timing(low_s: float, median_s: float, high_s: float) -> dict:
    return {"median_s": median_s, "low_s": low_s, "high_s": high_s}


RESULT = {
    "steps": {"rows": [{"theta": 0, "plain": 2.0}, {"theta": "inf", "plain": None}]},
    "sends": [],
    "learning": None,
}


@pytest.mark.parametrize(
    "path, wanted",
    [
        (("steps", "rows", 0, "plain"), 2.0),
        (("steps", "rows", -1, "theta"), "inf"),
        (("steps", "rows", {"theta": 0.0}, "plain"), 2.0),
        (("steps", "rows", {"theta": float("inf")}, "plain"), None),
        (("steps", "rows", {"theta": 16}, "plain"), None),
        (("steps", "rows", 2, "plain"), None),
        (("sends", -1, "timing"), None),
        (("learning", "lost", "norm"), None),
        (("times", "rows", {"theta": 0}, "plain"), None),
        ((), RESULT),
    ],
)
def test_the_value_at_the_end_of_a_path(path, wanted):
    assert rows.at(RESULT, *path) == wanted


@pytest.mark.parametrize(
    "compare, verdict",
    [
        ((("steps", "rows", 0, "plain"), ">", 1.5), HOLDS),
        ((("steps", "rows", 0, "plain"), "<", lambda r: len(r), 0.5), FAILS),
        ((("steps", "rows", 1, "plain"), "<", 1.0), NOT_MEASURED),
        ((1.0, "<", ("learning", "lost")), NOT_MEASURED),
        (lambda r: (("steps", "rows", 0, "plain"), ">", 1.0), HOLDS),
        (lambda r: None, NOT_MEASURED),
    ],
)
def test_a_comparison_is_data(compare, verdict):
    assert claims.decide(Claim("it holds", compare, "the weather"), RESULT).verdict == verdict


def test_best_and_what_is_level_with_it():
    found = [{"step": timing(*t)} for t in ((5, 6, 7), (2.5, 3.5, 4), (1, 2, 3))] + [{"step": None}]
    assert rows.best(found, "step") is found[2] and rows.level(found, "step") == found[1:3]
    assert rows.best(found[3:], "step") is None and rows.level([], "step") == []


def test_spreads():
    assert rows.summary(iter([3.0, 1.0, 2.0])) == timing(1.0, 2.0, 3.0)
    assert rows.scaled(timing(1, 2, 3), 2) == timing(2, 4, 6)
    assert rows.ratio(timing(2, 4, 6), timing(1, 2, 4)) == timing(0.5, 2, 6)
    assert rows.factor_apart([(1, 2), (3, 1)]) == 3 and rows.factor_apart([]) is None
    assert kit.Timing(5, 4, 7, 3) - kit.Timing(2, 1, 3, 9) == kit.Timing(3, 1, 6, 3)


def test_variants_in_turn_and_what_they_send():
    calls = []

    def body(comm):
        run = kit.Run(comm, SimpleNamespace(link=None, threads=2, quick=True, full=False))

        def send(nbytes: int) -> None:
            calls.append((run.rank, nbytes))
            x, peer = np.zeros((2, nbytes), np.uint8), 1 - run.rank
            run.comm.Sendrecv(x[0], peer, 0, x[1], peer, 0)

        steps = {nbytes: lambda nbytes=nbytes: send(nbytes) for nbytes in (3, 5)}
        return experiment.in_turn(run, steps, rounds=2, warmup=1)

    found, _ = threads.run(2, body)
    assert [nbytes for rank, nbytes in calls if rank == 0] == [3, 5] * 3
    assert {name: (each["messages"], each["bytes"]) for name, each in found.items()} == {
        3: (1, 3),
        5: (1, 5),
    }
    assert found[3]["timing"].repeats == 2


@pytest.mark.parametrize("share, note", [(None, ""), (0.25, ""), (0.26, "processor")])
def test_what_is_the_processors(share, note):
    said = []
    assert experiment.processor(0.0, share) == note
    assert experiment.star(share) == " *" * bool(note)
    run = SimpleNamespace(say=said.append)
    experiment.say_star(run, [{"own_share": share}], "this step is the processor's own work")
    assert said == ["* more than 25% of this step is the processor's own work"] * bool(note)


@pytest.mark.parametrize(
    "got, message",
    [
        ([1.0, -0.0], "ring, element 1 of 2: got -0.0; wanted the definition's 0.0"),
        ([1.0], "ring: got 1 elements of float32; wanted 2 elements of float32, the definition's"),
    ],
)
def test_an_oracle_names_the_first_element_that_differs(got, message):
    wanted = np.array([1.0, 0.0], np.float32)
    oracle.require_bits("ring", wanted.copy(), wanted)
    with pytest.raises(AssertionError) as error:
        oracle.require_bits("ring", np.array(got, np.float32), wanted)
    assert str(error.value) == message
