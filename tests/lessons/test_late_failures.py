"""What would fail only after a lesson has measured is refused before, with a sentence."""

import json
import os
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


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_an_output_that_cannot_be_written(tmp_path, name):
    (tmp_path / "file").write_text("mine")
    assert "--output" in refused("--quick", "--output", str(tmp_path / name))
    assert (tmp_path / "file").read_text() == "mine"


def test_a_folder_for_traces_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("mine")
    said = refused(
        "--quick", "--output", str(tmp_path), env={"REFGF_TRACE_DIR": f"{tmp_path}/file"}
    )
    assert "REFGF_TRACE_DIR" in said


@pytest.mark.parametrize("argument", ["--accuracy", "--rate"])
def test_a_number_that_is_none(tmp_path, argument):
    said = refused("--quick", argument, "nan", "--output", str(tmp_path))
    assert f"{argument}: got nan; wanted 0 to " in said


@pytest.mark.parametrize("data", ["", "none", "file", "tree"])
def test_images_that_cannot_be_read(tmp_path, data):
    (tmp_path / "file").write_text("mine")
    (make_tree(tmp_path / "tree", splits=("train",)) / "train" / "ant" / "a.png").touch()
    path = str(tmp_path / data) if data else ""
    arguments = "--quick", "--like", "this-machine", "--output", str(tmp_path / "out")
    said = refused(*arguments, "--data", path, lesson="03_lazy_allreduce")
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


def not_redrawn(tmp_path):
    lesson = "03_lazy_allreduce"
    said = refused("--plot", "--output", str(tmp_path), lesson=lesson, ranks=0)
    assert "next: run the lesson once without --plot" in said


DAMAGED = ["", "{", "[]", "{}", json.dumps({"ranks": 2, "steps": 7}), "[" * 99_999]


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_json_is_not_redrawn(tmp_path, text):
    (tmp_path / "03_lazy_allreduce.json").write_text(text)
    not_redrawn(tmp_path)


def test_a_pipe_is_not_redrawn(tmp_path):
    os.mkfifo(tmp_path / "03_lazy_allreduce.json")
    not_redrawn(tmp_path)
