"""Numbers of two figures that look as if they could not both hold: the caption says why."""

import pytest

from docs.tools import gains
from kit import rows
from kit.claims import FAILS, HOLDS, NOISE, NOT_MEASURED, decide
from lab.csc import claims as csc_claims
from lab.csc import picture as csc
from lab.large_batch import claims as large_batch_claims
from lab.large_batch import picture as large_batch
from lab.lazy import picture as lazy
from lab.stack import picture as stack
from lab.topk import picture as topk


def row(calls: int, low_s: float, median_s: float, high_s: float) -> dict:
    timing = {"low_s": low_s, "median_s": median_s, "high_s": high_s}
    return {"calls": calls, "plain": None, "overlapped": timing}


def test_steps_within_noise_of_the_fastest_are_a_tie():
    found = [row(161, 5, 6, 7), row(18, 2.5, 3.5, 4), row(6, 1, 2, 3), row(1, 3.1, 4, 5)]
    level = rows.level(found, "overlapped")
    assert [each["calls"] for each in level] == [18, 6]
    assert lazy.fastest_in_words([18, 6]) == "fastest, a tie: 6 and 18 calls"
    assert lazy.fastest_in_words([2, 18, 6]) == "fastest, a tie: 2, 6 and 18 calls"
    assert lazy.fastest_in_words([1]) == "fastest: 1 call a step"


@pytest.mark.parametrize("gap, said", [(0.1, "more than noise"), (0.0, "within noise")])
def test_the_first_epoch_sends_all_in_both_trainings(gap, said):
    runs = {
        "dense": [[{"accuracy": a}, {"accuracy": 0}] for a in (0.8, 0.7, 0.9)],
        "CSC": [[{"accuracy": a - gap}, {"accuracy": 0}] for a in (0.82, 0.69, 0.9)],
    }
    assert said in stack.first_epoch(runs)
    assert stack.first_epoch({name: rows[:1] for name, rows in runs.items()}) == ""


def test_the_training_loss_says_that_csc_has_learned_less():
    forms = gains.figure("06_csc")["study"]["forms"]
    assert "(none minus dense: +0.12)" in csc.loss_in_words(forms)
    level = {"median_s": 0.0, "low_s": -1.0, "high_s": 1.0}
    assert csc.loss_in_words({"none": {"accuracy": level, "loss": level}}) == ""
    assert csc.loss_in_words({"none": {"accuracy": None, "loss": None}}) == ""


@pytest.mark.parametrize("predicted_s, said", [(0.6, "100%, 60% of the measured"), (0.95, "")])
def test_a_prediction_that_is_much_too_short_is_said(predicted_s, said):
    times = [{"predicted_s": s, "timing": {"median_s": 1.0}} for s in (1.0, predicted_s)]
    assert (said in (text := csc.too_short(times))) and bool(text) == bool(said)


@pytest.mark.parametrize("low_s, said", [(1.2, "repeat of top-k takes 1.20 times"), (1.05, "")])
def test_messages_far_beyond_their_prediction_are_named(low_s, said):
    rows = [
        {"name": name, "timing": {"low_s": low}, "predicted_s": 1.0}
        for name, low in (("dense ring", 1.0), ("top-k\n1 MB", low_s))
    ]
    assert (said in (text := topk.beyond(rows))) and bool(text) == bool(said)


def test_what_lacks_at_a_large_batch_is_steps():
    """The rows of the same steps are the second batch's, and the largest's after more epochs."""
    rows = gains.figure("11_large_batch")["trained"]["rows"]
    result = {"trained": {"rows": rows, "epochs": 5}}
    sgd = [row for row in rows if row["optimizer"] == "SGD" and not row["warm"]]
    steps = [(row["batch"], row["steps"]) for row in large_batch.same_steps(sgd, result)]
    assert (steps[0], steps[-1]) == ((128, 60), (512, 60)) and {n for _, n in steps} == {60}
    epochs = [(row["batch"], row["epochs"]) for row in large_batch.same_epochs(sgd, result)]
    assert epochs == [(64, 5), (128, 5), (256, 5), (512, 5)]


