"""What must not change while the house is rebuilt: texts and numbers that were approved once.

    python -m pytest tests/approval -m long                      compares with approved files
    python -m pytest tests/approval -m long --snapshot-update    approves; then read git diff

A test that fails here says that a user sees something else. If that is wanted, the changed file is
part of the commit, and its message gives the reason.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.text import Text
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from docs.tools import gains
from kit import axes, claims
from refgf.oracle import __main__ as oracle
from refgf.oracle.grade import marking, report, student_process
from refgf.oracle.grade.trusted import Trusted, mark_of
from refgf.oracle.schedules.options import FORMATS
from refgf.oracle.schedules.own import OWN
from refgf.oracle.spec.fresh import fresh_cases, large_cases
from tests.support.golden import cases_of

ROOT = gains.ROOT
LESSONS = sorted((ROOT / "lessons").glob("[0-9][0-9]_*.py"))
AS_APPROVED = sys.version_info[:2] == (
    3,
    11,
)  # argparse words and wraps its help in other ways later
pytestmark = pytest.mark.long


class OneFile(SingleFileSnapshotExtension):
    """Each approved text is a file, so that a difference is read as one."""

    file_extension = "txt"
    _write_mode = WriteMode.TEXT


@pytest.fixture
def approved(snapshot):
    return snapshot.use_extension(OneFile)


def said(*command: object, folder: Path = ROOT) -> str:
    """What `python -m COMMAND` prints in this folder, and its exit code; folders have names."""
    environment = os.environ | {"COLUMNS": "100", "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, "-m", *map(str, command)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=250,
    )
    text = f"{run.stdout}{run.stderr}".replace(str(folder), "FOLDER").replace(str(ROOT), "CHECKOUT")
    return f"{text}exit code {run.returncode}\n"


@pytest.fixture
def answered(monkeypatch, capsys):
    """The same of `python -m refgf.oracle COMMAND`, in this process, which is faster."""
    monkeypatch.setattr("refgf.oracle.__main__.load_folder", cases_of)

    def answer(*command: object, folder: Path = ROOT) -> str:
        monkeypatch.chdir(folder)
        code = oracle.main([*map(str, command)])
        text = "".join(capsys.readouterr())
        text = text.replace(str(folder), "FOLDER").replace(str(ROOT), "CHECKOUT")
        return f"{text}exit code {code}\n"

    return answer


HELPS = [
    *(("refgf",), ("refgf.oracle",), ("refgf.cluster",), ("refgf.course",), ("refgf.predict",)),
    *(("refgf.oracle", c) for c in ("verify", "explain", "grade", "step", "reveal", "schedule")),
    *(("refgf.cluster", c) for c in ("run", "probe", "check")),
    *(("refgf.predict", c) for c in ("plan", "measure", "score")),
    *(("refgf.course", "build"), ("refgf.course", "similar")),
    *(("refgf.oracle", "export"), ("refgf.doctor",), ("refgf.site",), ("refgf.torch.example",)),
]


@pytest.mark.skipif(not AS_APPROVED, reason="another argparse words its help in another way")
@pytest.mark.parametrize("command", HELPS, ids="-".join)
def test_help(command, approved):
    if command == ("refgf.torch.example",):
        pytest.importorskip("torch", reason="PyTorch is an extra")
    assert said(*command, "--help") == approved


def test_no_command_is_left_out():
    """Each program of refgf, and what its help names as {plan,score,measure} ..."""
    programs = {f"refgf.{file.parent.name}" for file in (ROOT / "refgf").glob("*/__main__.py")}
    wanted = {(name,) for name in programs - {"refgf.plan"}}  # which is refgf.predict
    for file in Path(__file__).with_name("__snapshots__").glob("*/test_help[[]refgf.*].txt"):
        named = re.findall(r"\{([\w,]+)\} \.\.\.", file.read_text())
        wanted |= {(file.stem[10:-1], name) for name in ",".join(named).split(",") if name}
    assert wanted <= set(HELPS)


@pytest.mark.skipif(not AS_APPROVED, reason="another argparse words its help in another way")
@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.stem)
def test_help_of_a_lesson(lesson, approved):
    assert said("refgf", "lesson", lesson.stem[:2], "--help") == approved


def test_verify_of_what_is_right(approved, tmp_path):
    report = tmp_path / "report.json"
    judged = ["--python", "refgf.oracle.definitions", "--seed", 1, "--json", report]
    said("refgf.oracle", "verify", *judged)
    assert re.sub(r'("seconds": )[0-9.e-]+', r"\1TIME", report.read_text()) == approved


WITH_AVX512 = {"X86_V4", "AVX512_SKX"}  # as NumPy 2.4 and earlier ones name it
approved_with_avx512 = pytest.mark.skipif(
    WITH_AVX512.isdisjoint(np.show_config("dicts")["SIMD Extensions"]["found"]),
    reason="approved with AVX-512: powers and matrix products have other last bits without it",
)


@approved_with_avx512
def test_fresh_cases(approved):
    """The hash of each fresh case: what is given, and what the definitions say."""
    lines = []
    for case in [*fresh_cases(3, 1, lambda case: True), *large_cases(1, lambda case: True)]:
        digest = hashlib.sha256(json.dumps(case.description()).encode())
        for name, array in case.tensors.items():
            digest.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
        lines += [f"{digest.hexdigest()} {case.name}"]
    assert "\n".join(lines) == approved


@pytest.mark.parametrize("lesson", marking.lessons())
def test_marks(lesson, approved, monkeypatch):
    """What `grade --json` says of the starter and of the answers, for public and hidden cases."""
    lines = []
    for folder in ("student", "teaching/answers"):
        file = ROOT / "lessons" / folder / f"{lesson}.py"
        functions = vars(student_process.load(str(file), file.read_bytes()))
        monkeypatch.setattr(marking, "Sandbox", lambda *_, made=functions: Trusted(**made))
        for seed in (None, 1):
            marks = marking.grade(file, lesson, seed)
            lines += [f"{folder}, seed {seed}:"]
            lines += [json.dumps(report.as_data(marks, lesson, folder), indent=1)]
    assert "\n".join(lines) == approved


@pytest.mark.filterwarnings("error::RuntimeWarning")  # which grade and build do not print
@pytest.mark.parametrize("lesson", marking.lessons())
def test_marks_that_a_mistake_loses(lesson, approved):
    """Each typical mistake of students, the parts that it costs, and what is said of these."""
    lines = []
    for exercise in marking.exercises_of(lesson):
        for mistake in sorted(exercise.mistakes, key=lambda mistake: mistake.sentence):
            lines += [f"{exercise.name}: {mistake.sentence}"]
            for seeds in ((2019,), (2019, 1)):
                parts = mark_of(exercise, mistake.function, seeds).parts
                lost = [f"    {p.what}: {p.sentence}" for p in parts if p.points < p.of]
                lines += [f"  {len(lost)} parts, seeds {seeds}", *lost]
    assert "\n".join(lines) == approved


EXPORTS = [
    ["--order", order, "--ranks", ranks, "--size", size, "--dtype", dtype, *wire]
    for order in ("ring", "direct")
    for ranks, size, dtype, wire in (
        ("1", "5", "float32", ()),
        ("3", "10", "bfloat16", ()),
        ("5", "3", "float64", ()),
        ("7", "1000", "float32", ("--wire", "float16")),
    )
]


@approved_with_avx512
def test_exported_cases(approved, tmp_path):
    """The hash of every exported file, with and without options."""
    lines = []
    for number, options in enumerate([[], *EXPORTS]):
        folder = tmp_path / str(number)
        said("refgf.oracle", "export", *options, folder)
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        assert files
        lines += [" ".join(["export", *options])]
        lines += [
            f"    {hashlib.sha256(f.read_bytes()).hexdigest()} {f.relative_to(folder)}"
            for f in files
        ]
    assert "\n".join(lines) == approved


@pytest.mark.parametrize("form", FORMATS)
def test_schedules(form, approved, answered, tmp_path):
    """refgf's own algorithms as files of other tools, and what is said of them."""
    lines = []
    for name in OWN:
        ranks = "8" if name in ("two-level", "halving-doubling", "recursive-doubling") else "6"
        folder = tmp_path / name
        sizes = ["--ranks", ranks, "--ranks-per-node", "2", "--format", form]
        lines.append(answered("schedule", "--export", name, *sizes, "--output", folder))
        written = sorted(folder.glob("*")) if folder.exists() else []
        lines += [f"{hashlib.sha256(f.read_bytes()).hexdigest()} {f.name}" for f in written]
        if written:
            lines.append(answered("schedule", *written[:1]))
    assert "\n".join(lines).replace(str(tmp_path), "TMP") == approved


