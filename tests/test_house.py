"""The promises of the house: a weekend to read, short files and lines, few parameters."""

import ast
import re
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CORE = ("ops.py", "device.py", "streams.py", "comm", "nn", "exchange", "training", "predict")
WEEKEND, BESIDE = 3200, 1000  # lines of Python: in READING.md's list, and elsewhere in the core
LONGEST = {"training/gradientflow.py": 150, "exchange/csc.py": 200, "papers/signsgd/signsgd.py": 59}
LONGEST_IN_CORE, LONGEST_ELSEWHERE = 220, 400
COLUMNS, PARAMETERS = 100, 8
JUDGE = """refgf/oracle/judge refgf/oracle/__main__.py refgf/oracle/buckets.py
refgf/oracle/definitions.py refgf/oracle/pytest_plugin.py refgf/oracle/torch_ddp.py
refgf/oracle/torch_hooks.py"""
DOORS = "refgf/__main__.py refgf/advice.py refgf/arguments.py refgf/interrupt.py refgf/program.py"
ROOMS = {  # lines of Python: (the design's budget, today's limit, which a commit raises knowingly)
    "refgf/papers": (5300, 7_208),
    "refgf/torch": (900, 1_428),
    "refgf/engine": (1950, 2_347),
    "refgf/machine": (2050, 2_998),
    "refgf/launch refgf/cluster refgf/doctor": (2700, 3_481),
    "refgf/oracle/spec": (13_000, 20_928),
    "refgf/oracle/foreign": (1200, 2_215),
    JUDGE: (2900, 3_967),
    "refgf/oracle/grade": (600, 1_991),
    "refgf/oracle/schedules": (2400, 2_987),
    "refgf/oracle/step": (2500, 3_735),
    "refgf/oracle/reveal": (1200, 1_597),
    "refgf/plan": (3300, 6_962),
    "refgf/course refgf/site": (2200, 4_418),
    "lessons": (17_000, 29_779),
    "tests": (37_000, 61_450),
    "docs/tools": (1_686, 1_686),
    DOORS: (484, 484),
}


def tracked(*patterns):
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if ended.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in ended.stdout.splitlines() if (ROOT / name).exists()]


def lines(file):
    return len(file.read_text().splitlines())


def core():
    for name in CORE:
        place = ROOT / "refgf" / name
        yield from [place] if place.is_file() else sorted(place.rglob("*.py"))


def reading():
    """{file: lines} as READING.md says, and its total."""
    text = (ROOT / "refgf" / "READING.md").read_text()
    rows = re.findall(r"^\| `([\w/]+\.py)` \| (\d+) \|", text, re.M)
    total = re.search(r"\*\*([\d,]+) lines\*\*", text)
    return {name: int(count) for name, count in rows}, int(total[1].replace(",", ""))


def test_the_weekend_is_what_reading_md_says():
    files, total = reading()
    assert files == {name: lines(ROOT / "refgf" / name) for name in files}, "next: make reading"
    assert total == sum(files.values()) <= WEEKEND


def test_readme_says_the_same():
    total = reading()[1]
    for page in ("README.md", "docs/house.md"):
        said = set(re.findall(r"about ([\d,]+) lines", (ROOT / page).read_text()))
        assert said == {f"{round(total, -2):,}"}, page


def test_little_of_the_core_is_not_in_the_weekend():
    """Otherwise the core could grow beside the list."""
    files, _ = reading()
    names = {str(file.relative_to(ROOT / "refgf")): file for file in core()}
    assert set(files) <= set(names)
    assert sum(lines(file) for name, file in names.items() if name not in files) <= BESIDE


def test_no_file_is_long():
    long, files_of_core = {}, set(core())
    for file in tracked("refgf/*.py", "lessons/*.py"):
        name = str(file.relative_to(ROOT)).removeprefix("refgf/")
        limit = LONGEST.get(name, LONGEST_IN_CORE if file in files_of_core else LONGEST_ELSEWHERE)
        if lines(file) > limit:
            long[name] = lines(file)
    assert not long, "divide them by their ideas"


def files_of(room):
    return tracked(*(part if part.endswith(".py") else f"{part}/*.py" for part in room.split()))


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_keeps_its_budget(room):
    found = sum(lines(file) for file in files_of(room))
    assert found <= max(ROOMS[room]), f"{room}: a feature that needs more says what it replaces"


def test_every_file_is_in_a_room():
    """Otherwise a room could grow outside of its budget."""
    inside = {file for room in ROOMS for file in files_of(room)} | set(core())
    outside = [file for file in tracked("*.py") if file not in inside]
    assert [str(f.relative_to(ROOT)) for f in outside if f.name != "__init__.py"] == []


