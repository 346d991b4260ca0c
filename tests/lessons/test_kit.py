"""Small functions that lessons share: an argument, and the timing of calls."""

import argparse
import json
import math
import os
import subprocess
import sys
from argparse import Namespace

import numpy as np
import pytest

import kit
from kit import call_times, record, words
from refgf.machine import threads


@pytest.mark.parametrize("size, text", [(1, "1 node x 1 rank;"), (3, "1 node x 3 ranks;")])
def test_one_rank_is_no_plural(size, text):
    options = Namespace(link=None, threads=size, like="mgwfbp-10gbe")
    places = threads.run(size, lambda comm: words.place(comm, options))
    assert all(place.startswith(text) for place in places)
    assert f"{words.number_of_ranks(size)};" in text


def test_theta_as_an_argument():
    assert [kit.threshold_bytes(text) for text in ("0", "65536", "1e6", "inf")] == [
        0,
        65536,
        1e6,
        math.inf,
    ]


@pytest.mark.parametrize("text", ["-1", "nan", "much", ""])
def test_an_invalid_theta_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="wanted bytes >= 0"):
        kit.threshold_bytes(text)


@pytest.mark.parametrize("size", [1, 3])
def test_calls_are_timed_for_each_size_on_all_ranks(size):
    """One warm-up, then the repeats, more for short calls; all ranks report the same times."""

    def body(comm):
        run, called = kit.Run(comm, Namespace(link=None, threads=size)), []
        times = call_times.measure(run, lambda x: called.append(x), [70_000, 3, 3], repeats=2)
        return times, [(x.size, x.dtype) for x in called], call_times.fit(run, times)

    (times, called, fit), *others = threads.run(size, body)
    assert all(other[0] == times for other in others)
    assert called == [(3, np.float32)] * 11 + [(70_000, np.float32)] * 3
    assert [timing.repeats for timing in times.values()] == [10, 2] and fit.points == 2


@pytest.mark.parametrize("given, wanted", [(None, "1"), ("0", "0")])
def test_a_quick_lesson_compiles_no_loop(given, wanted, monkeypatch):
    """Compiling takes each of 8 ranks seconds; who sets the variable decides."""
    monkeypatch.setenv("NUMBA_DISABLE_JIT", given or "")
    monkeypatch.setattr(sys, "argv", ["03_x.py", "--quick", "--threads", "2"])
    if given is None:
        monkeypatch.delenv("NUMBA_DISABLE_JIT")
    kit.Lesson("03_x.py", "", None)._parse()
    assert os.environ["NUMBA_DISABLE_JIT"] == wanted


def test_rank_0_alone_reads_what_the_last_run_saved(tmp_path, monkeypatch):
    """The hash of the code takes a second of a core, and ranks share cores."""
    saved, hashed = {"measured_with": "now"}, []
    monkeypatch.setattr("kit.run.code_hash", lambda lesson: hashed.append(lesson) or "now")
    (tmp_path / "03_x.json").write_text(json.dumps(saved))
    options = Namespace(link=None, threads=3, output=tmp_path, lesson="03_x")
    found = threads.run(3, lambda comm: kit.Run(comm, options).earlier())
    assert found == [saved, {}, {}] and len(hashed) == 1


def test_a_lesson_starts_without_scipy():
    """All ranks import what a lesson imports; SciPy takes 0.15 s of a core on each of them."""
    code = "import sys, kit, kit.trials; print('scipy' in sys.modules)"
    command = [sys.executable, "-c", code]
    cwd = record.ROOT / "lessons"
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("unit, s", [("s", 1.0), ("ms", 1e-3), ("us", 1e-6)])
def test_seconds_round_up_to_the_next_unit(unit, s):
    assert words.seconds(0.9996 * s) == f"1 {unit}"
    assert words.seconds(0.9994 * s) == {"s": "999 ms", "ms": "999 us", "us": "0.999 us"}[unit]
