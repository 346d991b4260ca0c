"""Every mutant is killed by what it names, and where values kill it the report says what mistake has these bits."""

import numpy as np
import pytest
import seeds_comm
import seeds_exchange
import seeds_nn
from mutant import mutated

from refgf.oracle.cases import GOLDEN, load_folder
from refgf.oracle.implementations import PythonModule, Result
from refgf.oracle.trace import check_trace
from refgf.oracle.verify import verify

MUTANTS = [*seeds_comm.MUTANTS, *seeds_exchange.MUTANTS, *seeds_nn.MUTANTS]
CASES = load_folder(GOLDEN)
WITH_RANKS = {"comm": ("ring_allreduce", "direct_allreduce"), "exchange": ("lazy_allreduce", "merged_allreduce",
              "scaled_allreduce", "scaled_run",
              "scaled_lars_run", "csc_run"), "nn": (), "training": ()}  # fmt: skip
ALL_WITH_RANKS = sum(WITH_RANKS.values(), ())
SHAPES = [(3, 13), (5, 3), (4, 8)]  # (p, n) of traces


def judged_by_traces(own):
    """What the trace checks say of ring and direct."""
    told = []
    for name, algorithm in own.ALGORITHMS.items():
        for p, n in SHAPES:
            told += check_trace(own.traced(algorithm, p, n), p, n, name)
    return told


class Project:
    """The mutated project as an implementation: with ranks on threads."""

    def __init__(self, own, mutant):
        self.own, self.floor = own, mutant.module.split(".")[1]
        self.peers = mutant.module.split(".")[2] in ("tree", "doubling", "hierarchical", "topk", "residual")

    def provides(self, case):
        """Only what a mistake on this floor can show in."""
        if case.function in (*self.own.own_peers.SUMS, *self.own.own_peers.RUNS):
            return self.peers
        if case.function in ALL_WITH_RANKS:
            return self.own.supported(case) and case.function in WITH_RANKS[self.floor]
        slow = case.function == "alexnet_step" and self.floor != "nn" or case.function == "resnet50_step" and not self.peers
        return self.own.supported(case) and hasattr(self.own, case.function) and not slow

    def run(self, case):
        if case.function not in (*ALL_WITH_RANKS, *self.own.own_peers.SUMS, *self.own.own_peers.RUNS):
            return PythonModule(self.own).run(case)
        try:
            with np.errstate(all="ignore"):
                rows = self.own.threads.run(self.own.ranks_of(case), self.own.on_rank, case)
            return Result(self.own.joined(rows))
        except Exception as error:  # noqa: BLE001  what a mutant raises is an error, as in `verify`
            return Result(error=f"{type(error).__name__}: {error}")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: f"{m.module.removeprefix('refgf.')}: {m.what}")
def test_a_mutant_is_killed(mutant):
    with mutated(mutant) as own:
        told = judged_by_traces(own)
        if mutant.killed_by in ("messages", "deadlock"):
            assert told and (("deadlock" in told[0]) == (mutant.killed_by == "deadlock")), told
            return
        assert told == [] or mutant.killed_by == "values", told
        failed = [v for v in verify(CASES, Project(own, mutant)) if v.status == "fail"]
    assert failed, "it survives"
    if mutant.killed_by == "refused":
        assert any(v.outputs is None for v in failed)
        return
    diagnosis = [sentence for v in failed for sentence in v.diagnosis]
    assert mutant.looks and any(mutant.looks in sentence for sentence in diagnosis), (failed[0].case.name, diagnosis)
    assert mutant.statement in {None, *(s for v in failed for s in v.case.statements)}


def test_every_module_has_some_mutants():
    counts = {}
    for mutant in MUTANTS:
        counts[mutant.module] = counts.get(mutant.module, 0) + 1
    floors = {module.split(".")[1] for module in counts}
    assert floors == {"comm", "exchange", "nn", "training"} and len(MUTANTS) >= 50


def test_without_a_mutation_nothing_is_killed():
    """The machinery itself changes nothing: the same text in place of itself."""
    mutant = type(MUTANTS[0])("refgf.comm.slices", "nothing", "divmod(n, size)", "divmod(n, size)")
    with mutated(mutant) as own:
        assert judged_by_traces(own) == []
        assert {v.status for v in verify(CASES, Project(own, mutant))} == {"pass", "absent"}


def test_a_lost_place_is_told():
    with pytest.raises(LookupError, match="0 times"), mutated(type(MUTANTS[0])("refgf.comm.ring", "x", "no such text", "")):
        pass