def test_a_statement_stands_in_one_place():
    """Each is made once, in one file of refgf/oracle/spec."""
    made = Counter()
    for file in tracked("refgf/*.py"):
        made.update(re.findall(r'^(\w+) = Statement\(\s*"\1"', file.read_text(), re.M))
    rows = re.findall(r"^\| ([A-Z]\d+) \|", (ROOT / "refgf/oracle/SPEC.md").read_text(), re.M)
    assert made == Counter(rows)


def test_lines_are_short_and_the_formatter_has_no_exceptions():
    wrong = []
    for file in tracked("*.py"):
        for number, line in enumerate(file.read_text().splitlines(), start=1):
            exception = re.search(r"# *fmt: *(skip|off)", line) and file != Path(__file__)
            if len(line) > COLUMNS or exception:
                wrong.append(f"{file.relative_to(ROOT)}:{number}")
    assert not wrong


def test_sources_are_ascii():
    """A lesson reads its own sources, in whatever encoding the locale has."""
    assert [
        str(f) for f in tracked("refgf/*.py", "lessons/*.py") if not f.read_bytes().isascii()
    ] == []


@cache
def parsed(file):
    return ast.parse(file.read_text())


@cache
def functions(file):
    return [node for node in ast.walk(parsed(file)) if isinstance(node, ast.FunctionDef)]


def parameters(function):
    given = function.args
    named = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    return [parameter for parameter in named if parameter.arg not in ("self", "cls")]


def test_functions_have_few_parameters():
    wrong = []
    for file in tracked("refgf/*.py", "lessons/*.py"):
        for node in functions(file):
            if len(parameters(node)) > PARAMETERS:
                wrong.append(f"{file.relative_to(ROOT)}:{node.lineno} {node.name}")
    assert not wrong


FLOORS_OF_A_PROGRAM = ("papers", "engine", "machine", "cluster", "doctor", "launch")
WORDED_BY_THE_CALLER = (  # which adds what to try
    "nn/network.py: require",
    "cluster/like.py: parse",
    "cluster/settings.py: _require_within",
    "machine/checkpoint",
    "machine/images.py",
)


def test_errors_say_what_to_try():
    """Every function that raises a ValueError has the word for it, or names a constant with it."""
    silent = set()
    for file in [*core(), *tracked(*(f"refgf/{floor}/*.py" for floor in FLOORS_OF_A_PROGRAM))]:
        tree = parsed(file)
        named = {ast.unparse(n.targets[0]): ast.unparse(n) for n in tree.body if is_constant(n)}
        for node in functions(file):
            text, inside = ast.unparse(node), list(ast.walk(node))
            raises = any(
                isinstance(n, ast.Raise) and "ValueError(" in ast.unparse(n) for n in inside
            )
            used = {n.id for n in inside if isinstance(n, ast.Name)} & set(named)
            if raises and "next:" not in text + "".join(named[name] for name in used):
                silent.add(f"{file.relative_to(ROOT / 'refgf')}: {node.name}")
    assert not [name for name in silent if not name.startswith(WORDED_BY_THE_CALLER)]


def is_constant(node):
    return isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)


def test_the_core_has_no_optional_protocols():
    """No hasattr, and no getattr with a default, that asks an object what it can do."""
    wrong = []
    for file in core():
        for node in ast.walk(parsed(file)):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
                continue
            asks = node.func.id == "hasattr" or (node.func.id == "getattr" and len(node.args) == 3)
            if asks and ast.unparse(node.args[1]) != "'dtype'":  # is it an array at all?
                wrong.append(f"{file.relative_to(ROOT)}:{node.lineno}")
    assert not wrong


def test_no_two_classes_have_one_name():
    found = Counter()
    for file in tracked("refgf/*.py"):
        body = parsed(file).body
        found.update(node.name for node in body if isinstance(node, ast.ClassDef))
    found["GradientFlow"] -= 1  # PyTorch's, which does the same
    assert [name for name, count in found.items() if count > 1] == []


def test_tests_mirror_the_house():
    """Every module of the core has a test file of its name."""
    missing = []
    for file in core():
        if len(parsed(file).body) <= 1 or file.name == "__init__.py":
            continue
        place = ROOT / "tests" / file.relative_to(ROOT / "refgf").parent
        if not list(place.glob(f"test_{file.stem}*.py")):
            missing.append(str(file.relative_to(ROOT)))
    assert missing == []
