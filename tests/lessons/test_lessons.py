"""Every lesson as a student starts it, in small: it succeeds and saves numbers and a picture."""

import json
import re
import shutil
import time
import warnings
from pathlib import Path

import pytest

from docs.tools import gains
from kit import claims, record
from kit.reveal import COLUMNS, LINES
from tests.support.jobs import run_job

ROOT = Path(__file__).resolve().parents[2]
LESSONS = sorted((ROOT / "lessons").glob("[0-9][0-9]_*.py"))
IN_SHORT = "00", "03"  # those of all stacks, 07 and 13, take three times as long
SECTIONS = [
    "QUESTION",
    "IDEA",
    "PREDICTION",
    "Before you run it, write down",
    "NOW CHANGE SOMETHING",
]


AROUND = (  # what belongs to the lesson NN_name
    "lessons/solutions/{name}.py",
    "lessons/drawings/{number}.svg",
    "lessons/student/{number}.py",
    "lessons/teaching/answers/{number}.py",
    "lessons/teaching/{number}.md",
    "figures/{name}.json",
)


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda f: f.stem)
def test_what_belongs_to_a_lesson_is_there(lesson):
    names = [name.format(name=lesson.stem, number=lesson.stem[:2]) for name in AROUND]
    missing = [name for name in names if not (ROOT / name).is_file()]
    assert not missing, f"{lesson.name} lacks {', '.join(missing)} (docs/how-to/lesson.md)"


def run_lesson(lesson, ranks, folder, *arguments):
    return run_job(ranks, [str(lesson), *arguments, "--output", str(folder)], timeout=240)


def check(lesson, ranks, folder, *arguments):
    job = run_lesson(lesson, ranks, folder, "--quick", *arguments)
    assert job.code == 0, job.stdout[-3000:] + job.stderr[-3000:]
    result = json.loads((folder / f"{lesson.stem}.json").read_text())
    assert result["ranks"] == ranks and result["lesson"] == lesson.stem
    assert result["measured_with"] == record.code_hash(lesson)
    assert (folder / f"{lesson.stem}.png").stat().st_size > 10_000
    options = result["options"] | {"quick": False}
    reveal, loud = gains.reveal_of(lesson), result | {"options": options, "load": {}}
    lines = reveal.lines(loud, claims.verdicts(reveal.claims, loud))
    assert len(lines) <= LINES and max(map(len, lines)) <= COLUMNS and reveal.answer(loud)
    return job.stdout


@pytest.mark.parametrize(
    "lesson",
    [
        pytest.param(f, id=f.stem, marks=[] if f.stem[:2] in IN_SHORT else pytest.mark.long)
        for f in LESSONS
    ],
)
def test_lesson_runs_on_3_ranks(lesson, tmp_path):
    """The screen is at most COLUMNS wide, and says nothing that tiny sizes cannot tell."""
    text = check(lesson, 3, tmp_path, "--predict", gains.reveal_of(lesson).guess.example)
    lines = text.splitlines()
    assert max(map(len, lines)) <= COLUMNS or "/" in max(lines, key=len)  # a path may be longer
    assert "--quick shows that the lesson runs." in text and "not judged" not in text
    guess = gains.reveal_of(lesson).guess.example
    assert f"You predicted {guess}: --quick compares it with nothing." in text
    said = re.findall("hold|within noise|measured:|off by|what +measured", text)
    assert not said, said
    result = json.loads((tmp_path / f"{lesson.stem}.json").read_text())
    assert {verdict["verdict"] for verdict in result["verdicts"]} == {claims.NOT_JUDGED}
    assert result["load"]["said"]


@pytest.mark.long
def test_lesson_trains_resnet50(tmp_path):
    """Of the two that can, the one that takes a third as long."""
    check(ROOT / "lessons" / "16_sharding.py", 3, tmp_path, "--network", "resnet50")


@pytest.mark.long
@pytest.mark.parametrize(  # messages that are timed, two levels
    "lesson", [f for f in LESSONS if f.stem[:2] in ("01", "10")], ids=lambda f: f.stem
)
def test_lesson_runs_on_8_ranks_and_a_stated_link(lesson, tmp_path):
    """On 3 threads: test_device_option.py."""
    output = check(lesson, 8, tmp_path, "-v", "--link", "1gbit,50us")
    assert "[waits like a link of 1gbit,50us: not a network]" in output  # above each table
    assert (
        "WAITS like a link of 1gbit,50us"
        in json.loads((tmp_path / f"{lesson.stem}.json").read_text())["place"]
    )


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda f: f.stem)
def test_lesson_has_its_sections_in_order(lesson):
    text = lesson.read_text().split('"""')[1]
    places = [text.find(section) for section in SECTIONS]
    assert -1 not in places and places == sorted(places), dict(zip(SECTIONS, places))
    assert re.search(r"\b(weak|strong) scaling\b", text)
    assert len(lesson.read_text().splitlines()) <= 155


def test_redrawing_needs_no_ranks(tmp_path):
    """From a committed figure's numbers. Each lesson as a PNG: tests/approval."""
    lesson = LESSONS[0]
    shutil.copy(ROOT / "figures" / f"{lesson.stem}.json", tmp_path)
    how = ["--plot", "--format", "svg", "--no-notes", "-v"]
    job = run_job(0, [str(lesson), *how, "--output", str(tmp_path)], timeout=60)
    assert job.code == 0 and (tmp_path / f"{lesson.stem}.svg").read_text().startswith("<?xml")
    assert "off by\n" in job.stdout and "\n- holds" in job.stdout  # -v: the table, and verdicts


