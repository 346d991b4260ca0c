"""One call holds code to the definitions: golden cases, fresh ones, and ones hypothesis draws.

    conforms(module, "slice_bounds ring_traffic")               functions of SPEC.md's names
    conforms(Project(residual=FusedResidual), "csc_run")        the project's own, ranks on threads
    require_on_ranks(comm, Project(), "ring_allreduce")         the same code on any communicator

Golden cases are public. Fresh ones have more ranks and elements, or fewer elements than ranks. What
hypothesis draws is small, and what fails there is shrunk to few ranks and few elements.
"""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from refgf.oracle.judge.implementations import PythonModule
from refgf.oracle.judge.profiles import judge
from refgf.oracle.judge.verify import verify_case
from refgf.oracle.spec.case import Case
from refgf.oracle.spec.draw import Draw
from refgf.oracle.spec.fresh import empty, filled, fresh_cases
from refgf.oracle.spec.statement import FUNCTIONS
from tests.support.golden import CASES
from tests.support.own import joined, ranks_of
from tests.support.project import Project

FRESH = 3  # cases: one of each kind
MOST_RANKS, MOST_ELEMENTS = 7, 40  # that hypothesis draws


def conforms(code: object, functions: str, seeds: range = range(1), drawn: int = 20) -> None:
    """Raise AssertionError with the name of the first case in which a function is wrong.

    code: a module or any object with such functions, or an implementation of `verify`.
    seeds: of fresh cases; drawn: how many cases of each function hypothesis may try.
    """
    judged = code if hasattr(code, "provides") else PythonModule(code)
    for function in functions.split():
        golden = [case for case in CASES if case.function == function and judged.provides(case)]
        assert golden, f"{function}: got no such function; wanted one; next: write it"
        for case in golden:
            require(judged, case)
        if not FUNCTIONS[function].draw:
            continue
        for seed in seeds:
            for case in fresh_cases(FRESH, seed, lambda case, name=function: case.function == name):
                if judged.provides(case):
                    require(judged, case)
        require_drawn(judged, function, drawn)


def require(judged: object, case: Case) -> None:
    verdict = verify_case(case, judged)
    assert verdict.status == "pass", f"{case.name}: {verdict.failure or 'no such function'}"


def require_drawn(judged: object, function: str, count: int) -> None:
    ranks, elements = st.integers(1, MOST_RANKS), st.integers(0, MOST_ELEMENTS)

    @settings(max_examples=count, derandomize=True, deadline=None, database=None)
    @given(p=ranks, n=elements, seed=st.integers(0, 2**32 - 1))
    def pass_all(p, n, seed):
        case = drawn_case(function, p, n, seed)
        if judged.provides(case):
            require(judged, case)

    pass_all()


def drawn_case(function: str, p: int, n: int, seed: int) -> Case:
    """The same for the same arguments, on every rank, too."""
    case = empty(function, f"drawn-{function}-p{p}-n{n}-{seed}", "drawn by hypothesis")
    return filled(case, FUNCTIONS[function].draw(Draw(np.random.default_rng(seed), p, n)))


def require_on_ranks(comm, project: Project, functions: str, drawn: int = 4) -> None:
    """On every rank of comm: golden and drawn cases with as many ranks as it has."""
    p, wrong = comm.Get_size(), []
    for function in functions.split():
        cases = [case for case in CASES if case.function == function]
        count = drawn if FUNCTIONS[function].draw else 0
        cases += [drawn_case(function, p, 11 * seed, seed) for seed in range(count)]
        for case in cases:
            if ranks_of(case) == p and project.provides(case):
                with np.errstate(over="ignore", invalid="ignore"):
                    outputs = joined(comm.allgather(project.on_rank(comm, case)))
                failure = judge(case, outputs)
                wrong += [f"{case.name}: {failure}"] if failure else []
    assert not wrong, wrong[0]
