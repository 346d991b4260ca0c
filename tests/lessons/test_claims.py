"""Claims: what decides them, and that those of the committed figures hold as their text says."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from docs.tools import gains
from kit import claims
from kit.claims import FAILS, HOLDS, NOISE, NOT_MEASURED, Claim

ROOT = Path(__file__).resolve().parents[2]
LESSONS = sorted((ROOT / "lessons").glob("[0-9][0-9]_*.py"))


def timing(low, median, high):
    return {"low_s": low, "median_s": median, "high_s": high}


@pytest.mark.parametrize(
    "compared, verdict",
    [
        ((1, "<", 2), HOLDS),
        ((2, "<", 1), FAILS),
        ((2, ">", 1), HOLDS),
        ((1, "<", 2, 0.6), HOLDS),
        ((1, "<", 2, 0.4), FAILS),
        ((timing(1, 2, 3), "<", timing(4, 5, 6)), HOLDS),
        ((timing(1, 2, 4), "<", timing(4, 5, 6)), NOISE),
        ((timing(4, 5, 6), "<", timing(1, 2, 4)), NOISE),
        ((timing(4, 5, 6), "<", timing(1, 2, 3)), FAILS),
        ((timing(-1, 1, 3), ">", 0), NOISE),
        ((timing(1, 2, 3), ">", 0), HOLDS),
        ((1, "<", 1), FAILS),
        (None, NOT_MEASURED),
    ],
)
def test_decided_by_the_numbers(compared, verdict):
    claim = Claim("a is below b", lambda result: compared, "the weather")
    decided = claims.decide(claim, {})
    assert decided.verdict == verdict
    assert ("the weather" in str(decided)) == (verdict == FAILS)


def test_the_ratio_is_of_the_medians():
    claim = Claim("", lambda r: (timing(1, 2, 3), "<", timing(7, 8, 9)), "")
    decided = claims.decide(claim, {})
    assert decided.ratio == 4 and decided.how_far() == "holds (by 4.00 x)"


def test_with_a_factor_the_ratio_is_the_first_over_the_second():
    claim = Claim(
        "at most half as long", lambda r: (timing(1, 2, 3), "<", timing(7, 8, 9), 0.5), ""
    )
    assert claims.decide(claim, {}).how_far() == "holds (0.250 times, wanted below 0.5)"


@pytest.fixture(scope="module", params=LESSONS, ids=lambda file: file.stem)
def claimed(request):
    """(claims of a lesson, its committed figure)"""
    lesson = request.param
    path = ROOT / "figures" / f"{lesson.stem}.json"
    found = gains.reveal_of(lesson).claims
    assert found, "a lesson without claims"
    return found, json.loads(path.read_text())


def test_claims_hold_on_the_committed_figure(claimed):
    """A tie is a tie: it may come out as noise on one machine and hold on another."""
    found, result = claimed
    for claim in found:
        decided = claims.decide(claim, result)
        wanted = {NOT_MEASURED if claim.here else claim.expected}
        wanted |= {HOLDS} if claim.expected in (NOISE, NOT_MEASURED) else set()
        assert decided.verdict in wanted, str(decided)


def test_verdicts_in_the_json_are_those_of_its_numbers(claimed):
    found, result = claimed
    wanted = [(v.text, v.verdict) for v in claims.verdicts(found, result)]
    assert [(v["text"], v["verdict"]) for v in result["verdicts"]] == wanted


def test_a_reversed_claim_is_noticed(claimed):
    """The test above can fail: with its relation reversed, a claim that holds does not."""
    found, result = claimed
    for claim in found:
        if claim.expected == HOLDS and not claim.here:
            reversed_ = claims.decide(claim, result, reverse=True)
            assert reversed_.verdict != HOLDS, claim.text


def test_a_claim_fails_without_its_control(claimed):
    """A claim with a cause, or with two bounds, does not hold where the second comparison fails."""
    found, result = claimed
    for claim in found:
        if claim.control is not None and claim.expected == HOLDS and not claim.here:
            turned = claims.compared(claim, claim.control, result, reverse=True)
            assert turned.verdict in (FAILS, NOISE, NOT_MEASURED), claim.text
            if turned.verdict == FAILS:
                left, relation, *rest = (
                    claim.control(result) if callable(claim.control) else claim.control
                )
                without = replace(claim, control=(left, claims.REVERSED[relation], *rest))
                assert claims.decide(without, result).verdict == FAILS, claim.text


def test_a_busy_machine_says_what_was_not_measured():
    """Not judged is what was measured there; what it left out is no matter of its load."""
    found = [Claim("a", (1, "<", 2), ""), Claim("b", (("b",), "<", 2), "")]
    decided = claims.verdicts(found, {"load": {"busy": True, "said": "busy"}})
    assert [each.verdict for each in decided] == [claims.NOT_JUDGED, NOT_MEASURED]


def test_a_control_within_noise_decides_nothing():
    """The comparison's factor would read as a verdict, so only what is undecided is said."""
    claim = Claim("a is below b because of c.", (1, "<", 2), "the weather")
    tie = timing(1, 2, 4), "<", timing(3, 5, 6)
    decided = claims.decide(replace(claim, control=tie), {})
    assert str(decided) == (
        "within noise: a is below b because of c. "
        "The comparison holds, its control is within noise."
    )


