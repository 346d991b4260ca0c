"""Hostile code behind the wall: it reads, writes, sends, starts and ends nothing outside."""

import contextlib
import ctypes
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from refgf.oracle.foreign import kernel

ROOT = Path(__file__).resolve().parents[3]
HERE = Path(__file__).resolve().parent
HOSTILE = HERE / "hostile"
SEED = "918273645"
GOLDEN = sorted((ROOT / "refgf" / "oracle" / "golden" / "R").glob("*.safetensors"))[0]
SECRETS = [
    ROOT / "refgf" / "oracle" / "grade" / "exercises" / "lesson_01.py",
    ROOT / "lessons" / "teaching" / "answers" / "01.py",
    GOLDEN,
]
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a wall of Linux")


def can(system: str, user: str) -> bool:
    """Can this machine play another one?"""
    tried = subprocess.run([sys.executable, HERE / "elsewhere.py", system, user, "true"])
    return tried.returncode == 0


def has_landlock() -> bool:
    with contextlib.suppress(OSError):
        return kernel.call(kernel.CREATE_RULESET, None, 0, 1) > 0
    return False


@pytest.fixture
def outside(tmp_path):
    """Things that hostile code looks for: a process, sockets, shared memory, a file."""
    secret = tmp_path / "course.json"
    secret.write_text(json.dumps({"seed": int(SEED)}))
    libc = ctypes.CDLL(None)
    memory = libc.shmget(0x7265, 100, 0o1666)
    with contextlib.ExitStack() as stack:
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        named = stack.enter_context(socket.socket(socket.AF_UNIX))
        named.bind("\0refgf-hostile")
        named.listen()
        sleeper = [sys.executable, "-c", "import time; time.sleep(600)", "refgf-hostile-bystander"]
        bystander = stack.enter_context(subprocess.Popen(sleeper))
        stack.callback(bystander.kill)
        stack.callback(libc.shmctl, memory, 0, None)
        yield secret, tcp.getsockname()[1]
        assert bystander.poll() is None


def attempts(tmp_path, outside) -> Path:
    secret, port = outside
    place = tmp_path / "place"
    place.mkdir()
    values = {
        "SECRETS": [str(path) for path in (secret, *SECRETS)],
        "PLACE": str(place),
        "PORT": port,
        "DEES": SEED[::-1],
    }
    head = "".join(f"{name} = {value!r}\n" for name, value in values.items())
    file = tmp_path / "code" / "attempts.py"
    file.parent.mkdir()
    file.write_text(head + (HOSTILE / "attempts.txt").read_text())
    return file


def run(system: str, user: str, *arguments: object) -> str:
    """What a command of the oracle says on another system, in one line."""
    command = [sys.executable, HERE / "elsewhere.py", system, user, sys.executable, "-m"]
    ended = subprocess.run(
        [*map(str, command), "refgf.oracle", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"SECRET_TOKEN": "x", "PYTHONDONTWRITEBYTECODE": "1"},
        timeout=300,
    )
    assert ended.returncode in (0, 1), ended.stdout + ended.stderr
    return " ".join((ended.stdout + ended.stderr).split())


ELSEWHERE = [
    (system, user) for system in ("namespaces", "root's", "none") for user in ("0", "1000")
]


@pytest.mark.parametrize("system, user", ELSEWHERE)
@pytest.mark.parametrize("command", ["grade", "verify"])
def test_no_way_out(tmp_path, outside, command, system, user):
    if not can(system, user):
        pytest.skip("this machine has no user namespaces to try it in")
    file = attempts(tmp_path, outside)
    words = ["grade", "01", file, "--seed", SEED]
    if command == "verify":
        words = ["verify", "--python", file, "--only", "slice_bounds", "--random", "0"]
    said = run(system, user, *words)
    tried = re.search(r"succeeded: (\[.*?\]) of (\d+)", said)
    whole = system == "namespaces" or (system == "root's" and user == "0")
    whole = whole or (command == "grade" and has_landlock())
    assert tried and int(tried[2]) > 50, said
    assert ("not safe here" in said) is not whole, said
    if whole:
        assert tried[1] == "[]", said
    assert list((tmp_path / "place").iterdir()) == []
    assert json.loads(outside[0].read_text()) == {"seed": int(SEED)}
    assert not Path("/tmp/refgf-hostile").exists() and not Path("/dev/shm/refgf-hostile").exists()
