"""The container for editors has what its specification knows, and commands that exist here.

https://github.com/devcontainers/spec/blob/main/schemas/devContainer.base.schema.json
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CONTAINER = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
LIFE = ("initialize", "onCreate", "updateContent", "postCreate", "postStart", "postAttach")
COMMANDS = tuple(f"{name}Command" for name in LIFE)
# of a container that is made from an image: the schema's own properties that we may want
TEXTS = ("name", "image", "containerUser", "remoteUser", "workspaceFolder", "workspaceMount")
OBJECTS = ("features", "containerEnv", "remoteEnv", "hostRequirements", "customizations")


def test_the_file_has_the_form_of_the_specification():
    known = {*TEXTS, *OBJECTS, *COMMANDS, "runArgs"}
    assert set(CONTAINER) <= known, "no other property is checked here: add it with its type"
    assert all(isinstance(CONTAINER[name], str) for name in TEXTS if name in CONTAINER)
    assert all(isinstance(CONTAINER[name], dict) for name in OBJECTS if name in CONTAINER)
    assert all(isinstance(value, str) for value in CONTAINER["runArgs"])
    assert CONTAINER["image"], "the specification wants one"
    for name in set(COMMANDS) & set(CONTAINER):
        assert isinstance(CONTAINER[name], str | list | dict), name


def test_its_python_is_new_enough():
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    least = tuple(map(int, re.fullmatch(r">=(\d+)\.(\d+)", wanted).groups()))
    has = tuple(map(int, re.fullmatch(r"python:(\d+)\.(\d+)", CONTAINER["image"]).groups()))
    assert has >= least


def test_it_has_shared_memory_for_mpi():
    """Docker gives 64 MiB, less than the messages of eight ranks; README names this value."""
    (option,) = [value for value in CONTAINER["runArgs"] if value.startswith("--shm-size=")]
    assert option in (ROOT / "lessons" / "README.md").read_text()


@pytest.mark.skipif(not shutil.which("make"), reason="no make")
@pytest.mark.parametrize("name", sorted(set(COMMANDS) & set(CONTAINER)))
def test_its_commands_are_targets_of_make(name, tmp_path):
    """In a tree without an environment; -n prints what make would do."""
    for file in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / file, tmp_path)
    program, *arguments = shlex.split(CONTAINER[name])
    assert program == "make"
    ended = subprocess.run(
        ["make", "-n", *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": os.environ["PATH"]},
    )
    assert ended.returncode == 0, ended.stderr
    assert "--editable" in ended.stdout and "lessons,dev" in ended.stdout
