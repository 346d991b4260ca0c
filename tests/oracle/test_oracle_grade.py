"""`grade`: separate marks, each of which some wrong answer loses while keeping others."""

import textwrap
import time

import numpy as np
import pytest

from refgf.oracle.__main__ import main
from refgf.oracle.judge import grade as refgf_grade
from refgf.oracle.judge.cases import GOLDEN, load_folder
from refgf.oracle.judge.grade import grade
from refgf.oracle.judge.ranks import run

CASES = load_folder(GOLDEN)
HEAD = """
import numpy as np

def edges(n, p):
    return [n // p * s + min(s, n % p) for s in range(p + 1)]

def parts(comm, x):
    p, e = comm.Get_size(), edges(len(x), comm.Get_size())
    return lambda s: x[e[s % p] : e[s % p + 1]]
"""
RING = """
def allreduce(comm, x):
    p, r, part = comm.Get_size(), comm.Get_rank(), parts(comm, x)
    right, left = (r + 1) % p, (r - 1) % p
    for t in range(p - 1):
        arrived = np.empty_like(part(r - t - 1))
        comm.Sendrecv(part(r - t), right, 0, arrived, left, 0)
        part(r - t - 1)[...] += arrived
    for t in range(p - 1):
        comm.Sendrecv(part(r + 1 - t), right, 0, part(r - t), left, 0)
"""
WHOLE = """
def allreduce(comm, x):
    p, r = comm.Get_size(), comm.Get_rank()
    travelling = x.copy()
    for t in range(p - 1):
        arrived = np.empty_like(x)
        comm.Sendrecv(travelling, (r + 1) % p, 0, arrived, (r - 1) % p, 0)
        x += arrived
        travelling = arrived
"""
BLOCKED = """
def allreduce(comm, x):
    p, r = comm.Get_size(), comm.Get_rank()
    for t in range(p - 1):
        arrived = np.empty_like(x)
        comm.Send(x, (r + 1) % p)
        comm.Recv(arrived, (r - 1) % p)
"""
OUTSIDE = (
    RING
    + """
_ring = allreduce
def allreduce(comm, x):
    _ring(comm, x)
    x.base[0] = 0
"""
)
AVERAGED = (
    RING
    + """
_ring = allreduce
def allreduce(comm, x):
    _ring(comm, x)
    x /= comm.Get_size()
"""
)
NONBLOCKING = RING.replace(
    "comm.Sendrecv(part(r - t), right, 0, arrived, left, 0)",
    """
        requests = [comm.Irecv(arrived, left), comm.Isend(part(r - t), right)]
        for request in requests:
            request.Wait()""",
)
RAISES = """
def allreduce(comm, x):
    if comm.Get_rank() == 1:
        raise IndexError("slice 7")
    if comm.Get_size() > 1:
        comm.Recv(x, (comm.Get_rank() + 1) % comm.Get_size())
"""
EVERYTHING = {"ends", "values", "bits", "schedule", "messages", "bytes", "guard words"}
COUNTED = {"schedule", "messages", "bytes"}


def lost(tmp_path, text, lesson="01"):
    path = tmp_path / "student.py"
    path.write_text(textwrap.dedent(HEAD + text))
    return {mark.what: mark.failure for mark in grade(str(path), lesson, CASES) if mark.failure}


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        (RING, set()),
        (NONBLOCKING, set()),
        (WHOLE, {"bits", *COUNTED}),
        (BLOCKED, EVERYTHING - {"guard words"}),
        (OUTSIDE, {"guard words"}),
        (AVERAGED, {"values", "bits"}),
        (
            RING.replace("range(p - 1):\n        comm", "range(p - 2):\n        comm"),
            {"values", "bits", *COUNTED},
        ),
        (RING.replace("n // p * s + min(s, n % p)", "n // p * s"), set()),
        (RAISES, EVERYTHING - {"guard words"}),
    ],
)
def test_marks_are_separate(tmp_path, text, marks):
    assert set(lost(tmp_path, text)) == marks


def test_the_lost_tail(tmp_path):
    text = RING.replace(
        "def allreduce", "edges = lambda n, p: [n // p * s for s in range(p + 1)]\n\ndef allreduce"
    )
    told = lost(tmp_path, text)
    assert {"values", "bits", "bytes", "schedule"} <= set(told) and "ends" not in told


def test_the_reason_is_told(tmp_path):
    assert "deadlock: rank 0 waits to send to rank 1" in lost(tmp_path, BLOCKED)["ends"]
    assert "rank 1 raised IndexError: slice 7" in lost(tmp_path, RAISES)["ends"]
    assert "looks like: ring, sums in float32, divided by p" in lost(tmp_path, AVERAGED)["bits"]


def test_other_lessons_are_graded_by_their_statements(tmp_path):
    right = "from refgf.oracle.definitions import lazy_calls, lazy_allreduce\n"
    assert lost(tmp_path, right, "03") == {}
    wrong = """
def lazy_calls(sizes, itemsize, theta_bytes):
    calls, start, stop = [], 0, 0
    for size in sizes:
        stop += size
        if (stop - start) * itemsize > theta_bytes:
            calls.append((start, stop))
            start = stop
    return calls
"""
    told = lost(tmp_path, wrong, "03")
    assert set(told) == {"L2"} and "last bucket forgotten (violates L2)" in told["L2"]


def test_an_endless_loop_ends():
    def endless(comm, x):
        while comm.x is not None:
            pass

    xs = [np.zeros(3)]
    comms, told = run(xs, endless, timeout_s=0.5)
    comms[0].x = None  # lets the thread end
    assert "did not end" in told


def test_exit_codes(tmp_path, capsys):
    path = tmp_path / "student.py"
    path.write_text(HEAD + RING)
    assert main(["grade", str(path), "--lesson", "01", "--json", str(tmp_path / "marks.json")]) == 0
    path.write_text(HEAD + WHOLE)
    assert main(["grade", str(path), "--lesson", "01"]) == 1
    assert "FAIL  bytes" in capsys.readouterr().out
    path.write_text("x = 1")
    for lesson in ("01", "03", "99"):
        assert main(["grade", str(path), "--lesson", lesson]) == 2
    path.write_text("def (")
    assert main(["grade", str(path), "--lesson", "01"]) == 2


def test_a_method_that_is_not_there_is_named(tmp_path):
    told = lost(tmp_path, "def allreduce(comm, x):\n    comm.sendrecv(x, 0)\n")
    assert "comm.sendrecv is not there; wanted one of Barrier, Get_rank" in told["ends"]
    assert told["bits"].endswith("not judged: it did not come to its end")


def test_an_endless_student_ends_after_one_run(tmp_path, monkeypatch):
    monkeypatch.setattr(refgf_grade, "run", lambda xs, function: run(xs, function, timeout_s=0.3))
    told = lost(tmp_path, "import time\ndef allreduce(comm, x):\n    time.sleep(3)\n")
    assert "p = 1, n = 5: did not end within 0.3 s" in told["ends"]


def test_several_endless_ranks_share_the_time():
    start_s = time.perf_counter()
    assert "did not end" in run([np.zeros(3)] * 5, lambda comm, x: time.sleep(2), timeout_s=0.3)[1]
    assert time.perf_counter() - start_s < 1
