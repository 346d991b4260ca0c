"""The project's own code, as `verify` judges an implementation: ranks are threads."""

import numpy as np

from refgf.machine import threads
from refgf.oracle.judge.implementations import PythonModule, Result
from refgf.oracle.spec.case import Case
from tests.support import own
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
    "diloco_run",
    "zero_run",
    "powersgd_run",
    *own.own_peers.SUMS,
    *own.own_peers.RUNS,
)
# The definitions' own tools, which nobody implements; C14 is counted in tests/training
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
    "majority",  # lesson 17's: tests/lessons/ideas/test_idea_17.py
    "momentum_rounding",
    "heat_traffic",  # the project leaves one broadcast out: tests/papers/daso/test_heat.py
}
MOST_RANKS = 19  # of a golden case


class Project:
    """settings: of the stack in runs of whole steps, as residual=FusedResidual or overlap=True."""

    def __init__(self, **settings):
        self.settings, self.alone = settings, PythonModule(own)

    def provides(self, case: Case) -> bool:
        if case.function in NOT_IMPLEMENTED or not supported(case):
            return False
        if case.function in WITH_RANKS:
            return ranks_of(case) <= MOST_RANKS
        counted = case.function in ("topk_traffic", "hitopk_pairs_traffic")  # on threads
        return not counted or sum(map(len, case.arguments["nodes"])) <= MOST_RANKS

    def run(self, case: Case) -> Result:
        if case.function not in WITH_RANKS:
            return self.alone.run(case)
        with np.errstate(over="ignore", invalid="ignore"):
            rows = threads.run(ranks_of(case), self.on_rank, case)
        return Result(joined(rows))

    def on_rank(self, comm, case: Case) -> dict:
        """What one rank of any communicator ends up with."""
        return own.on_rank(comm, case, **self.settings)
