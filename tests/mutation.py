"""Mutation testing of the core: small changes of the code that its own tests must notice.

    python tests/mutation.py                                 40 random places in the core
    python tests/mutation.py --sample 12 --minutes 4         fewer, and none begun after 4 minutes
    python tests/mutation.py refgf/comm/ring.py --sample 99  all places in one module

cosmic-ray lists every place where it can change an operator, a comparison, a number, a loop or a
condition. The sample takes places at random and one random change at each, so that an expression
with eleven variants counts no more than one with two. A changed module is judged in a copy of the
tree, by the tests named after it and by the golden cases. These must pass on the unchanged copy
first. A test that runs much longer than on the unchanged copy has noticed the change, too.

Some changes cannot be noticed, because the program does the same: `is` for `==`, a larger buffer,
another text in an error message. A sample of 60 places (seed 11) gave a kill rate of 67 %, with a
95 % interval from 54 to 77 %. The floor is 50 %: a sample whose whole interval is below it fails,
so that a small one does not fail by chance.
"""

import argparse
import contextlib
import math
import os
import random
import resource
import shlex
import shutil
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from cosmic_ray.commands import init
from cosmic_ray.mutating import mutate_and_test, mutate_code
from cosmic_ray.plugins import get_operator
from cosmic_ray.testing import run_tests
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import MutationSpec, TestOutcome

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("refgf", "tests", "lessons", "pyproject.toml")
PACKAGES = ("comm", "nn", "exchange", "training", "predict")
CORE = ("refgf/ops.py", *(f"refgf/{package}/**/*.py" for package in PACKAGES))
FLOOR = 0.5
GOLDEN = Path("tests/oracle/test_oracle_own.py")
LIMIT_S = 120  # for the tests of one module on unchanged code
MEMORY_BYTES = 8 << 30  # of one process: a change may ask for all there is


@dataclass(frozen=True)
class Verdict:
    mutation: MutationSpec
    word: str  # "killed", "survived", or "no verdict" where the tests fail on unchanged code
    said: str  # the change as a diff, or what the tests said

    def __str__(self) -> str:
        place = f"{self.mutation.module_path}:{self.mutation.start_pos[0]}"
        return f"{self.word:10} {place:40} {self.mutation.operator_name.removeprefix('core/')}"


def tests_of(module: Path, root: Path = ROOT) -> list[Path]:
    """refgf/comm/ring.py -> tests/comm/test_ring*.py, then the golden cases.

    A module without a namesake has the whole folder of its package.
    """
    folder = Path("tests", *module.parts[1:-1])
    named = sorted((root / folder).glob(f"test_{module.stem}*.py"))
    tests = [file.relative_to(root) for file in named] or [folder]
    return [*tests, GOLDEN] if (root / GOLDEN).exists() else tests


def places(modules: list[Path], root: Path) -> list[list[MutationSpec]]:
    """All changes that cosmic-ray knows, by the place in the source that they change."""
    found = defaultdict(list)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        stack.enter_context(contextlib.chdir(root))
        work = stack.enter_context(use_db(f"{folder}/work.sqlite", WorkDB.Mode.create))
        init(modules, work, {})
        for item in work.work_items:
            (mutation,) = item.mutations
            found[mutation.module_path, mutation.start_pos].append(mutation)
    return [found[place] for place in sorted(found)]


def sample(
    places: list[list[MutationSpec]], count: int, seed: int, root: Path
) -> list[MutationSpec]:
    """One change at each of `count` places."""
    draw, chosen = random.Random(seed), []
    for place in draw.sample(places, len(places)):
        mutation = draw.choice(place)
        if len(chosen) < count and compiles(mutation, root):
            chosen.append(mutation)
    return chosen


def compiles(mutation: MutationSpec, root: Path) -> bool:
    """A change that is no Python says nothing about tests."""
    operator = get_operator(mutation.operator_name)(**mutation.operator_args)
    source = (root / mutation.module_path).read_text()
    try:
        with warnings.catch_warnings(action="ignore"):  # "is" with a literal
            compile(mutate_code(source, operator, mutation.occurrence), "mutated", "exec")
    except SyntaxError:
        return False
    return True