def of_figure(stem: str, start: str):
    """(the claim that starts like this, the figure's result)"""
    (lesson,) = [lesson for lesson in LESSONS if lesson.stem.startswith(stem)]
    found = [each for each in gains.reveal_of(lesson).claims if each.text.startswith(start)]
    return found[0], json.loads((ROOT / "figures" / f"{lesson.stem}.json").read_text())


def test_a_busy_core_is_no_copy_of_weights():
    """Lesson 02 where everything is ten times off: convolutions, which copy nothing, too."""
    for start in ("Every fully connected", "Normalisation and pooling"):
        claim, result = of_figure("02", start)
        for row in result["layers"]["rows"]:
            row["seconds"] = [10 * predicted_s for predicted_s in row["predicted_s"]]
        decided = claims.decide(claim, result)
        assert decided.verdict == FAILS and "the control" in str(decided), str(decided)


def test_overlap_that_loses_does_not_change_nothing():
    """Lesson 04 where overlap makes one call 35 % longer, and eager calls, too."""
    for start in ("With one call a step", "With a call per gradient, overlap hides"):
        claim, result = of_figure("04", start)
        for row in result["steps"]["rows"]:
            for key in ("median_s", "low_s", "high_s"):
                row["overlapped"][key] = 1.35 * row["sequential"][key]
        assert claims.decide(claim, result).verdict == FAILS
        lesson = gains.reveal_of(next(each for each in LESSONS if each.stem.startswith("04")))
        (share,) = (row for row in lesson.rows(result) if "hidden" in row.what)
        assert share.measured < 0 < share.predicted


def test_gains_in_the_texts_are_those_of_the_figures():
    readme, results = gains.README.read_text(), gains.RESULTS.read_text()
    assert all(mark in readme for mark in (*gains.DEMO, *gains.HELD))
    assert all(mark in results for mark in (*gains.MARKS, *gains.HEADLINES))
    assert gains.with_readme(readme) == readme, "next: python docs/tools/gains.py"
    assert gains.with_results(results) == results, "next: python docs/tools/gains.py"


def test_the_appendix_on_dilation_is_the_one_that_was_measured():
    text = (gains.ROOT / "lessons" / "teaching" / "07.md").read_text()
    assert all(mark in text for mark in gains.DILATION)
    assert gains.with_dilation(text) == text, "next: python docs/tools/gains.py"


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda file: file.stem)
def test_the_teachers_page_expects_what_the_figure_says(lesson):
    page = ROOT / "lessons" / "teaching" / f"{lesson.stem[:2]}.md"
    text = page.read_text()
    assert all(mark in text for mark in gains.EXPECTED)
    assert gains.with_expected(text, lesson) == text, "next: python docs/tools/gains.py"
