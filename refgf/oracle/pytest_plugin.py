"""Golden cases as tests of another project: pytest --refgf-implementation=mine.py

Each golden case becomes one test, and its failure says what `verify` says. pytest's own options
work (-k ring, -x, --junitxml=FILE). Further ones:

    --refgf-only R H2              statements, letters, functions or case names
    --refgf-profile sum            bits, sum or agreement (SPEC.md)
    --refgf-skips FILE             lines "PATTERN  reason": these cases are skipped, and the
                                   report lists them
    --refgf-report report.html     the conformance report; .json for programs

Typed in refgf's checkout without a path, this judges only the given file, and leaves the checkout's
own tests out. Without any of these options the plugin does nothing. It imports the judge only when
it is used, because pytest loads it in every run of an environment that has refgf.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

LARGEST_SKIPS = 1 << 20  # bytes
ROOT = Path(__file__).resolve().parents[2]

if TYPE_CHECKING:
    from refgf.oracle.judge.verify import Verdict
    from refgf.oracle.spec.case import Case


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("refgf", "golden cases of distributed training")
    group.addoption("--refgf-implementation", metavar="MODULE", help="its name, or a path (.py)")
    group.addoption("--refgf-only", nargs="+", metavar="PATTERN", help="R2, R, function, case")
    group.addoption("--refgf-profile", default="bits", choices=("bits", "sum", "agreement"))
    group.addoption("--refgf-skips", metavar="FILE", help='lines "PATTERN  reason"')
    group.addoption("--refgf-report", metavar="FILE", help="the conformance report, .json or .html")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--refgf-implementation"):
        config.pluginmanager.register(Conformance(config), "refgf-conformance")
        if config.rootpath == ROOT and config.args_source is not config.ArgsSource.ARGS:
            config.args = []  # not testpaths: thousands of tests that judge refgf itself
        return
    for name in ("only", "skips", "report"):
        if config.getoption(f"--refgf-{name}"):
            raise pytest.UsageError(
                f"--refgf-{name}: got no --refgf-implementation; wanted both; "
                "next: --refgf-implementation=mine.py"
            )


class Conformance:
    """Adds a test for each golden case, and writes the report of all verdicts at the end."""

    def __init__(self, config: pytest.Config) -> None:
        from refgf.oracle.judge.isolation import IsolatedModule

        self.profile = config.getoption("--refgf-profile")
        self.only = config.getoption("--refgf-only")
        self.skips = read_skips(config.getoption("--refgf-skips"))
        self.report = writable_report(config.getoption("--refgf-report"))
        try:
            self.judged = IsolatedModule(config.getoption("--refgf-implementation"), 60.0)
        except (ValueError, ImportError, OSError) as error:
            raise pytest.UsageError(f"--refgf-implementation: {error}") from None
        self.verdicts: list[Verdict] = []

    def pytest_collection_modifyitems(
        self, session: pytest.Session, items: list[pytest.Item]
    ) -> None:
        from refgf.oracle.judge.cases import GOLDEN, load_folder, selected

        found = list(GoldenCases.from_parent(session, name="refgf", conformance=self).collect())
        if not found:
            raise pytest.UsageError(f"--refgf-only: got {' '.join(self.only)}; it matches no case")
        every = load_folder(GOLDEN) if self.skips else []  # --refgf-only may leave some out
        for pattern in self.skips:
            if not any(selected(case, [pattern]) for case in every):
                raise pytest.UsageError(f"--refgf-skips: got {pattern}; it matches no case")
        items += found

    def pytest_sessionfinish(self) -> None:
        self.judged.close()
        if self.report and self.verdicts:
            from refgf.oracle.judge import page, report

            write = page.as_html if self.report.suffix == ".html" else report.as_json
            self.report.write_text(write(self.verdicts, self.profile))

    def why_skipped(self, case: Case) -> str | None:
        """The reason of the first line of the skip file that names this case."""
        from refgf.oracle.judge.cases import selected

        return next((why for pattern, why in self.skips.items() if selected(case, [pattern])), None)


class GoldenCases(pytest.Collector):
    def __init__(self, conformance: Conformance, **more: Any) -> None:
        super().__init__(**more)
        self.conformance = conformance

    def collect(self) -> Iterator[GoldenItem]:
        from refgf.oracle.judge.cases import GOLDEN, load_folder, selected

        for case in load_folder(GOLDEN):
            if selected(case, self.conformance.only):
                name = f"{case.function}[{case.name}]"
                yield GoldenItem.from_parent(
                    self, name=name, case=case, conformance=self.conformance
                )


class GoldenItem(pytest.Item):
    """One golden case: skipped where the implementation has no such function."""

    def __init__(self, case: Case, conformance: Conformance, **more: Any) -> None:
        super().__init__(**more)
        self.case, self.conformance = case, conformance

    def runtest(self) -> None:
        from refgf.oracle.judge.verify import Verdict, diagnose_some, verify_case

        why = self.conformance.why_skipped(self.case)
        if why is not None:
            skipped = Verdict(self.case, "absent", profile=self.conformance.profile, reason=why)
            self.conformance.verdicts.append(skipped)
            pytest.skip(why)
        verdict = verify_case(self.case, self.conformance.judged, self.conformance.profile)
        self.conformance.verdicts.append(verdict)
        if verdict.status == "absent":
            pytest.skip(f"{self.case.function} is not provided")
        if verdict.failure:
            diagnose_some([verdict])
            raise NotConforming(verdict)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> str:
        if not isinstance(excinfo.value, NotConforming):
            return str(super().repr_failure(excinfo, style))
        verdict = excinfo.value.verdict
        lines = [str(verdict.failure), f"the case: {verdict.case.why}"]
        lines += [f"looks like: {sentence}" for sentence in verdict.diagnosis]
        return "\n".join([*lines, f"violates: {' or '.join(verdict.violated)}"])

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, self.name


class NotConforming(Exception):
    def __init__(self, verdict: Verdict) -> None:
        super().__init__(str(verdict.failure))
        self.verdict = verdict


def read_skips(path: str | None) -> dict[str, str]:
    """{pattern: reason} of a skip file; "#" begins a comment."""
    from refgf.oracle.foreign.untrusted import read_bytes

    skips = {}
    try:
        lines = read_bytes(path, LARGEST_SKIPS).decode().splitlines() if path else []
    except ValueError as error:  # BadFile, or not UTF-8
        raise pytest.UsageError(
            f"--refgf-skips: got {path}; wanted a text file ({error})"
        ) from None
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        pattern, _, why = text.partition(" ")
        if text and not why.strip():
            got = f"{path}, line {number}: got {text}"
            raise pytest.UsageError(f"--refgf-skips: {got}; wanted a pattern and a reason")
        if text:
            skips[pattern] = why.strip()
    return skips


def writable_report(path: str | None) -> Path | None:
    """Before anything is judged, so that no result is lost at the end."""
    from refgf.oracle.judge.report import require_writable

    if path is None:
        return None
    if Path(path).suffix not in (".json", ".html"):
        raise pytest.UsageError(f"--refgf-report: got {path}; wanted a name in .json or .html")
    try:
        require_writable(path)
    except ValueError as error:
        raise pytest.UsageError(f"--refgf-report: {error}") from None
    return Path(path)
