"""The bundled digits: the same pixels as scikit-learn's, in disjoint folds."""

import builtins
import importlib.util

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refgf.machine.digits import digits, hold_out


def test_digits_are_scikit_learns():
    sklearn = pytest.importorskip("sklearn.datasets")
    pixels, labels = sklearn.load_digits(return_X_y=True)
    out = hold_out(labels, 1, 5)
    train, test = digits(image_size=8, fold=1, channels=1)
    for dataset, members in ((train, ~out), (test, out)):
        samples = dataset.fetch(np.arange(dataset.size))[..., 0]
        assert np.array_equal(np.rint(samples * (16 / 255)), pixels[members].reshape(-1, 8, 8))
        assert np.array_equal(dataset.labels, labels[members])
    assert "fold 1 of 5" in train.note and "1435 to train on" in train.note


def test_digits_folds_cover_every_image_once():
    pytest.importorskip("sklearn")
    parts = [digits(image_size=9, fold=fold) for fold in range(5)]
    assert all(train.size + test.size == 1797 for train, test in parts)
    assert sum(test.size for _, test in parts) == 1797
    # (folds, classes)
    shares = np.array([np.bincount(test.labels, minlength=10) for _, test in parts])
    assert np.all(shares.max(0) - shares.min(0) <= 1)
    images, _ = parts[0][0].load(np.arange(4))
    assert images.shape == (4, 9, 9, 3) and np.array_equal(images[..., 0], images[..., 2])


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(2, 6))
def test_folds_are_disjoint_and_complete(labels, folds):
    parts = [hold_out(np.array(labels), fold, folds) for fold in range(folds)]  # (folds, N)
    assert np.all(np.sum(parts, axis=0) == 1)


def test_digits_without_scikit_learn(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install .*\[lessons\]"):
        digits()


def test_digits_does_not_import_scikit_learn(monkeypatch):
    pytest.importorskip("sklearn")
    real = builtins.__import__

    def no_sklearn(name, *rest):
        assert not name.startswith("sklearn"), "1.5 s a rank"
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", no_sklearn)
    digits(image_size=8)


@pytest.mark.parametrize(
    "options", [dict(fold=5), dict(folds=1), dict(channels=2), dict(image_size=0)]
)
def test_digits_refuses(options):
    with pytest.raises(ValueError, match="digits: got .*wanted"):
        digits(**options)
