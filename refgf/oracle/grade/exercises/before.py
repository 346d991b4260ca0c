"""Exercises of lessons that are not in spec/ yet: as they were made before."""

from refgf.oracle.spec import exercise
from refgf.oracle.spec.exercise import Part  # noqa: F401
from refgf.oracle.spec.exercise import TypicalMistake as Made


def Mistake(sentence, function, loses):  # noqa: N802
    return Made(sentence, function)


def Exercise(name, reference, parts, mistakes=(), relative=0.0):  # noqa: N802
    return exercise.Exercise("old", reference, name, relative, list(parts), list(mistakes))


def Collective(name, reference, sends, shapes, scores, mistakes=()):  # noqa: N802
    return exercise.Collective("old", name, reference, sends, shapes, scores, list(mistakes))
