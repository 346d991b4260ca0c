"""The report of `verify`: as text, as JSON and as JUnit XML."""

import json
import os
import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

from refgf.oracle.judge.verify import Verdict, by_statement, not_run, outcome
from refgf.oracle.spec.case import SPEC as SPEC_VERSION
from refgf.oracle.spec.plain_sums import PLAIN_SUMS
from refgf.oracle.spec.statement import STATEMENTS

UNPRINTABLE = re.compile(r"[^\t\n\x20-\x7e]")
TEXT_WIDTH = 84  # of a statement's text
NAMES_SHOWN = 3  # of functions that are not there


def require_writable(*paths: str | None) -> None:
    """Before anything is judged, so that no result is lost at the end."""
    for path in filter(None, paths):
        if Path(path).is_dir() or not os.access(Path(path).absolute().parent, os.W_OK):
            raise ValueError(f"got {path}; wanted a file in an existing, writable folder")


def spec_statements() -> dict[str, str]:
    """{number: text} of all statements."""
    return {number: statement.text for number, statement in STATEMENTS.items()}


def as_text(verdicts: list[Verdict], profile: str = "bits") -> str:
    """A line per statement, then each failure with its place and diagnosis."""
    texts, lines, counted = spec_statements(), [f"profile {profile}"], by_statement(verdicts)
    for statement, counts in counted.items():
        state = outcome(counts).replace("fail", "FAIL")
        waiting = f"  ({counts['open']} open)" if counts["open"] else ""
        share = f"{counts['pass']:>3}/{sum(counts.values()):<3}"
        text = texts.get(statement, "")[:TEXT_WIDTH]
        lines.append(f"{statement:>4}  {state}  {share}  {text}{waiting}")
    if any(counts["open"] for counts in counted.values()):
        lines.append("open: a case fails, by what looks like another statement")
    for (variant, function), count in variants_of(verdicts).items():
        lines.append(f"variant {variant}: {count} of the passed cases of {function}")
    lines += overwritten_lines(verdicts) + absent_lines(verdicts)
    for v in verdicts:
        if v.failure:
            title = f"{v.case.name} ({v.case.function}; {_violations(v)})"
            lines += ["", title, f"  {v.failure}", f"  the case: {v.case.why}"]
            lines += [f"  looks like: {sentence}" for sentence in v.diagnosis]
    passed, failed, absent = (_count(verdicts, status) for status in ("pass", "fail", "absent"))
    drawn = sum(v.case.name.startswith("random-") and v.status != "absent" for v in verdicts)
    total = f"{passed} cases passed, {failed} failed, {absent} not judged"
    largest = largest_sum(verdicts)
    lines += [""] + [f"sums over ranks were judged up to n = {largest}"] * (largest > 0)
    lines += [total + f"; random cases judged: {drawn}" * bool(drawn)]
    return "\n".join(lines + (general_lines(verdicts) if profile == "bits" else []))


def overwritten_lines(verdicts: list[Verdict]) -> list[str]:
    """Functions that spoil an input which their caller may still need, right or wrong."""
    first = {}
    for verdict in verdicts:
        if verdict.overwritten is not None:
            first.setdefault(verdict.case.function, verdict)
    return [
        f"{function} overwrites the input of rank {v.overwritten} ({v.case.name}); wanted all "
        "inputs as they were, or in each the result of its rank"
        for function, v in first.items()
    ]


def largest_sum(verdicts: list[Verdict]) -> int:
    """The most elements of a judged allreduce; longer ones may get another algorithm."""
    judged = (v.case for v in verdicts if v.status != "absent" and v.case.function in PLAIN_SUMS)
    return max((case["in.x"].shape[1] for case in judged), default=0)


def general_lines(verdicts: list[Verdict]) -> list[str]:
    """A function `allreduce` that was judged as more than one order of summation."""
    judged = Counter(v.case.function for v in verdicts if v.general)
    if len(judged) < 2:
        return []
    passed = Counter(v.case.function for v in verdicts if v.general and v.status == "pass")
    counts = [f"{function} ({passed[function]} of {n} pass)" for function, n in judged.items()]
    order = max(judged, key=lambda f: passed[f] / judged[f]).removesuffix("_allreduce")
    return [
        f"allreduce names no order: judged as {' and as '.join(counts)}",
        f"  next: --order {order} for one order, --profile sum for any",
    ]


def absent_lines(verdicts: list[Verdict]) -> list[str]:
    """Functions of which some cases were not run, then in one line those that are not there."""
    missing = not_run(verdicts)
    partly = {name: counts for name, counts in missing.items() if counts[0] < counts[1]}
    lines = [f"not judged: {c} of {of} cases of {f}" for f, (c, of) in partly.items()]
    wholly = [name for name in missing if name not in partly]
    if wholly:
        cases = sum(missing[name][0] for name in wholly)
        shown = ", ".join(wholly[:NAMES_SHOWN]) + ", ..." * (len(wholly) > NAMES_SHOWN)
        lines.append(
            f"not provided, not judged: {cases} cases of {len(wholly)} functions ({shown})"
            "; to list them: --html FILE"
        )
    return lines


def variants_of(verdicts: list[Verdict]) -> Counter[tuple[str, str]]:
    """{(variant, function): its cases that passed as this named variant}"""
    named = ((verdict.variant, verdict.case.function) for verdict in verdicts)
    return Counter((variant, function) for variant, function in named if variant)


def _violations(verdict: Verdict) -> str:
    statements = verdict.violated
    if len(statements) == 1:
        return f"violates {statements[0]}"
    return f"violates one of {', '.join(statements)}"


def _count(verdicts: list[Verdict], status: str) -> int:
    return sum(v.status == status for v in verdicts)


def as_json(verdicts: list[Verdict], profile: str = "bits") -> str:
    """The same for programs: {"spec", "profile", "statements", "not_judged", "cases"}."""
    cases = [
        {
            "case": v.case.name,
            "function": v.case.function,
            "statements": v.statements,
            "violated": v.violated,
            "status": v.status,
            "variant": v.variant,
            "overwritten": v.overwritten,
            "failure": v.failure.as_dict() if v.failure else None,
            "diagnosis": v.diagnosis,
            "seconds": v.seconds,
            "reason": v.reason,
        }
        for v in verdicts
    ]
    absent = {function: count for function, (count, _) in not_run(verdicts).items()}
    report = {"spec": SPEC_VERSION, "profile": profile, "statements": by_statement(verdicts)}
    return json.dumps({**report, "not_judged": absent, "cases": cases}, indent=1)


def as_junit(verdicts: list[Verdict], profile: str = "bits") -> str:
    """One test case per golden case; its class is the function."""
    counts = {
        "name": f"refgf.oracle {profile}",
        "tests": str(len(verdicts)),
        "failures": str(_count(verdicts, "fail")),
        "skipped": str(_count(verdicts, "absent")),
        "errors": "0",
    }
    suite = ElementTree.Element("testsuite", counts)
    for v in verdicts:
        about = {"classname": v.case.function, "name": v.case.name, "time": f"{v.seconds:.6f}"}
        test = ElementTree.SubElement(suite, "testcase", about)
        if v.failure:
            failure = ElementTree.SubElement(test, "failure", message=_printable(str(v.failure)))
            failure.text = _printable("\n".join([v.case.why, *v.diagnosis]))
        elif v.status == "absent":
            ElementTree.SubElement(test, "skipped", message=v.reason or "not provided, or not run")
    return ElementTree.tostring(suite, encoding="unicode")


def _printable(text: str) -> str:
    """XML forbids control characters, which another program's output may have."""
    return UNPRINTABLE.sub("?", text)
