"""The project's own implementation against every golden case, on threads and under MPI."""

import numpy as np
import pytest

from refgf.machine import threads
from refgf.oracle.judge.implementations import PythonModule
from refgf.oracle.judge.profiles import judge
from refgf.oracle.judge.verify import verify_case
from tests.support import own
from tests.support.golden import CASES
from tests.support.own import joined, ranks_of, supported

WITH_RANKS = (
    "ring_allreduce",
    "direct_allreduce",
    "lazy_allreduce",
    "merged_allreduce",
    "scaled_allreduce",
    "scaled_run",
    "scaled_lars_run",
    "csc_run",
    "sparse_warmup_run",
    "daso_run",
    "heat_run",
    *own.own_peers.SUMS,
    *own.own_peers.RUNS,
)
# The definitions' own tools, which nobody implements; C14 is counted in tests/exchange
NOT_IMPLEMENTED = {
    "agree",
    "exact_sum",
    "summation_bound",
    "on_wire",
    "bfloat16_bits",
    "bytes_per_gradient",
    "decayed_gradient",
    "csc_payload_bytes",
    "alexnet_rounding",
    "momentum_rounding",
    "heat_traffic",  # the project leaves one broadcast out: tests/papers/daso/test_heat.py
}


ALONE = [case for case in CASES if case.function not in WITH_RANKS and supported(case)]
TOGETHER = [case for case in CASES if case.function in WITH_RANKS and supported(case)]


def test_nothing_is_left_out():
    functions = {case.function for case in ALONE}
    provided = {name for name in functions if callable(getattr(own, name, None))}
    assert functions - provided == NOT_IMPLEMENTED & functions
    assert len(TOGETHER) > 100


@pytest.mark.parametrize(
    "case", [c for c in ALONE if c.function not in NOT_IMPLEMENTED], ids=lambda case: case.name
)
def test_without_ranks(case):
    verdict = verify_case(case, PythonModule(own))
    assert verdict.status == "pass", str(verdict.failure)


@pytest.mark.parametrize("case", TOGETHER, ids=lambda case: case.name)
def test_on_threads(case):
    with np.errstate(over="ignore", invalid="ignore"):
        outputs = joined(threads.run(ranks_of(case), own.on_rank, case))
    assert judge(case, outputs) is None, str(judge(case, outputs))


def all_cases_of(comm):
    """On one rank: what is wrong in any case with as many ranks as there are."""
    wrong = []
    for case in TOGETHER:
        if ranks_of(case) == comm.Get_size():
            with np.errstate(over="ignore", invalid="ignore"):
                outputs = joined(comm.allgather(own.on_rank(comm, case)))
            failure = judge(case, outputs)
            wrong += [f"{case.name}: {failure}"] if failure else []
    return wrong


def test_on_ranks(on_ranks):
    for per_rank in on_ranks(all_cases_of, sizes=(3,)):
        assert all(wrong == [] for wrong in per_rank), per_rank


def test_a_wrong_implementation_would_be_noticed(monkeypatch):
    """Rank order in place of the ring."""
    monkeypatch.setitem(own.ALGORITHMS, "ring", own.direct.allreduce)
    case = next(case for case in TOGETHER if case.name == "ring-p5-n13-float32-sensitive")
    assert judge(case, joined(threads.run(5, own.on_rank, case))) is not None
