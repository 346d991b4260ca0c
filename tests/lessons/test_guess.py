"""A guess is held to the question's form, and told how far off it was."""

import json
from pathlib import Path

import pytest

from docs.tools import gains
from kit.guess import FAR, Guess

ROOT = Path(__file__).resolve().parents[2]
LESSONS = sorted((ROOT / "lessons").glob("[0-9][0-9]_*.py"))
TWO, BYTES, TIME = Guess("3 times and 2 times"), Guess("64 KiB"), Guess("0.1 ms")
RANKS = Guess("20 ranks")
WORD = Guess("overlap", ("ring", "mixed precision", "overlap", "CSC"))


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda file: file.stem)
def test_each_lesson_compares_its_own_example(lesson):
    """The example has its form, the answer holds what is compared, and the lesson shows both."""
    result = json.loads((ROOT / "figures" / f"{lesson.stem}.json").read_text())
    reveal = gains.reveal_of(lesson)
    guess, answer = reveal.guess, reveal.answer(result)
    assert not guess.refuse(guess.example) and guess.compared(guess.example, answer), answer
    right = guess.compared(answer.split(";")[0], answer)
    assert right == "right" or set(right.split(" ")) <= {"0%", "0", "points", "and", "off"}


@pytest.mark.parametrize(
    "form, guess, fits",
    [
        (RANKS, "33", True),
        (RANKS, "never", True),
        (TIME, "never", False),
        (TWO, "3 and 2", True),
        (TWO, "1.5 x, 1 x", True),
        (TWO, "80 %", False),
        (TWO, "3", False),
        (TWO, "no idea", False),
        (BYTES, "eager", True),
        (BYTES, "one call", True),
        (BYTES, "65536 bytes", True),
        (BYTES, "64 MB", True),
        (BYTES, "65536", False),  # of what?
        (BYTES, "64K", False),
        (BYTES, "64 KB", False),  # 1000 or 1024?
        (BYTES, "64 Mbit", False),
        (BYTES, "16 times", False),
        (TIME, "3 us", True),
        (TIME, "3 µs", True),
        (TIME, "2 minutes", False),
        (TIME, "3", False),  # 3 of what?
        (WORD, "Mixed-precision", True),
        (WORD, "the weather", False),
        (Guess("50 %"), "after 50 percent", True),
        (Guess("1000 times"), "1,000 times", True),
    ],
)
def test_its_form(form, guess, fits):
    said = form.refuse(guess)
    assert (said == "") == fits, said
    assert fits or (repr(guess) in said and form.example in said)


@pytest.mark.parametrize(
    "form, guess, answer, said",
    [
        (TWO, "4 and 2", "1.45 times with a call, 1.00 times with one", "2.8 x and 100% off"),
        (BYTES, "64 KiB", "theta = 16 MiB, 6 calls a step, for ResNet-50", "256 x off"),
        (BYTES, "64 MB", "theta = 64 MiB, 6 calls a step", "5% off"),
        (BYTES, "eager", "eager, for ResNet-50", "0% off"),
        (TIME, "0.5 ms", "250 us", "100% off"),
        (BYTES, "one call", "theta = 16 MiB", "infinitely off"),
        (Guess("70 %"), "70", "66.2 % after 15 steps", "3.8 points off"),
        (Guess("2 times"), "2", "nothing, because there is one rank", ""),
        (WORD, "overlap", "mixed precision, by 39.8 ms", "another one"),
        (WORD, "CSC", "CSC, by 39.8 ms", "right"),
        (WORD, "CSC", "none", ""),
    ],
)
def test_how_far_off(form, guess, answer, said):
    assert form.compared(guess, answer) == said


@pytest.mark.parametrize(
    "form, guess, answer, said",
    [
        (Guess("1000 times"), "65,000", "12 times", "5,417 x off"),
        (Guess("1000 times"), "24", "12 times", ""),  # a busy machine may do that
        (TWO, "30 and 2", "1.5 times, 1 times", "20 x off"),
        (BYTES, "one call", "theta = 16 MiB", "infinitely off"),
        (Guess("70 %"), "1", "66 % after 15 steps", ""),
        (WORD, "CSC", "overlap", ""),
    ],
)
def test_what_a_busy_machine_does_not_explain(form, guess, answer, said):
    assert form.compared(guess, answer, FAR) == said
    sentence = form.sentence(guess, answer, busy=True)
    assert sentence.endswith(f"; even so: {said}." if said else "not to be believed.")
    assert form.sentence(guess, answer, busy=False).startswith(" Your guess: ")