PLANS = [
    "--model resnet50 --batch 64 --rate 930 --machine mgwfbp-10gbe --ranks 32 --ranks-per-node 8",
    "--model alexnet --machine v100-56gbit --ranks 512 --ranks-per-node 8",
    "--model bert-large --batch 8 --rate 60 --machine mgwfbp-10gbe --ranks 7 --overlap 0.7",
    "--model resnet50 --batch 64 --rate 930 --machine mgwfbp-10gbe --ranks 16 --allreduce tree",
    "--model vgg16 --batch 32 --rate 200 --machine mgwfbp-10gbe --ranks 12 --ranks-per-node 8",
]


@pytest.mark.parametrize("number", range(len(PLANS)))
@pytest.mark.parametrize("form", ["text", "json"])
def test_plans(number, form, approved):
    as_json = ["--json"] * (form == "json")
    assert said("refgf.predict", "plan", *PLANS[number].split(), *as_json) == approved


@pytest.fixture(scope="module", params=LESSONS, ids=lambda lesson: lesson.stem)
def lesson(request):
    """(the lesson as a module, the numbers of its committed figure)"""
    return gains.module_of(request.param), gains.figure(request.param.stem)


def test_what_a_lesson_says(lesson, approved):
    """Table, verdicts and answer of the committed numbers."""
    module, numbers = lesson
    reveal = module.REVEAL
    decided = claims.verdicts(reveal.claims, numbers)
    lines = reveal.lines(numbers, decided)
    every = [json.dumps(vars(verdict), default=str) for verdict in decided]
    assert "\n".join([*lines, "", *every, "", reveal.ask, str(reveal.answer(numbers))]) == approved


