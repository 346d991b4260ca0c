"""What `verify` says: as text, as JSON and as JUnit XML."""

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from refgf.oracle.judge.verify import by_statement, not_run

SPEC = Path(__file__).parents[1] / "SPEC.md"
UNPRINTABLE = re.compile(r"[^\t\n\x20-\x7e]")


def spec_statements():
    """{number: text} of the statements in SPEC.md."""
    rows = re.findall(r"^\| ([A-Z]\d+) \| (.+?) \| .*\|$", SPEC.read_text(), re.MULTILINE)
    return dict(rows)


def as_text(verdicts, profile="bits"):
    """A line per statement, then each failure with its place and diagnosis."""
    texts, lines = spec_statements(), [f"profile {profile}"]
    for statement, counts in by_statement(verdicts).items():
        outcome = "FAIL" if counts["fail"] else "pass" if counts["pass"] else "open"
        waiting = f"  ({counts['open']} open)" if counts["open"] else ""
        lines.append(
            f"{statement:>4}  {outcome}  {counts['pass']:>3}/{sum(counts.values()):<3}  "
            f"{texts.get(statement, '')[:84]}{waiting}"
        )
    if any(counts["open"] for counts in by_statement(verdicts).values()):
        lines.append("open: a case of it fails, by what looks like another statement")
    for function, (count, of) in not_run(verdicts).items():
        lines.append(f"not provided, not judged: {count} of {of} cases of {function}")
    for v in verdicts:
        if v.failure:
            lines += [
                "",
                f"{v.case.name} ({v.case.function}; {_blamed(v)})",
                f"  {v.failure}",
                f"  the case: {v.case.why}",
                *(f"  looks like: {told}" for told in v.diagnosis),
            ]
    failed, passed, absent = (
        sum(v.status == status for v in verdicts) for status in ("fail", "pass", "absent")
    )
    return "\n".join([*lines, "", f"{passed} cases passed, {failed} failed, {absent} not judged"])


def _blamed(verdict):
    statements = verdict.violated
    return (
        f"violates {statements[0]}"
        if len(statements) == 1
        else f"violates one of {', '.join(statements)}"
    )


def as_json(verdicts, profile="bits"):
    """The same for programs: {"profile", "statements": {...}, "not_judged": {...}, "cases": [...]}."""
    told = [
        {
            "case": v.case.name,
            "function": v.case.function,
            "statements": v.statements,
            "violated": v.violated,
            "status": v.status,
            "failure": v.failure.as_dict() if v.failure else None,
            "diagnosis": v.diagnosis,
            "seconds": v.seconds,
        }
        for v in verdicts
    ]
    absent = {function: count for function, (count, _) in not_run(verdicts).items()}
    return json.dumps(
        {
            "profile": profile,
            "statements": by_statement(verdicts),
            "not_judged": absent,
            "cases": told,
        },
        indent=1,
    )


def as_junit(verdicts, profile="bits"):
    """One test case per golden case; its class is the function."""
    failed, absent = (sum(v.status == status for v in verdicts) for status in ("fail", "absent"))
    suite = ElementTree.Element(
        "testsuite",
        name=f"refgf.oracle {profile}",
        tests=str(len(verdicts)),
        failures=str(failed),
        skipped=str(absent),
        errors="0",
    )
    for v in verdicts:
        test = ElementTree.SubElement(
            suite, "testcase", classname=v.case.function, name=v.case.name, time=f"{v.seconds:.6f}"
        )
        if v.failure:
            told = ElementTree.SubElement(test, "failure", message=_plain(str(v.failure)))
            told.text = _plain("\n".join([v.case.why, *v.diagnosis]))
        elif v.status == "absent":
            ElementTree.SubElement(test, "skipped", message="not provided")
    return ElementTree.tostring(suite, encoding="unicode")


def _plain(text):
    """XML has no place for control characters, which another program's output may hold."""
    return UNPRINTABLE.sub("?", text)
