"""Folds of the lessons' images, and the paired comparison of trainings on them."""

from argparse import Namespace

import numpy as np
import pytest

from kit import images, trials
from refgf.machine.digits import digits
from tests.support.datasets import numbered

TRAIN, HELD_OUT = numbered([0] * 11 + [1] * 9, 2), numbered([1] * 4 + [0] * 3, 2, 20)
GIVEN = Namespace(options=Namespace(data="somewhere", image_size=1))


def contents(part):
    """{image: label}"""
    return dict(zip(part.fetch(np.arange(part.size)).ravel().tolist(), part.labels.tolist()))


def test_folds_of_given_images_cover_both_parts_once():
    everything, seen = contents(TRAIN) | contents(HELD_OUT), {}
    for number in range(5):
        train, held_out = images.fold(GIVEN, TRAIN, HELD_OUT, number)
        assert (
            contents(train) | contents(held_out) == everything and train.size + held_out.size == 27
        )
        assert [np.sum(held_out.labels == label) for label in (0, 1)] in ([3, 3], [3, 2], [2, 2])
        assert not set(contents(held_out)) & set(seen)
        seen |= contents(held_out)
    assert seen == everything


def test_without_a_fold_nothing_changes_and_digits_have_their_own_folds():
    assert images.fold(GIVEN, TRAIN, HELD_OUT, None) == (TRAIN, HELD_OUT)
    run = Namespace(options=Namespace(data=None, image_size=8))
    for got, wanted in zip(images.fold(run, None, None, 3), digits(8, 3)):
        assert (got.labels == wanted.labels).all() and got.note == wanted.note


def ended(*accuracies):
    return [
        [{"accuracy": 0.1, "loss": 9.0}, {"accuracy": accuracy, "loss": 1.0}]
        for accuracy in accuracies
    ]


def test_differences_are_paired_and_in_points():
    """By hand: differences 1, 2, 3 points, mean 2, deviation 1; t (2 degrees of freedom) 4.3027."""
    some, others = ended(0.51, 0.92, 0.33), ended(0.50, 0.90, 0.30)
    mean, half = trials.difference(some, others)
    assert mean == pytest.approx(2) and half == pytest.approx(4.3027 / 3**0.5, rel=1e-4)
    assert trials.interval(some, others) == "+2.00 points, 95 % interval -0.48 to +4.48"


def test_pairs_that_do_not_match_are_refused():
    with pytest.raises(ValueError):
        trials.difference(ended(0.5, 0.6, 0.7), ended(0.5, 0.6))


def test_the_warmup_is_shorter_than_the_run():
    def of(epochs, asked=None):
        return trials.warmup_of(Namespace(options=Namespace(warmup=asked)), epochs)

    assert [of(epochs) for epochs in (1, 2, 4, 12)] == [(), (100,), (100, 25), (100, 100, 50, 25)]
    assert of(2, [50, 20, 10]) == (50, 20, 10)  # Density refuses a warm-up that is too long
