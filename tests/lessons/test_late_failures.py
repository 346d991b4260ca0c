"""What would fail only after a lesson has measured is refused before, with a sentence."""

import json
import os
import runpy
import sys
from pathlib import Path

import pytest

from tests.support.jobs import run_job
from tests.support.pictures import make_tree

LESSONS = Path(__file__).resolve().parents[2] / "lessons"
SECONDS = 30


def refused(*arguments, lesson="07_gradientflow", ranks=2, env=None):
    """stderr of a lesson that must end at once, with code 2 and without a traceback."""
    job = run_job(ranks, [str(LESSONS / f"{lesson}.py"), *arguments], SECONDS, env)
    assert not job.timed_out and job.code == 2 and job.left == [], job.text
    assert "Traceback" not in job.stderr and "QUESTION" not in job.stdout, job.text
    return job.stderr


@pytest.fixture
def refused_here(monkeypatch, capsys):
    """The same of ranks that are threads, in this process."""

    def run(*arguments, lesson="07_gradientflow"):
        program = str(LESSONS / f"{lesson}.py")
        monkeypatch.setattr(sys, "argv", [program, *arguments, "--threads", "2"])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(program, run_name="__main__")
        said = capsys.readouterr()
        assert ended.value.code == 2 and "QUESTION" not in said.out
        return said.err

    return run


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_an_output_that_cannot_be_written(tmp_path, refused_here, name):
    (tmp_path / "file").write_text("mine")
    assert "--output" in refused_here("--quick", "--output", str(tmp_path / name))
    assert (tmp_path / "file").read_text() == "mine"


def test_a_folder_for_traces_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("mine")
    said = refused(
        "--quick", "--output", str(tmp_path), env={"REFGF_TRACE_DIR": f"{tmp_path}/file"}
    )
    assert "REFGF_TRACE_DIR" in said


@pytest.mark.parametrize("argument", ["--accuracy", "--rate"])
def test_a_number_that_is_none(tmp_path, refused_here, argument):
    said = refused_here("--quick", argument, "nan", "--output", str(tmp_path))
    assert f"{argument}: got nan; wanted 0 to " in said


@pytest.mark.parametrize("data", ["", "none", "file", "tree"])
def test_images_that_cannot_be_read(tmp_path, refused_here, data):
    (tmp_path / "file").write_text("mine")
    (make_tree(tmp_path / "tree", splits=("train",)) / "train" / "ant" / "a.png").touch()
    path = str(tmp_path / data) if data else ""
    arguments = "--quick", "--like", "this-machine", "--output", str(tmp_path / "out")
    here = refused if data == "none" else refused_here
    said = here(*arguments, "--data", path, lesson="03_lazy_allreduce")
    assert "image_folder: got " in said and "wanted " in said and "next: " in said


@pytest.mark.parametrize("text", ["banana", "[]", '{"nodes": 2}', "[" * 9999])
def test_a_cluster_that_is_none(tmp_path, text):
    said = refused("--quick", "--output", str(tmp_path), env={"REFGF_CLUSTER": text})
    assert "next: unset REFGF_CLUSTER" in said


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
@pytest.mark.parametrize("ranks, full", [(0, ".part"), (2, ".part"), (0, ".png")])
def test_a_full_disk_ends_with_a_sentence(tmp_path, ranks, full):
    (tmp_path / f"00_two_ranks{full}").symlink_to("/dev/full")
    numbers = tmp_path / "00_two_ranks.json"
    numbers.write_text("mine")
    arguments = ["--quick", "--output", str(tmp_path), *["--threads", "2"] * (not ranks)]
    job = run_job(ranks, [str(LESSONS / "00_two_ranks.py"), *arguments], 2 * SECONDS)
    said = f"{full}: got No space left on device; wanted room"
    assert job.code == 2 and said in job.stderr and "Traceback" not in job.stderr, job.text
    if full == ".png":  # the numbers are there
        assert json.loads(numbers.read_text())["ranks"] == 2
    else:
        assert numbers.read_text() == "mine"


NOT_REDRAWN = "next: run the lesson once without --plot"


@pytest.fixture
def redrawn(tmp_path, refused_here):
    """How --plot refuses what a function has made of a lesson's JSON."""

    def run(make):
        make(tmp_path / "03_lazy_allreduce.json")
        return refused_here("--plot", "--output", str(tmp_path), lesson="03_lazy_allreduce")

    return run


DAMAGED = ["", "{", "[]", "{}", json.dumps({"ranks": 2, "steps": 7}), "[" * 99_999]


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_json_is_not_redrawn(redrawn, text):
    assert NOT_REDRAWN in redrawn(lambda file: file.write_text(text))


def test_a_pipe_is_not_redrawn(redrawn):
    assert NOT_REDRAWN in redrawn(os.mkfifo)