def test_history_is_compared_with_none_in_pairs():
    runs = {"history": [1.0, 61.0], "none": [3.0, 63.0]}
    forms = {form: {"runs": [{"accuracy": a} for a in got]} for form, got in runs.items()}
    found = csc_claims.history_minus_none({"study": {"forms": forms}})
    assert found == {"median_s": -2.0, "low_s": -2.0, "high_s": -2.0}
    one = {form: {"runs": [{"accuracy": 1.0}]} for form in runs}
    assert csc_claims.history_minus_none({"study": {"forms": one}}) is None


def test_chunks_that_wait_are_counted_in_sparse_steps():
    lists = [[], [0], [0, 1], [2]]  # the first step is dense
    chosen = {"chosen": {"lists": lists, "norms": [1.0] * 4}}
    assert csc_claims.not_sent(chosen, 2) == (0.5, 2)
    assert csc_claims.not_sent(chosen) == (0.25, 3)
    assert csc_claims.not_sent({"chosen": {"lists": [[]], "norms": [1.0]}}) is None


def large_batch_result(rates: list[float], gains: list[list[float]]) -> dict:
    rows = [
        {"optimizer": "SGD", "warm": False, "batch": batch, "epochs": 5, "rate": rate}
        for batch, rate in zip((64, 512), rates, strict=True)
    ]
    pairs = [
        {"name": "LARS", "batch": batch, "epochs": 5, "values": values}
        for batch, values in zip((64, 512), gains, strict=True)
    ]
    return {"trained": {"rows": rows, "gains": pairs, "epochs": 5}}


@pytest.mark.parametrize("last, verdict", [(0.02, HOLDS), (0.16, FAILS)])
def test_a_rate_that_stays_is_no_linear_scaling(last, verdict):
    result = large_batch_result([0.02, last], [[0.0], [0.0]])
    (claim,) = [claim for claim in large_batch_claims.CLAIMS if "Linear scaling" in claim.text]
    assert large_batch_claims.scaled(result, "SGD") == 0.16
    assert decide(claim, result).verdict == verdict


def test_what_lars_gains_more_is_paired():
    """Each run's own difference is 5, though the runs differ by 60 points."""
    result = large_batch_result([1, 1], [[0.0, 60.0], [5.0, 65.0]])
    assert large_batch_claims.gains_more(result) == {"median_s": 5.0, "low_s": 5.0, "high_s": 5.0}


@pytest.mark.parametrize("place", [topk.CORE, "a GPU"])
def test_choosing_as_a_number_of_reads(place):
    times = {"MSTopK": {"median_s": 0.03}, "exact selection": {"median_s": 0.02}}
    text = topk.reads_in_words({"n": 1000, "bytes_per_s": 4e6, "times": times}, place)
    assert f"{place} reads all 1,000 gradients in order 30 times in the time of MSTopK" in text
    assert "20 times in that of exact" in text


@pytest.mark.parametrize(
    "high_s, dense_low_s, verdict", [(1.1, 9.0, HOLDS), (4.0, 9.0, NOISE), (1.1, 0.0, NOT_MEASURED)]
)
def test_what_remains_of_an_exchange_has_the_spread_of_both(high_s, dense_low_s, verdict):
    """Own work shrinks to 0.3. With the network 0.1 remains, in one repeat up to 0.44."""
    sparse = {"low_s": 0.9, "median_s": 1.0, "high_s": high_s}
    dense = {"low_s": dense_low_s, "median_s": 10.0, "high_s": 10.0}
    own = [dict.fromkeys(rows.SPREAD, own_s) for own_s in (3.0, 10.0)]
    steps = [
        {"density": 10, "exchange": sparse, "own": own[0]},
        {"density": None, "exchange": dense, "own": own[1]},
    ]
    (claim,) = [each for each in csc_claims.CLAIMS if "Without a network" in each.text]
    assert decide(claim, {"times": {"rows": steps}}).verdict == verdict
