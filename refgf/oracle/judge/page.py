"""The conformance report as one page of HTML, without scripts or requests to other hosts."""

import html

from refgf.oracle.judge.report import spec_statements
from refgf.oracle.judge.verify import Verdict, by_statement, not_run, outcome
from refgf.oracle.spec.case import SPEC as SPEC_VERSION

STYLE = """
body { font: 16px/1.5 sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; } td, th { padding: .2em .7em; text-align: left; }
th { border-bottom: 2px solid; } td { border-bottom: 1px solid #bbb; vertical-align: top; }
.fail { font-weight: bold; background: #f7e1c3; color: #000; }
pre { white-space: pre-wrap; background: #f3f3f3; color: #000; padding: .7em; }
@media (prefers-color-scheme: dark) { body { background: #181818; color: #e8e8e8; } }
"""


def as_html(verdicts: list[Verdict], profile: str = "bits") -> str:
    """Counts, a row for each statement, each failure with its diagnosis."""
    counts = {name: sum(v.status == name for v in verdicts) for name in ("pass", "fail", "absent")}
    title = f"{counts['pass']} of {counts['pass'] + counts['fail']} cases passed"
    body = [
        f"<h1>{title}</h1>",
        f"<p>Judged by refgf's oracle, SPEC version {SPEC_VERSION}, profile {profile}. "
        f"{counts['absent']} cases were not judged.</p>",
        *statements(verdicts),
        *absent(verdicts),
        *failures(verdicts),
    ]
    head = f'<meta charset="utf-8"><title>{title}</title><style>{STYLE}</style>'
    page = "\n".join(body)
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{page}\n</body></html>\n'


def statements(verdicts: list[Verdict]) -> list[str]:
    texts, rows = spec_statements(), []
    for number, found in by_statement(verdicts).items():
        share = f"{found['pass']}/{sum(found.values())}"
        cells = number, outcome(found), share, texts.get(number, "")
        row = "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
        rows.append(f'<tr class="{outcome(found)}">{row}</tr>')
    names = ("no", "outcome", "cases", "statement")
    head = "".join(f"<th>{name}</th>" for name in names)
    return ["<h2>Statements</h2>", f"<table><tr>{head}</tr>", *rows, "</table>"]


def absent(verdicts: list[Verdict]) -> list[str]:
    rows = [
        f"<li>{name}: {count} of {of} cases</li>" for name, (count, of) in not_run(verdicts).items()
    ]
    skipped = [f"{v.case.name}: skipped: {v.reason}" for v in verdicts if v.reason]
    rows += [f"<li>{html.escape(line)}</li>" for line in skipped]
    return ["<h2>Not judged</h2>", "<ul>", *rows, "</ul>"] if rows else []


def failures(verdicts: list[Verdict]) -> list[str]:
    lines = []
    for v in verdicts:
        if v.failure:
            said = [str(v.failure), f"the case: {v.case.why}"]
            said += [f"looks like: {sentence}" for sentence in v.diagnosis]
            said += [f"violates: {' or '.join(v.violated)}"]
            text = html.escape("\n".join(said))
            lines.append(f"<h3>{html.escape(v.case.name)}</h3><pre>{text}</pre>")
    return ["<h2>Failures</h2>", *lines] if lines else []