def short(value: object) -> str:
    """Six digits of a number, which other processors compute alike; a name as it is."""
    return value if isinstance(value, str) else f"{value:.6g}"


def test_what_a_lesson_draws(lesson, approved):
    """Every text of its figures, in the order of drawing, and the numbers of every line."""
    matplotlib.use("Agg")
    module, numbers = lesson
    draw = module.draw if hasattr(module, "draw") else module.picture.draw
    found = draw(numbers)
    figures = found if isinstance(found, dict) else {"": found}
    lines = []
    for name, figure in figures.items():
        axes.sign(figure, "PLACE", "PROBED", "CPU")
        lines.append(f"== {name or module.__name__}")
        for axis in figure.axes:
            lines += [f"axis {axis.get_title()!r}, {axis.get_xlabel()!r}, {axis.get_ylabel()!r}"]
            for line in axis.lines:
                points = [f"{short(x)} {short(y)}" for x, y in zip(*line.get_data())]
                lines.append(f"    {line.get_label()!r}: {'; '.join(points)}")
            bars = [f"{bar.get_height():.6g}" for bar in axis.patches if hasattr(bar, "get_height")]
            lines += [f"    bars: {' '.join(bars)}"] * bool(bars)
        lines += [
            f"    text {text.get_text()!r}" for text in figure.findobj(Text) if text.get_text()
        ]
    matplotlib.pyplot.close("all")
    assert "\n".join(lines) == approved
