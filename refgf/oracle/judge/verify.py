"""Judging an implementation by cases: pass or fail, the first failure, and what it looks like."""

import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from refgf.oracle.judge.comparison import Failure
from refgf.oracle.judge.diagnosis import STEPS, diagnose, mistakes_of, orders_of, other_slices
from refgf.oracle.judge.implementations import Result
from refgf.oracle.judge.profiles import judge
from refgf.oracle.judge.trace import TraceEvent, check_trace
from refgf.oracle.judge.variants import variant_of
from refgf.oracle.judge.violations import judged_statements, violated
from refgf.oracle.spec.calls import OVERWRITTEN, Outputs
from refgf.oracle.spec.case import Case
from refgf.oracle.spec.plain_sums import PLAIN_SUMS


@dataclass
class Verdict:
    """status: "pass", "fail", or "absent": not judged. reason: why, if a skip file says so."""

    case: Case
    status: str
    outputs: Outputs | None = None
    failure: Failure | None = None
    diagnosis: list[str] = field(default_factory=list)
    seconds: float = 0.0
    profile: str = "bits"
    explained: list[str] = field(default_factory=list)  # by what other cases show to be violated
    general: bool = False  # judged by the function `allreduce`, which names no order
    reason: str = ""

    @property
    def statements(self) -> list[str]:
        """Those that were judged."""
        return judged_statements(self.case, self.outputs, self.profile)

    @property
    def violated(self) -> list[str]:
        """What a failure shows to be violated; where it does not show which, all candidates."""
        if self.status != "fail":
            return []
        return self.explained or violated(self.case, self.outputs, self.diagnosis, self.statements)

    @property
    def overwritten(self) -> int | None:
        """The rank whose input a sum over ranks spoilt."""
        rank = (self.outputs or {}).get(OVERWRITTEN)
        return None if rank is None or np.ndim(rank) else int(rank)

    @property
    def variant(self) -> str | None:
        """The named variant that a right result follows where it is not the definitions' own."""
        return variant_of(self.case, self.outputs) if self.status == "pass" else None


def verify(
    cases: list[Case], implementation: Any, profile: str = "bits", with_diagnosis: bool = True
) -> list[Verdict]:
    """One verdict per case, in their order. Of each kind of case one failure is diagnosed.

    implementation: a class of implementations.py, or isolation.IsolatedModule.
    """
    verdicts, given_up = [], set()
    for case in cases:
        if case.function in given_up:
            verdicts.append(Verdict(case, "absent", profile=profile))
            continue
        verdicts.append(verify_case(case, implementation, profile))
        failure = verdicts[-1].failure
        if failure and failure.message.startswith(("did not end", "its process ended")):
            message = f"{failure.message}; the next cases of {case.function} are not run"
            verdicts[-1].failure = replace(failure, message=message)
            given_up.add(case.function)
    if with_diagnosis:
        diagnose_some(verdicts)
    explain_by_slices(verdicts)
    return verdicts


def explain_by_slices(verdicts: list[Verdict]) -> None:
    """Wrong slices (R1) fail a case for rounding (R3) too, which does not list R1."""
    shown = shown_violated(verdicts)
    for verdict in verdicts:
        only_rounding = verdict.violated == ["R3"] and "R1" not in verdict.statements
        if only_rounding and not verdict.diagnosis and "R1" in shown[verdict.case.function]:
            verdict.explained = ["R1"]


def diagnose_some(verdicts: list[Verdict]) -> None:
    """One failure of each function, family, form and wire, with three ranks or more if possible.

    The other failures are compared with what these look like.
    """
    failed = [v for v in verdicts if v.status == "fail" and v.outputs is not None]
    chosen: dict[tuple, Verdict] = {}
    for verdict in failed:
        case = verdict.case
        form, after, wire = (case.arguments.get(name) for name in ("form", "after", "wire"))
        kind = case.function, case.family, form, after
        chosen.setdefault((kind, few_ranks(case), wire), verdict)
    for (kind, few, _), verdict in chosen.items():
        if not few or not any(key[:2] == (kind, False) for key in chosen):
            verdict.diagnosis = diagnose(verdict.case, verdict.outputs)
    for verdict in failed:
        if not verdict.diagnosis:
            verdict.diagnosis = known_from_others(verdict, list(chosen.values()))