def enter_copy(root: Path, folder: str) -> None:
    """Give this process a copy of the tree to change, as its working folder."""
    copy = Path(folder, str(os.getpid()))
    copy.mkdir()
    for name in COPIED:
        if (root / name).is_dir():
            shutil.copytree(root / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif (root / name).exists():
            shutil.copy(root / name, copy)
    os.chdir(copy)
    os.environ["PYTHONPATH"] = str(copy)  # before an editable installation
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))


def judge(tests: list[Path], mutations: list[MutationSpec], end: float) -> list[Verdict]:
    """Test a module's changes in this process's copy; none begins after `end` (time.monotonic)."""
    pytest = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not long"]
    command = shlex.join([*pytest, *map(str, tests)])
    began = time.monotonic()
    if began > end:
        return []
    outcome, output = run_tests(command, LIMIT_S)
    if outcome != TestOutcome.SURVIVED:
        return [Verdict(mutation, "no verdict", output[-500:]) for mutation in mutations]
    limit_s, verdicts = 3 * (time.monotonic() - began) + 10, []
    for mutation in mutations:
        if time.monotonic() < end:
            result = mutate_and_test([mutation], command, limit_s)
            known = result.test_outcome in (TestOutcome.KILLED, TestOutcome.SURVIVED)
            word = result.test_outcome.value if known else "no verdict"
            verdicts.append(Verdict(mutation, word, result.diff or result.output or ""))
    return verdicts


def run(chosen: list[MutationSpec], jobs: int, minutes: float, root: Path = ROOT) -> list[Verdict]:
    """Judge all changes, on `jobs` processes; print each verdict as it comes."""
    by_tests, verdicts, end = defaultdict(list), [], time.monotonic() + 60 * minutes
    for mutation in chosen:
        by_tests[tuple(tests_of(mutation.module_path, root))].append(mutation)
    with (
        tempfile.TemporaryDirectory(prefix="refgf-mutation-") as folder,
        ProcessPoolExecutor(jobs, initializer=enter_copy, initargs=(root, folder)) as pool,
    ):
        tasks = [pool.submit(judge, *task, end) for task in by_tests.items()]
        for task in as_completed(tasks):
            verdicts += task.result()
            for verdict in task.result():
                print(verdict, flush=True)
    return verdicts


def interval(hits: int, n: int) -> tuple[float, float]:
    """95 % interval of a rate (Wilson's score interval)."""
    z, rate = 1.96, hits / n
    middle, half = rate + z * z / (2 * n), z * math.sqrt(rate * (1 - rate) / n + (z / (2 * n)) ** 2)
    return (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)


def report(verdicts: list[Verdict], floor: float) -> bool:
    """Print survivors, kill rate and what was not judged. Is the rate high enough?"""
    by_word = defaultdict(list)
    for verdict in verdicts:
        by_word[verdict.word].append(verdict)
    for word in ("survived", "no verdict"):
        for verdict in by_word[word]:
            print(f"\n{verdict}\n{verdict.said}")
    killed, lost = len(by_word["killed"]), len(by_word["no verdict"])
    n = len(verdicts) - lost
    if lost or not n:
        print(f"\nmutation: got no verdict on {lost} changes, verdicts on {n}", end="; ")
        print("wanted verdicts on all; next: run the tests above on the unchanged code")
        return False
    low, high = interval(killed, n)
    print(
        f"\nkilled {killed} of {n}: {killed / n:.0%} (95 % interval {low:.0%} to {high:.0%})",
        end="; ",
    )
    print(f"floor {floor:.0%}")
    return high >= floor


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("modules", nargs="*", type=Path, help="files to change (default: the core)")
    parser.add_argument("--sample", type=int, default=40, metavar="N")
    parser.add_argument(
        "--seed", type=int, default=random.randrange(1000), help="default: another one each time"
    )
    parser.add_argument(
        "--floor", type=float, default=FLOOR, help=f"lowest kill rate (default: {FLOOR})"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no test after these")
    options = parser.parse_args(arguments)
    modules = options.modules or sorted(
        p.relative_to(root) for glob in CORE for p in root.glob(glob)
    )
    found = places(modules, root)
    chosen = sample(found, options.sample, options.seed, root)
    told = f"{len(chosen)} of {len(found)} places in {len(modules)} modules"
    print(f"{told}, seed {options.seed}", flush=True)
    return 0 if report(run(chosen, options.jobs, options.minutes, root), options.floor) else 1


if __name__ == "__main__":
    sys.exit(main())
