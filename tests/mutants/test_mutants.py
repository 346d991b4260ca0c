"""Every mutant is killed by what it names, and where values kill it the report says what mistake has these bits."""

import ast
import importlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from mutant import TESTS, Mutant, mutated
from named import is_red

from refgf.oracle.cases import GOLDEN, load_folder
from refgf.oracle.implementations import PythonModule, Result
from refgf.oracle.trace import check_trace
from refgf.oracle.verify import verify

MUTANTS = [mutant for file in sorted(Path(__file__).parent.glob("seeds_*.py"))
           for mutant in importlib.import_module(file.stem).MUTANTS]  # fmt: skip
NOTHING = Mutant("refgf.comm.slices", "nothing", "divmod(n, size)", "divmod(n, size)")
FEWEST = 3  # mutants of a module
WITHOUT = {
    "refgf.comm.native": "MPI's own allreduce: order and bits are the library's, and it runs under MPI only",
}  # and launch, doctor, device, cluster, whose tests start, break and end processes; the oracle, whose mistakes are in it
CASES = load_folder(GOLDEN)
WITH_RANKS = {"comm": ("ring_allreduce", "direct_allreduce"), "exchange": ("lazy_allreduce", "merged_allreduce",
              "scaled_allreduce", "scaled_run",
              "scaled_lars_run", "csc_run"), "nn": (), "training": ()}  # fmt: skip
ALL_WITH_RANKS = sum(WITH_RANKS.values(), ())
PEERS = ("tree", "doubling", "hierarchical", "topk", "residual")  # modules that hierarchies, top-k and ResNet-50 are judged for
DASO = ("daso_run", "daso_traffic")
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
        self.own, self.floor, self.name = own, *mutant.module.split(".")[1:3]
        self.peers = self.name in PEERS

    def provides(self, case):
        """Only what a mistake on this floor can show in."""
        if case.function in (*self.own.own_peers.SUMS, *self.own.own_peers.RUNS):
            return self.peers
        if case.function in DASO:
            return self.name.startswith("daso")
        if case.function in ALL_WITH_RANKS:
            return self.own.supported(case) and case.function in WITH_RANKS[self.floor]
        slow = case.function == "alexnet_step" and self.floor != "nn" or case.function == "resnet50_step" and not self.peers
        return self.own.supported(case) and hasattr(self.own, case.function) and not slow

    def run(self, case):
        if case.function not in ("daso_run", *ALL_WITH_RANKS, *self.own.own_peers.SUMS, *self.own.own_peers.RUNS):
            return PythonModule(self.own).run(case)
        try:
            with np.errstate(all="ignore"):
                rows = self.own.threads.run(self.own.ranks_of(case), self.own.on_rank, case)
            return Result(self.own.joined(rows))
        except Exception as error:  # noqa: BLE001  what a mutant raises is an error, as in `verify`
            return Result(error=f"{type(error).__name__}: {error}")


def named(mutants):
    return pytest.mark.parametrize("mutant", mutants, ids=lambda m: f"{m.module.removeprefix('refgf.')}: {m.what}")


@named([mutant for mutant in MUTANTS if not mutant.by_a_test])
def test_a_mutant_is_killed(mutant):
    with mutated(mutant):
        own = importlib.import_module("own")
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


@named([mutant for mutant in MUTANTS if mutant.by_a_test])
def test_a_mutant_is_killed_by_a_test(mutant):
    with mutated(mutant):
        assert is_red(mutant.killed_by), "it survives"


def test_without_a_mutation_nothing_is_killed():
    """The machinery itself changes nothing: the same text in place of itself."""
    with mutated(NOTHING):
        own = importlib.import_module("own")
        assert judged_by_traces(own) == []
        assert {v.status for v in verify(CASES, Project(own, NOTHING))} == {"pass", "absent"}


def test_without_a_mutation_no_test_is_red():
    with mutated(NOTHING):
        assert [place for place in {m.killed_by for m in MUTANTS if m.by_a_test} if is_red(place)] == []


def test_every_module_has_mutants():
    counts = Counter(mutant.module for mutant in MUTANTS)
    few = {module: counts[module] for module in modules() if counts[module] < FEWEST}
    assert few.keys() == WITHOUT.keys(), "wanted mutants of these, or a reason why there are none"
    assert set(counts) <= modules(), "mutants of modules that are not there"


def modules():
    """The modules of five floors that hold more than a docstring, the units and the loops."""
    root, found = TESTS.parent / "refgf", {"refgf.units", "refgf.fused"}
    for floor in ("comm", "exchange", "nn", "training", "predict"):
        for file in (root / floor).rglob("*.py"):
            if len(ast.parse(file.read_text()).body) > 1:
                parts = file.relative_to(root.parent).with_suffix("").parts
                found.add(".".join(parts).removesuffix(".__init__"))
    return found


def test_a_lost_place_is_told():
    with pytest.raises(LookupError, match="0 times"), mutated(Mutant("refgf.comm.ring", "x", "no such text", "")):
        importlib.import_module("own")


def test_a_broken_mutant_kills_nothing():
    broken = Mutant("refgf.comm.slices", "broken", "divmod(n, size)", "divmod(n, no_such_name)")
    with pytest.raises(NameError), mutated(broken):
        is_red("comm/test_slices.py::test_chunks") or is_red("comm/test_slices.py::test_slices_deal_elements_like_cards")