def known_from_others(verdict: Verdict, diagnosed: list[Verdict]) -> list[str]:
    """A mistake that another case of the function looks like, slices, or an order of summation.

    Trying all mistakes on every case would be slow.
    """
    case, outputs = verdict.case, verdict.outputs
    others = [other for other in diagnosed if other.case.function == case.function]
    names = {sentence for other in others for sentence in other.diagnosis}
    found = mistakes_of(case, outputs, names) if case.function not in STEPS else []
    return found or other_slices(case, outputs) or orders_of(case, outputs)


def few_ranks(case: Case) -> bool:
    """With one or two ranks most orders of summation are the same: a failure there shows little."""
    return "in.x" in case.tensors and len(case["in.x"]) < 3


def verify_case(case: Case, implementation: Any, profile: str = "bits") -> Verdict:
    """Run one case and judge its values, then its trace if there is one."""
    if not implementation.provides(case):
        return Verdict(case, "absent", profile=profile)
    start_s = time.perf_counter()
    result = implementation.run(case)
    seconds = time.perf_counter() - start_s
    verdict = Verdict(case, "pass", result.outputs, seconds=seconds, profile=profile)
    verdict.general = result.general
    if result.error:
        verdict.failure = Failure(result.error)
    elif result.outputs is None:
        return Verdict(case, "absent", profile=profile)
    else:
        verdict.failure = judge_result(case, result, profile)
    verdict.status = "fail" if verdict.failure else "pass"
    return verdict


def judge_result(case: Case, result: Result, profile: str) -> Failure | None:
    """Values first, then the trace. A case that contradicts itself is a failure too."""
    try:
        return judge(case, result.outputs, profile) or judge_trace(case, result.trace)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        text = f"{type(error).__name__}: {str(error)[:200]}"
        return Failure(f"the case cannot be judged: {text}")


def judge_trace(case: Case, events: list[TraceEvent] | None) -> Failure | None:
    """The first problem of a trace; None without a trace."""
    if events is None or case.function not in PLAIN_SUMS:
        return None
    p, n = case["in.x"].shape
    dtype = case.arguments["wire"] or case["in.x"].dtype.name
    found = check_trace(events, p, n, case.function.removesuffix("_allreduce"), dtype)
    return Failure("trace: " + found[0], "trace") if found else None


def by_statement(verdicts: list[Verdict]) -> dict[str, dict[str, int]]:
    """{"R1": {"pass": 12, "fail": 0, "open": 0}} of the cases that were run, ordered by statement.

    open: the case fails, but shows another statement to be violated. Where a case does not show
    which, it counts as a failure of one that another case of the same function shows.
    """
    counts, shown = {}, shown_violated(verdicts)
    for verdict in verdicts:
        if verdict.status == "absent":
            continue
        candidates, known = verdict.violated, shown.get(verdict.case.function, ())
        wrong = [s for s in candidates if s in known] or candidates
        for statement in dict.fromkeys([*verdict.statements, *wrong]):
            outcome = "fail" if statement in wrong else "open" if wrong else "pass"
            counts.setdefault(statement, {"pass": 0, "fail": 0, "open": 0})[outcome] += 1
    return dict(sorted(counts.items(), key=lambda item: (item[0][0], int(item[0][1:]))))


def shown_violated(verdicts: list[Verdict]) -> dict[str, set[str]]:
    """{function: the fewest statements that explain what its diagnoses, or cases, show}"""
    shown = {}
    for verdict in verdicts:
        candidates = verdict.violated
        if candidates and (verdict.diagnosis or len(candidates) == 1):
            shown.setdefault(verdict.case.function, []).append(set(candidates))
    return {function: fewest(found) for function, found in shown.items()}


def fewest(sets: list[set[str]]) -> set[str]:
    """Members of all sets, those of most sets first; a set that has one already adds none."""
    found, rest = set(), sets
    while rest:
        counts = Counter(name for each in rest for name in each)
        found |= {name for name, count in counts.items() if count == max(counts.values())}
        rest = [each for each in rest if not each & found]
    return found


def outcome(counts: dict[str, int]) -> str:
    """Of a statement: "fail", "open" if a failing case may have to do with it, or "pass"."""
    return "fail" if counts["fail"] else "open" if counts["open"] else "pass"


def not_run(verdicts: list[Verdict]) -> dict[str, tuple[int, int]]:
    """{function: (cases that were not run, all its cases)} of functions that lack some or all."""
    functions = [v.case.function for v in verdicts]
    absent = [v.case.function for v in verdicts if v.status == "absent"]
    return {name: (absent.count(name), functions.count(name)) for name in sorted(set(absent))}