def test_wrong_arguments_are_reported_once(tmp_path):
    job = run_lesson(LESSONS[0], 3, tmp_path, "--link", "fast")
    assert job.code == 2 and job.stderr.count("link: got 'fast'") == 1, job.stderr


@pytest.mark.long
def test_stale_figures_are_listed():
    """A figure is stale if its code has changed since the measurement.

    Stale figures are a warning here and an error at the end of `make figures`.
    """
    stale = []
    files = {lesson: f"{lesson.stem}.json" for lesson in LESSONS}
    for measured, name in (("dilation_side", "dilation"), ("unseen_side", "plan_unseen")):
        files[ROOT / "tests" / "speed" / f"{measured}.py"] = f"{name}.json"
    for code, name in files.items():
        file = ROOT / "figures" / name
        saved = json.loads(file.read_text()) if file.exists() else {}
        hashed = "measured_with" in saved or "sources" in saved  # sources: an earlier form, stale
        assert hashed, f"{file}: got no hash of the code; next: make figures"
        if saved.get("measured_with") != record.code_hash(code):
            stale.append(file.stem)
    peers = json.loads((ROOT / "figures" / "peers.json").read_text())["about"]
    for script, about in peers.items():
        if about["measured_with"] != record.code_hash(ROOT / "tests" / "speed" / f"{script}.py"):
            stale.append(f"peers ({script}: make peers, then run.py --publish)")
    on_a_card = json.loads((ROOT / "figures" / "gpu" / "gpu.json").read_text())["measured_with"]
    for script, hashed in on_a_card.items():
        if hashed != record.code_hash(ROOT / "tests" / "gpu" / f"{script}.py"):
            stale.append(f"gpu/gpu ({script}: docs/gpu.md)")
    study = ROOT / "figures" / "torch.json"
    parts = json.loads(study.read_text()) if study.exists() else {}
    for part, program in (("training", "torch_training"), ("times", "torch_times")):
        code = ROOT / "docs" / "tools" / f"{program}.py"
        if part in parts and parts[part]["measured_with"] != record.code_hash(code):
            stale.append(f"torch ({part}: docs/tools/torch_study.py)")
    if stale:
        warnings.warn(f"stale figures: {', '.join(stale)}; next: make figures", stacklevel=1)


def test_the_timings_in_the_syllabus():
    took_s = [
        json.loads((ROOT / "figures" / f"{lesson.stem}.json").read_text())["took_s"]
        for lesson in LESSONS
    ]
    rows = [
        f"| {' | '.join(row)} |"
        for row in (
            ("lesson", *(lesson.stem[:2] for lesson in LESSONS)),
            ("seconds", *(f"{s:.0f}" for s in took_s)),
        )
    ]
    table = f"{rows[0]}\n{'|---' * (1 + len(LESSONS))}|\n{rows[1]}\n"
    assert table in (ROOT / "lessons" / "README.md").read_text(), (
        f"next: put this table into lessons/README.md:\n{table}"
    )


KILLED_AFTER_S, GONE_IN_S = 3.0, 5.0
KILLED = """
import refgf.launch, os, pathlib, runpy, signal, sys, threading, time
def kill():
    pathlib.Path({folder!r}, "killed").write_text(str(time.time()))
    os.kill(os.getpid(), signal.SIGKILL)
if refgf.launch.job.rank == 1:
    threading.Timer({after}, kill).start()
sys.argv = [{lesson!r}, "--output", {folder!r}]
sys.path.insert(0, os.path.dirname({lesson!r}))
runpy.run_path({lesson!r}, run_name="__main__")
"""


# 14_data_cache: test_data_cache.py
@pytest.mark.parametrize("name", ["07_gradientflow", "13_daso"])
def test_a_killed_rank_ends_a_lesson(tmp_path, name):
    """All ranks end within 5 seconds, with an exit code."""
    lesson = str(ROOT / "lessons" / f"{name}.py")
    began_s = time.time()
    job = run_job(
        4, KILLED.format(after=KILLED_AFTER_S, lesson=lesson, folder=str(tmp_path)), timeout=120
    )
    assert job.code != 0 and not job.timed_out and job.left == []
    assert began_s + job.seconds - float((tmp_path / "killed").read_text()) < GONE_IN_S


DRAWN_LATE = """
import runpy, sys, time
from pathlib import Path
import refgf.launch as launch
sys.path.insert(0, str(Path(sys.argv[1]).parent))
from kit.lesson import Lesson

def draw(self, *_):
    time.sleep(0.5)
    self.drawn.touch()

Lesson._draw, Lesson.drawn = draw, Path(sys.argv[-1], "drawn")
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
Path(sys.argv[-1], f"rank {launch.job.rank} ended").write_text(str(Lesson.drawn.exists()))
"""


def test_the_other_ranks_sleep_until_rank_0_has_drawn(tmp_path):
    """Else they would poll in MPI's last barrier, and take the cores from it."""
    program = ["-c", DRAWN_LATE, LESSONS[0], "--quick", "--output", tmp_path]
    job = run_job(3, program, timeout=240)
    found = {rank: (tmp_path / f"rank {rank} ended").read_text() for rank in range(3)}
    assert found == dict.fromkeys(range(3), "True"), job.text
