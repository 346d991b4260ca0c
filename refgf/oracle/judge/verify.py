"""Judge an implementation by cases: pass or fail, where it fails first, and what known mistake looks like that."""

import time
from dataclasses import dataclass, field

from refgf.oracle.judge.comparison import Failure
from refgf.oracle.judge.diagnosis import STEPS, diagnose, mistakes_of, orders_of
from refgf.oracle.judge.functions import PLAIN_SUMS
from refgf.oracle.judge.profiles import judge
from refgf.oracle.judge.trace import check_trace
from refgf.oracle.judge.violations import judged_statements, violated


@dataclass
class Verdict:
    """status: "pass", "fail" or "absent" (the implementation does not have the function)."""

    case: object
    status: str
    outputs: dict | None = None
    failure: Failure | None = None
    diagnosis: list = field(default_factory=list)
    seconds: float = 0.0
    profile: str = "bits"

    @property
    def statements(self):
        """Those that were judged."""
        return judged_statements(self.case, self.outputs, self.profile)

    @property
    def violated(self):
        """What a failure shows to be violated; where it does not show which, all in question."""
        if self.status != "fail":
            return []
        return violated(self.case, self.outputs, self.diagnosis, self.statements)


def verify(cases, implementation, profile="bits", with_diagnosis=True):
    """One verdict per case, in their order. Of each kind of case one failure is diagnosed."""
    verdicts, given_up = [], {}
    for case in cases:
        if case.function in given_up:
            told = f"not run: {case.function} {given_up[case.function]}"
            verdicts.append(Verdict(case, "fail", failure=Failure(told), profile=profile))
            continue
        verdicts.append(verify_case(case, implementation, profile))
        message = verdicts[-1].failure.message if verdicts[-1].failure else ""
        if message.startswith("did not end"):
            given_up[case.function] = f"did not end in case {case.name}"
        elif message.startswith("its process ended"):
            given_up[case.function] = f"ended its process in case {case.name}"
    if with_diagnosis:
        diagnose_some(verdicts)
    return verdicts


def diagnose_some(verdicts):
    """Fill in the diagnosis of one failure of each function, family and form, with three ranks or more if there is one."""
    telling = {}
    for verdict in verdicts:
        if verdict.status == "fail" and verdict.outputs is not None:
            form = verdict.case.arguments.get("form"), verdict.case.arguments.get("after")
            kind = verdict.case.function, verdict.case.family, form
            telling.setdefault((*kind, few_ranks(verdict.case)), verdict)
    for (*kind, few), verdict in telling.items():
        if not few or (*kind, False) not in telling:
            verdict.diagnosis = diagnose(verdict.case, verdict.outputs)
    for verdict in verdicts:
        if verdict.status == "fail" and verdict.outputs is not None and not verdict.diagnosis:
            verdict.diagnosis = known_from_others(verdict, telling.values())


def known_from_others(verdict, diagnosed):
    """A mistake that another case of the function looks like (cheaper than to try them all on every case), or an order."""
    names = {
        told
        for other in diagnosed
        if other.case.function == verdict.case.function
        for told in other.diagnosis
    }
    found = (
        mistakes_of(verdict.case, verdict.outputs, names)
        if verdict.case.function not in STEPS
        else []
    )
    return found or orders_of(verdict.case, verdict.outputs)


def few_ranks(case):
    """With one or two ranks most orders of summation are the same: a failure there tells little."""
    return "in.x" in case.tensors and len(case["in.x"]) < 3


def verify_case(case, implementation, profile="bits"):
    """Run one case and judge its values, then its trace where there is one."""
    if not implementation.provides(case):
        return Verdict(case, "absent", profile=profile)
    start_s = time.perf_counter()
    result = implementation.run(case)
    verdict = Verdict(
        case, "pass", result.outputs, seconds=time.perf_counter() - start_s, profile=profile
    )
    if result.error:
        verdict.failure = Failure(result.error)
    elif result.outputs is None:
        return Verdict(case, "absent", profile=profile)
    else:
        verdict.failure = judged(case, result, profile)
    verdict.status = "fail" if verdict.failure else "pass"
    return verdict


def judged(case, result, profile):
    """Values first, then the trace. A case that contradicts itself (somebody's own, perhaps) is a failure, too."""
    try:
        return judge(case, result.outputs, profile) or judge_trace(case, result.trace)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        return Failure(f"the case cannot be judged: {type(error).__name__}: {str(error)[:200]}")


def judge_trace(case, events):
    """The first thing wrong with a trace, as a Failure; None without a trace."""
    if events is None or case.function not in PLAIN_SUMS:
        return None
    p, n = case["in.x"].shape
    dtype = case.arguments["wire"] or case["in.x"].dtype.name
    told = check_trace(events, p, n, case.function.removesuffix("_allreduce"), dtype)
    return Failure("trace: " + told[0], "trace") if told else None


def by_statement(verdicts):
    """{"R1": {"pass": 12, "fail": 0, "open": 0}} of the cases that were run; statements in their order.

    open: the case fails, but what it shows to be violated is another statement; where it does not tell which, one that
    another case of the same function shows to be violated, if that is in question here.
    """
    counts, shown = {}, shown_violated(verdicts)
    for verdict in verdicts:
        if verdict.status != "absent":
            wrong = [
                s for s in verdict.violated if s in shown.get(verdict.case.function, ())
            ] or verdict.violated
            for statement in dict.fromkeys([*verdict.statements, *wrong]):
                outcome = "fail" if statement in wrong else "open" if wrong else "pass"
                counts.setdefault(statement, {"pass": 0, "fail": 0, "open": 0})[outcome] += 1
    return dict(sorted(counts.items(), key=lambda item: (item[0][0], int(item[0][1:]))))


def shown_violated(verdicts):
    """{function: statements that a diagnosis, or the case itself, shows to be violated}"""
    shown = {}
    for verdict in verdicts:
        if verdict.diagnosis or len(verdict.violated) == 1:
            shown.setdefault(verdict.case.function, set()).update(verdict.violated)
    return shown


def not_run(verdicts):
    """{function: (cases that were not run, all its cases)} of functions that lack some or all."""
    functions = [v.case.function for v in verdicts]
    absent = [v.case.function for v in verdicts if v.status == "absent"]
    return {
        function: (absent.count(function), functions.count(function))
        for function in sorted(set(absent))
    }
