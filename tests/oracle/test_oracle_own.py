"""The project's own implementation against the definitions, on threads and under MPI."""

import pytest

from refgf.engine.residual import FusedResidual
from refgf.exchange.momentum_correction import Residual
from refgf.oracle.judge.profiles import judge
from refgf.oracle.spec.statement import FUNCTIONS
from tests.support import own
from tests.support.conforms import conforms, require_on_ranks
from tests.support.golden import CASES, golden_case
from tests.support.project import NOT_IMPLEMENTED, WITH_RANKS, Project

IMPLEMENTED = [name for name in FUNCTIONS if name not in NOT_IMPLEMENTED]
STEPS = ("csc_run", "sparse_warmup_run", "scaled_run", "scaled_lars_run")
STACKS = [  # next to the default, which has neither
    pytest.param({"residual": residual, "overlap": True}, id=residual.__name__)
    for residual in (Residual, FusedResidual)
]


def test_nothing_is_left_out():
    alone = [name for name in IMPLEMENTED if name not in WITH_RANKS]
    assert [name for name in alone if not callable(getattr(own, name, None))] == []
    assert len([case for case in CASES if Project().provides(case)]) > 600


@pytest.mark.parametrize("function", IMPLEMENTED)
def test_the_project_conforms(function):
    conforms(Project(), function)


@pytest.mark.parametrize("settings", STACKS)
@pytest.mark.parametrize("function", STEPS)
def test_the_engine_s_residual_and_the_communication_thread_conform(function, settings):
    conforms(Project(**settings), function, drawn=8)


@pytest.mark.long
@pytest.mark.parametrize("function", IMPLEMENTED)
def test_many_cases(function):
    conforms(Project(), function, seeds=range(1, 4), drawn=60)


def test_on_ranks(on_ranks):
    """Under MPI with as many ranks as there are."""
    on_ranks(require_on_ranks, Project(), " ".join(WITH_RANKS), sizes=(3,))


@pytest.mark.parametrize("settings", STACKS)
def test_stacks_on_ranks(on_ranks, settings):
    on_ranks(require_on_ranks, Project(**settings), "csc_run scaled_run", sizes=(2,))


def test_a_wrong_implementation_would_be_noticed(monkeypatch):
    """Rank order in place of the ring."""
    monkeypatch.setitem(own.ALGORITHMS, "ring", own.direct.allreduce)
    case = golden_case("ring-p5-n13-float32-sensitive")
    assert judge(case, Project().run(case).outputs) is not None
    with pytest.raises(AssertionError, match="ring-p5-n13-float32-sensitive|ring"):
        conforms(Project(), "ring_allreduce")
