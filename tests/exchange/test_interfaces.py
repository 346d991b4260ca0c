"""What stands in for an exchange, a grouping or an optimiser is called as the original is."""

import inspect

import pytest

from refgf.exchange.csc import CSC, TopChunks
from refgf.exchange.dense import DenseExchange
from refgf.exchange.interfaces import Exchange, Grouping, Optimizer
from refgf.exchange.lazy import EagerAllreduce, LazyAllreduce, Theta
from refgf.papers.jia.lars import LARS
from refgf.papers.mgwfbp.merged import Groups
from refgf.training.gradientflow import GradientFlow
from refgf.training.sgd import MomentumSGD, PlainSGD

OURS = {
    Exchange: (DenseExchange, CSC, LazyAllreduce, EagerAllreduce, TopChunks, GradientFlow),
    Grouping: (Theta, Groups),
    Optimizer: (MomentumSGD, PlainSGD, LARS),
}


def methods(kind):
    return [name for name, value in vars(kind).items() if inspect.isfunction(value)]


@pytest.mark.parametrize(
    ("kind", "ours"), [(kind, each) for kind, several in OURS.items() for each in several]
)
def test_ours_take_the_same_arguments(kind, ours):
    names = [name for name in methods(kind) if not name.startswith("_")]
    assert len(names) == 2
    for name in names:
        wanted = inspect.signature(getattr(kind, name)).parameters
        assert list(inspect.signature(getattr(ours, name)).parameters) == list(wanted)
