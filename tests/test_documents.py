"""README and docs/: each command works as it is printed, each link leads somewhere.

On a page the blocks ```sh are commands, a line each, typed one after the other in one folder. A
block ```text after them is what the last one prints: a line that is only `...` stands for any
lines, one that ends in `...` for the rest of the line; in ```text measured every number stands for
any number. A block ```python that begins with "# NAME" is a file that the reader writes. A command
in a sentence or table is typed where it stands, too.
"""

import functools
import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LONGEST = {"README.md": 130, "docs/how-to": 60}
PROGRAMS = ("make", "mpiexec", "torchrun", "python", "refgf", "pip", "pytest", "conda", "grep")
PROGRAMS += (".venv/bin/refgf",)
INSTEAD = {  # a command: what is run in its place, and why
    r"make (test|figures|mutation|peers|clean)\b.*": r"make --dry-run \g<1>",  # hours, or itself
    r"make (gpu-check|gpu-pack|site|site-serve|slides)": r"make --dry-run \g<1>",  # tests/gpu, site
    r"make .venv-cuda": r"make --dry-run .venv-cuda",  # .ci/run
    r"refgf cluster probe .*": "refgf cluster probe --help",  # tests/cluster
    r"refgf verify --python mine.py": "refgf verify --help",  # of that table; docs/judge.md
    r"make (demo|setup) MPI=\w+": "true",  # tests/test_site_mpi.py, tests/cluster
    r"source .venv/bin/activate": "true",  # the environment of this test has that PATH
    r"mpiexec -n 4 (python lessons/08_scaling.py) --headlines -v": r"\1 --help",  # minutes
    r"(.*) --device gpu": r"\1 --help",
    r"(python docs/tools/torch_study.py).*": r"\1 --help",  # minutes
    r"refgf doctor --gpu": "refgf doctor --help",  # fails where there is no GPU
    r"pip install .*": "true",  # test_extras_exist, tests/test_wheel.py
    r".*\bNN\b.*": "true",  # a form: the number of a lesson
    r"pytest -m .*": "pytest --version",  # the tests themselves
    r"python docs/tools/(gains|slides).py": "true",  # tests/lessons; they write
    r"python -m refgf.predict plan": r"\g<0> --help",  # without its arguments
    r"refgf step loop.py": "refgf step --help",  # the reader's own loop; docs/judge.md has one
    r"(torchrun .*) --folder run": r"\1 --epochs 1",
    r"conda .*": "test -e environment.yml",  # tests/test_packaging.py compares it
    r"mpiexec -f hosts .*": "test -e lessons/03_lazy_allreduce.py",  # tests/cluster/test_slurm.py
}
ANYWHERE = re.compile(r"refgf (predict score|doctor|cluster check)( --json)?|make setup")
RUN: dict[str, subprocess.CompletedProcess] = {}  # these, once for all pages
EMULATED = re.compile(r"refgf cluster (run|check|probe)\b")  # fail where no cluster can be had
JUDGES = re.compile(r" (verify|reveal|step|schedule|--refgf-implementation)\b")  # 1: it is wrong


@dataclass(frozen=True)
class Block:
    """kind: the word behind ```, or "typed" for a command in a sentence."""

    kind: str
    text: str


def blocks(page: Path) -> list[Block]:
    """What a page lets its reader type, write and see, in order."""
    inline = "|".join(map(re.escape, PROGRAMS))
    pattern = rf"^```(.*?)\n(.*?)^```$|(?<!`)`((?:{inline}) [^`]+)`"
    found = []
    for match in re.finditer(pattern, page.read_text(), re.S | re.M):
        kind, text, typed = match.groups()
        found.append(Block("typed", typed) if typed else Block(kind, text))
    return found


def commands(block: Block) -> list[str]:
    joined = block.text.replace("\\\n", " ") if block.kind in ("sh", "typed") else ""
    lines = (re.split(r"\s+# ", line)[0] for line in joined.splitlines())
    return [line for line in lines if line.strip()]


def as_run(command: str) -> str:
    """The command, or what is run in its place."""
    for pattern, instead in INSTEAD.items():
        if re.fullmatch(pattern, command):
            return re.sub(pattern, instead, command, count=1)
    return command


def shows(wanted: str, printed: str, measured: bool) -> bool:
    """Does what was printed have these lines of a ```text block, one after the other?"""
    pattern = "^"
    for line in wanted.splitlines():
        if line.strip() in ("", "..."):
            pattern += r"(?:.*\n)*?"
            continue
        words = r"\s+".join(map(re.escape, line.removesuffix(" ...").split()))
        words = re.sub(r"\d+(\\\.\d+)?", r"[\\d.,]+", words) if measured else words
        pattern += r"\s*" + words + (r".*\n" if line.endswith(" ...") else r"\s*?\n")
    return re.search(pattern, printed, re.M) is not None


