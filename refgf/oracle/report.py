"""What `verify` says: as text, as JSON and as JUnit XML."""

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from refgf.oracle.verify import by_statement

SPEC = Path(__file__).parent / "SPEC.md"
UNPRINTABLE = re.compile(r"[^\t\n\x20-\x7e]")


def spec_statements():
    """{number: text} of the statements in SPEC.md."""
    rows = re.findall(r"^\| ([A-Z]\d+) \| (.+?) \| .*\|$", SPEC.read_text(), re.MULTILINE)
    return dict(rows)


def as_text(verdicts, profile="bits"):
    """A line per statement, then each failure with its place and diagnosis."""
    texts, lines = spec_statements(), [f"profile {profile}"]
    for statement, counts in by_statement(verdicts).items():
        outcome = "FAIL" if counts["fail"] else "pass"
        total = counts["pass"] + counts["fail"]
        lines.append(f"{statement:>4}  {outcome}  {counts['pass']:>3}/{total:<3}  {texts.get(statement, '')[:84]}")
    absent = sorted({v.case.function for v in verdicts if v.status == "absent"})
    if absent:
        lines.append(f"not provided, not judged: {', '.join(absent)}")
    for v in verdicts:
        if v.failure:
            lines += ["", f"{v.case.name} ({v.case.function}; {', '.join(v.case.statements)})", f"  {v.failure}",
                      f"  the case: {v.case.why}", *(f"  looks like: {told}" for told in v.diagnosis)]  # fmt: skip
    failed, passed = (sum(v.status == status for v in verdicts) for status in ("fail", "pass"))
    return "\n".join([*lines, "", f"{passed} cases passed, {failed} failed"])


def as_json(verdicts, profile="bits"):
    """The same for programs: {"profile", "statements": {...}, "cases": [...]}."""
    told = [
        {"case": v.case.name, "function": v.case.function, "statements": v.case.statements, "status": v.status,
         "failure": v.failure.as_dict() if v.failure else None, "diagnosis": v.diagnosis, "seconds": v.seconds}
        for v in verdicts
    ]  # fmt: skip
    return json.dumps({"profile": profile, "statements": by_statement(verdicts), "cases": told}, indent=1)


def as_junit(verdicts, profile="bits"):
    """One test case per golden case; its class is the function."""
    failed, absent = (sum(v.status == status for v in verdicts) for status in ("fail", "absent"))
    suite = ElementTree.Element("testsuite", name=f"refgf.oracle {profile}", tests=str(len(verdicts)),
                                failures=str(failed), skipped=str(absent), errors="0")  # fmt: skip
    for v in verdicts:
        test = ElementTree.SubElement(suite, "testcase", classname=v.case.function, name=v.case.name,
                                      time=f"{v.seconds:.6f}")  # fmt: skip
        if v.failure:
            told = ElementTree.SubElement(test, "failure", message=_plain(str(v.failure)))
            told.text = _plain("\n".join([v.case.why, *v.diagnosis]))
        elif v.status == "absent":
            ElementTree.SubElement(test, "skipped", message="not provided")
    return ElementTree.tostring(suite, encoding="unicode")


def _plain(text):
    """XML has no place for control characters, which another program's output may hold."""
    return UNPRINTABLE.sub("?", text)
