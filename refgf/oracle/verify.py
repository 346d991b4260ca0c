"""Judge an implementation by cases: pass or fail, where it fails first, and what known mistake looks like that."""

import time
from dataclasses import dataclass, field

from refgf.oracle.diagnose import diagnose
from refgf.oracle.functions import SUMS
from refgf.oracle.judge import Failure
from refgf.oracle.profiles import judge
from refgf.oracle.trace import check_trace


@dataclass
class Verdict:
    """status: "pass", "fail" or "absent" (the implementation does not have the function)."""

    case: object
    status: str
    outputs: dict | None = None
    failure: Failure | None = None
    diagnosis: list = field(default_factory=list)
    seconds: float = 0.0

    @property
    def statements(self):
        """Those of the case; R5 only if intermediate states were given."""
        given = self.outputs is not None and any(name.startswith("state.") for name in self.outputs)
        return [s for s in self.case.statements if s != "R5" or given]


def verify(cases, implementation, profile="bits", with_diagnosis=True):
    """One verdict per case, in their order. Of each kind of case one failure is diagnosed."""
    verdicts, endless = [], {}
    for case in cases:
        if case.function in endless:
            told = f"not run: {case.function} did not end in case {endless[case.function]}"
            verdicts.append(Verdict(case, "fail", failure=Failure(told)))
        else:
            verdicts.append(verify_case(case, implementation, profile))
        if verdicts[-1].failure and verdicts[-1].failure.message.startswith("did not end"):
            endless[case.function] = case.name
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


def few_ranks(case):
    """With one or two ranks most orders of summation are the same: a failure there tells little."""
    return "in.x" in case.tensors and len(case["in.x"]) < 3


def verify_case(case, implementation, profile="bits"):
    """Run one case and judge its values, then its trace where there is one."""
    if not implementation.provides(case):
        return Verdict(case, "absent")
    start_s = time.perf_counter()
    result = implementation.run(case)
    verdict = Verdict(case, "pass", result.outputs, seconds=time.perf_counter() - start_s)
    if result.error:
        verdict.failure = Failure(result.error)
    elif result.outputs is None:
        return Verdict(case, "absent")
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
    if events is None or case.function not in SUMS:
        return None
    p, n = case["in.x"].shape
    dtype = case.arguments["wire"] or case["in.x"].dtype.name
    told = check_trace(events, p, n, case.function.removesuffix("_allreduce"), dtype)
    return Failure("trace: " + told[0], "trace") if told else None


def by_statement(verdicts):
    """{"R1": {"pass": 12, "fail": 0}} of the cases that were run; statements in their order."""
    counts = {}
    for verdict in verdicts:
        if verdict.status != "absent":
            for statement in verdict.statements:
                counts.setdefault(statement, {"pass": 0, "fail": 0})[verdict.status] += 1
    return dict(sorted(counts.items(), key=lambda item: (item[0][0], int(item[0][1:]))))
