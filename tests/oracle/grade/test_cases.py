"""The cases of all exercises: hidden ones are new, and every argument counts."""

import json
import runpy
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from refgf.oracle.grade import marking
from refgf.oracle.grade.difference import difference, plain
from refgf.oracle.grade.encoding import encoded
from refgf.oracle.spec.exercise import PUBLIC_SEED, Exercise, returned

ANSWERS = Path(__file__).parents[3] / "lessons" / "teaching" / "answers"
EXERCISES = [
    pytest.param(exercise, id=f"{lesson}-{exercise.name}")
    for lesson in marking.lessons()
    for exercise in marking.exercises_of(lesson)
    if isinstance(exercise, Exercise)
]


def cases(part, seed):
    return [tuple(case) for case in part.cases(marking.source(seed, part))]


def key(value):
    return json.dumps(encoded(list(value)), sort_keys=True)


@cache
def answers(lesson):
    return runpy.run_path(ANSWERS / f"{lesson}.py")


@pytest.mark.parametrize("exercise", EXERCISES)
def test_right_answers_are_right_for_any_seed(exercise):
    """No seed draws a result whose rounding decides: other right code would lose its marks."""
    answer = answers(exercise.number.partition(".")[0])[exercise.name]
    for part, seed in product(exercise.parts, range(60)):
        for case in cases(part, seed):
            found, wanted = plain(returned(answer, case)), plain(exercise.wanted(case))
            assert not difference(found, wanted, exercise.relative), (part.what, seed)


# The first exercise of its lesson, which is given; a whole number, too small to draw many.
ONE_SMALL_NUMBER = {"groupings"}


@pytest.mark.parametrize("exercise", EXERCISES)
def test_a_table_of_the_public_results_gets_no_points(exercise):
    """Each part has a hidden case that is not public, whatever the teacher's seed is."""
    if exercise.name in ONE_SMALL_NUMBER:
        return
    for part, seed in product(exercise.parts, range(1, 6)):
        public = {key(case) for case in cases(part, PUBLIC_SEED)}
        assert {key(case) for case in cases(part, seed)} - public, (part.what, seed)


@pytest.mark.parametrize("exercise", EXERCISES)
def test_an_argument_that_is_not_read_loses_points(exercise):
    """A number hard-coded in the place of an argument gives a wrong result for a public case."""
    public = [case for part in exercise.parts for case in cases(part, PUBLIC_SEED)]
    for place in range(len(public[0])):
        values = {case[place] for case in public if isinstance(case[place], int | float)}
        for value in values:
            assert any(changes(exercise, case, place, value) for case in public), (place, value)


def changes(exercise, case, place, value):
    """Does another value of one argument change the result of a case?"""
    other = (*case[:place], value, *case[place + 1 :])
    try:
        found = plain(exercise.wanted(other))
    except (ArithmeticError, ValueError, IndexError):
        return True
    return bool(difference(found, plain(exercise.wanted(case)), exercise.relative))


def test_a_number_that_is_taken_is_refused():
    """An exercise that took another's place would take its marks away without a word."""
    with pytest.raises(ValueError, match="03.2: got sorted; .* lazy_calls has it"):
        Exercise("03.2", sorted)
    assert marking.exercises_of("03")[1].name == "lazy_calls"


def test_p_divides_the_bytes_of_a_ring_as_the_starter_says():
    """Else nbytes // p, which is right by that text, would lose marks."""
    (exercise,) = (e for e in marking.exercises_of("01") if e.name == "ring_seconds")
    drawn = [case for part in exercise.parts for seed in range(50) for case in cases(part, seed)]
    assert drawn and all(nbytes % p == 0 for nbytes, p, *_ in drawn)


# half is float16 itself, choose and top_k add nothing; lesson 02, before float16, has small numbers
# to check by hand
NOT_ASKED = {"half", "choose", "top_k", "convolution", "weight_gradient"}


@pytest.mark.parametrize("exercise", EXERCISES)
def test_sums_in_float16_lose_points(exercise):
    """Small whole numbers would hide it."""
    public = [case for part in exercise.parts for case in cases(part, PUBLIC_SEED)]
    if exercise.name in NOT_ASKED or not has_floats(public):
        return
    answer = answers(exercise.number.partition(".")[0])[exercise.name]
    right = [plain(exercise.wanted(case)) for case in public]
    found = [plain(returned(answer, halved(case))) for case in public]
    assert any(difference(like(*pair), pair[1], exercise.relative) for pair in zip(found, right))


def has_floats(value):
    """Has a value a float32 or float64 array?"""
    if isinstance(value, list | tuple):
        return any(map(has_floats, value))
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


def halved(value):
    """Arguments with float16 arrays."""
    if isinstance(value, list | tuple):
        return type(value)(map(halved, value))
    with np.errstate(over="ignore"):
        return value.astype(np.float16) if has_floats(value) else value


def like(value, wanted):
    """A result with the types of the wanted one."""
    if isinstance(value, list) and isinstance(wanted, list):
        return [like(*pair) for pair in zip(value, wanted, strict=True)]
    same = isinstance(value, np.ndarray) and isinstance(wanted, np.ndarray)
    return value.astype(wanted.dtype) if same else value
