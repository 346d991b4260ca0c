"""A long run says before how long it takes, counts on a terminal only, and keeps its tables."""

import io
import json
import os
import pty
import subprocess
import sys
import threading
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

from kit import waiting
from kit.record import kept
from kit.waiting import ERASE, estimate, in_words, on_terminal
from tests.support.jobs import run_job

ROOT = Path(__file__).resolve().parents[2]
LESSON = ROOT / "lessons" / "00_two_ranks.py"


def options(folder, **changed):
    sizes = {"quick": False, "full": False}
    return Namespace(lesson="00_two_ranks", output=folder, **(sizes | changed))


def test_the_last_run_of_this_size_tells_how_long(tmp_path):
    took_s = json.loads((ROOT / "figures" / "00_two_ranks.json").read_text())["took_s"]
    assert estimate(options(tmp_path)) == (
        took_s,
        "on 2 ranks, where the committed figure was measured",
    )
    assert estimate(options(tmp_path, full=True)) is None
    saved = {"options": {"quick": False, "full": True}, "took_s": 321.4, "ranks": 1}
    (tmp_path / "00_two_ranks.json").write_text(json.dumps(saved))
    assert estimate(options(tmp_path, full=True)) == (321.4, "on 1 rank, as the last run here")
    assert estimate(options(tmp_path))[0] == took_s  # of another size
    saved |= {"options": {"quick": False, "full": True, "pairs": 10}}
    (tmp_path / "00_two_ranks.json").write_text(json.dumps(saved))
    last = "on 1 rank, as the last run here"
    for given, said in ((10, last), (0, f"{last} with --pairs 10")):
        assert estimate(options(tmp_path, full=True, pairs=given))[1] == said
    for damaged in ("{", "[]", '{"options": 3}'):
        (tmp_path / "00_two_ranks.json").write_text(damaged)
        assert estimate(options(tmp_path, full=True)) is None


def test_the_sentence_before():
    log = Path("results/03.txt")
    assert in_words((9.0, "as the last run here"), log) == in_words(None, log) == ""
    said = in_words((82.4, "as the last run here"), log)
    assert said == (
        f"This takes about 82 s, as the last run here. Tables as they come: {log}; "
        "numbers of each section that has ended: 03.part"
    )
    assert "longer with your functions" in in_words((82.4, ""), log, mine=True)


def test_ctrl_c_loses_one_section(tmp_path):
    def measure():
        yield {"first": np.float64(1.0)}
        yield {"second": float("inf")}
        raise KeyboardInterrupt

    path = tmp_path / "03.part"
    with pytest.raises(KeyboardInterrupt):
        kept(0, measure(), path)
    assert json.loads(path.read_text()) == {"first": 1.0, "second": "inf"}


def test_the_counter_leaves_the_titles(monkeypatch):
    """What a terminal shows in the end is what a pipe gets."""
    monkeypatch.setattr(waiting, "on_terminal", lambda: True)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    run = Namespace(rank=0, verbose=False, line="The oracle ... ", screen=threading.Lock())
    run.erase = lambda: print(f"{ERASE}{run.line}", end="")
    with waiting.Counter(run, (80.0, "")) as _:
        threading.Event().wait(1.3)
    text = sys.stdout.getvalue()
    assert "[1 s of about 80 s]" in text and text.endswith(f"{ERASE}{run.line}")
    assert not run.counts


def test_nothing_counts_in_a_pipe(tmp_path):
    job = run_job(2, [str(LESSON), "--quick", "--output", str(tmp_path)], timeout=120)
    assert job.code == 0 and "\r" not in job.stdout and not on_terminal()
    tables = (tmp_path / "00_two_ranks.txt").read_text()
    assert "== The oracle ==" in tables and "== The oracle ==" not in job.stdout


@pytest.mark.long
@pytest.mark.parametrize("through", [[], ["mpiexec", "-n", "2"]])
def test_a_terminal_counts(tmp_path, through):
    """Through mpiexec, too, whose ranks write into a pipe."""
    mpiexec = [str(Path(sys.executable).with_name(name)) for name in through[:1]]
    command = [*mpiexec, *through[1:], sys.executable, str(LESSON), "--quick"]
    command += ["--output", str(tmp_path), *([] if through else ["--threads", "2"])]
    end, terminal = pty.openpty()
    job = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=terminal, stderr=terminal)
    os.close(terminal)
    text = b""
    try:
        while part := os.read(end, 4096):
            text += part
    except OSError:  # the other end is closed
        pass
    assert job.wait(60) == 0
    assert ERASE.encode() in text and b"numbers: " in text