@functools.cache
def can_emulate() -> bool:
    """Can this machine have an emulated cluster?"""
    check = [sys.executable, "-m", "refgf.cluster", "check"]
    return subprocess.run(check, cwd=ROOT, capture_output=True).returncode == 0


@pytest.fixture
def reader(tmp_path):
    """(folder, environment) of a reader who has typed `make setup` in a copy of this checkout."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True)
    if names.returncode:
        pytest.skip("not a git checkout")
    files = [ROOT / name for name in names.stdout.splitlines()]
    files += [*(ROOT / "refgf").rglob("*.pyc"), *(ROOT / "lessons").rglob("*.pyc")]
    for file in filter(Path.is_file, files):
        copy = tmp_path / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, copy)  # with its time: what is compiled stays so
    environment = tmp_path / ".venv"  # this test's own, and make finds it ready
    environment.mkdir()
    for entry in Path(sys.prefix).iterdir():
        (environment / entry.name).symlink_to(entry)
    (environment / ".ready-mpich").exists() or (environment / ".ready-mpich").touch()
    os.utime(tmp_path / "pyproject.toml", (0, 0))
    path = f"{environment}/bin:{os.environ['PATH']}"
    of_make = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "COLUMNS")
    others = {name: value for name, value in os.environ.items() if name not in of_make}
    return tmp_path, others | {"PATH": path, "PYTHONPATH": str(tmp_path)}


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_prints_works_as_printed(page, reader):
    folder, environment = reader
    command = printed = ""
    for block in blocks(page):
        if name := re.match(r"# (\S+\.py)\n", block.text) if block.kind == "python" else None:
            (folder / name[1]).parent.mkdir(parents=True, exist_ok=True)
            (folder / name[1]).write_text(block.text)
        elif block.kind.startswith("text"):
            said = f"{page.name}: {command}\nprinted\n{printed}\nwanted\n{block.text}"
            assert shows(block.text, printed, "measured" in block.kind), said
        for command in commands(block):
            done = RUN.get(command) or subprocess.run(
                ["bash", "-c", as_run(command)],
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                text=True,
                timeout=600,
            )
            if ANYWHERE.fullmatch(command):
                RUN[command] = done
            printed = done.stdout
            fine = (0, 1) if JUDGES.search(command) else (0,)
            if EMULATED.match(command) and not can_emulate():
                fine = (0, done.returncode)
            assert done.returncode in fine, f"{page.name}: {command}\n{done.returncode}: {printed}"


def test_lines_that_a_page_shows_are_found():
    printed = "head\n  R1  pass  3/4  n elements are divided\n\ntook 1.25 s\n"
    assert shows("R1  pass  3/4  n elements ...\n...\ntook 1.25 s\n", printed, False)
    assert shows("R1 pass 5/9 n elements are divided\n\ntook 3 s\n", printed, True)
    for wrong in ("R1  pass  3/5  n elements ...\n", "R1  pass  3/4  n elements\n", "took 1.25\n"):
        assert not shows(wrong, printed, False), wrong
    assert not shows("head\ntook 3 s\n", printed, True)  # lines between are not shown
    assert as_run("make site") == "make --dry-run site" and as_run("make demo") == "make demo"


def test_what_is_not_run_is_printed_somewhere():
    typed = [one for page in PAGES for block in blocks(page) for one in commands(block)]
    unused = [key for key in INSTEAD if not any(re.fullmatch(key, one) for one in typed)]
    assert unused == [] and len(typed) > 30


def test_extras_exist():
    """Those that a page installs: `pip install '.[lessons,mpi]'`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for page in PAGES:
        for names in re.findall(r"pip install [^`]*?\[([\w,]+)\]", page.read_text()):
            assert set(names.split(",")) <= set(project["optional-dependencies"]), page


def anchors(page: Path) -> set[str]:
    """Those of its headings, as GitHub forms them; of SPEC.md its statements, too."""
    text = page.read_text()
    plain = (re.sub(r"[^\w\- ]", "", line.lower()) for line in re.findall("^#+ (.*)", text, re.M))
    return {name.strip().replace(" ", "-") for name in plain} | set(
        re.findall(r"^\| ([A-Z]\d+) \|", text, re.M)
    )


@pytest.mark.parametrize(
    "page",
    [*PAGES, *sorted(ROOT.glob("lessons/**/*.md")), *sorted(ROOT.glob(".github/**/*.md"))],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text()):
        name, _, anchor = target.partition("#")
        found = (page.parent / name).resolve() if name else page
        assert found.exists(), target
        assert not anchor or anchor in anchors(found), target


@pytest.mark.parametrize("place, lines", LONGEST.items())
def test_pages_are_short(place, lines):
    found = ROOT / place
    for page in [found] if found.is_file() else found.glob("*.md"):
        assert len(page.read_text().splitlines()) <= lines, page
