"""Marks under MPI's rules: what mpiexec refuses, hangs on or leaves undefined loses marks."""

import pytest

from refgf.oracle.grade import marking, report
from tests.support.students import InThisProcess, answers_with

RING = """
def allreduce(comm, x):
    r, p = comm.Get_rank(), comm.Get_size()
    cut, right, left = slices(len(x), p), (r + 1) % p, (r - 1) % p
    for t in range(p - 1):
        (a, b), (c, d) = cut[(r - t) % p], cut[(r - t - 1) % p]
        buf = np.empty(d - c, x.dtype)
        {}
    for t in range(p - 1):
        (a, b), (c, d) = cut[(r + 1 - t) % p], cut[(r - t) % p]
        comm.Sendrecv(x[a:b], right, 0, x[c:d], left, 0)
"""
THROUGH_0 = """
def sum_of_ranks(comm, x):
    r, p = comm.Get_rank(), comm.Get_size()
    if r == 0:
        other = np.empty_like(x)
        for s in range(1, p):
            {}
            x += other
        for d in range(1, p):
            comm.Send(x, d, 2)
    else:
        {}
        comm.Recv(x, 0)
"""
WRONG = {  # what a ring's step does, and the rule of MPI that its sentence names
    "other tags": (
        "comm.Sendrecv(x[a:b], right, t, buf, left, 0); x[c:d] += buf",
        "matches by tag",
    ),
    "a strided view": (
        "y = np.stack([x, x], axis=1)[:, 0]; comm.Sendrecv(y[a:b], right, 0, buf, left, 0)",
        "not contiguous",
    ),
    "changed before Wait": (
        "q = comm.Isend(x[a:b], right); x[a:b] = 0; comm.Recv(buf, left); q.Wait(); x[c:d] += buf",
        "changed before Wait",
    ),
    "the array of an Irecv changed before Wait": (
        "q = comm.Irecv(buf, left); buf[:] = 0; comm.Send(x[a:b], right); q.Wait(); x[c:d] += buf",
        "changed before Wait",
    ),
    "the array of an Irecv read before Wait": (
        "q = comm.Irecv(buf, left); comm.Send(x[a:b], right); x[c:d] += buf; q.Wait()",
        "holds nan until its Wait",
    ),
    "an error that is caught": (
        "comm.Barrier(); q = comm.Isend(x[a:b], right); x[a:b] += 1; comm.Recv(buf, left)\n"
        "        try: q.Wait()\n        except ValueError: x[a:b] -= 1\n        x[c:d] += buf",
        "changed before Wait",
    ),
    "overlapping arrays": (
        "m = np.empty(len(x), x.dtype); m[:b - a] = x[a:b]; "
        "comm.Sendrecv(m[:b - a], right, 0, m[:d - c], left, 0); x[c:d] += m[:d - c]",
        "arrays that overlap",
    ),
    "an array that an Isend still uses": (
        "m = x[a:b].copy(); q = comm.Isend(m, right); comm.Recv(m, left)",
        "still uses; wanted its Wait before",
    ),
    "all send first": (
        "comm.Send(x[a:b], right); comm.Recv(buf, left); x[c:d] += buf",
        "MPI may wait in Send until the receive is posted",
    ),
    "a read-only array": (
        "buf.flags.writeable = False; comm.Sendrecv(x[a:b], right, 0, buf, left, 0)",
        "read-only array to receive into",
    ),
    "a list": ("comm.Sendrecv(list(x[a:b]), right, 0, buf, left, 0)", "got list in the place of"),
    "None": ("comm.Sendrecv(x[a:b], right, 0, None, left, 0)", "got NoneType in the place of"),
    "Python objects": ("comm.Send(x[a:b].astype(object), right)", "wanted numbers"),
    "another type": (
        "buf = np.empty(d - c, 'i4'); comm.Sendrecv(x[a:b], right, 0, buf, left, 0)",
        "does not convert",
    ),
    "too small an array": (
        "buf = np.empty(0, 'f4'); comm.Sendrecv(x[a:b], right, 0, buf, left, 0)",
        "wanted at most the receiver's 0",
    ),
    "a rank below 0": ("comm.Sendrecv(x[a:b], right, 0, buf, r - 1, 0)", "got peer -1; wanted a"),
    "a tag below 0": ("comm.Sendrecv(x[a:b], right, -1, buf, left, 0)", "got tag -1; wanted a"),
    "a barrier that rank 0 leaves out": ("r and comm.Barrier()", "waits in Barrier for rank 0"),
}
RIGHT = {
    "odd ranks receive first": "[comm.Send(x[a:b], right), comm.Recv(buf, left)] if r % 2 == 0 "
    "else [comm.Recv(buf, left), comm.Send(x[a:b], right)]",
    "keywords": "comm.Sendrecv(x[a:b], dest=right, recvbuf=buf, source=left)",
    "negative indices, attributes": "a, b = cut[comm.rank - t]; c, d = cut[comm.rank - t - 1]; "
    "comm.Sendrecv(x[a:b], right, 0, buf, left, 0)",
    "Irecv first": "q = comm.Irecv(buf, left); comm.Send(x[a:b], right); q.Wait()",
    "any rank, any tag": "q = comm.Isend(x[a:b], right, t); comm.Recv(buf); q.Wait()",
    "Test": "q = comm.Isend(x[a:b], right); comm.Recv(buf, left)\n        while not q.Test(): pass",
    "Waitall": "q = [comm.Irecv(buf, left), comm.Isend(x[a:b], right)]; type(q[0]).Waitall(q)",
    "a larger array": "big = np.empty(d - c + 2, x.dtype); "
    "comm.Sendrecv(x[a:b], right, 0, big, left, 0); buf = big[:d - c]",
    "its own tag for each step": "comm.Sendrecv(x[a:b], right, t + 3, buf, left, t + 3)",
    "prints": "print(x); comm.Barrier(); comm.Sendrecv(x[a:b], right, 0, buf, left, 0)",
}


@pytest.fixture(params=["threads", pytest.param("processes", marks=pytest.mark.long)])
def marks(request, tmp_path, monkeypatch):
    """(lesson, code, name of the exercise) -> its mark; a rank is a thread, or a process."""
    if request.param == "threads":
        monkeypatch.setattr(marking, "Sandbox", InThisProcess)

    return lambda lesson, code, name: answers_with(tmp_path, lesson, code, only=name)[name]


@pytest.mark.parametrize("what", WRONG)
def test_a_ring_that_breaks_a_rule_of_mpi(marks, what):
    step, rule = WRONG[what]
    mark = marks("01", RING.format(step), "allreduce")
    assert mark.points < mark.of
    assert rule in mark.parts[0].sentence


@pytest.mark.parametrize("what", RIGHT)
def test_an_unusual_but_right_ring(marks, what):
    mark = marks("01", RING.format(RIGHT[what] + "\n        x[c:d] += buf"), "allreduce")
    assert mark.points == mark.of, report.as_text([mark])


SHARED = """
BOX = []
def allreduce(comm, x):
    BOX.append(x.copy())
    comm.Barrier()
    x[...] = sum(BOX)
"""


def test_ranks_share_no_variables(marks):
    """As processes: scratch memory of the module is each rank's own, and a shared box is not."""
    step = "buf = SCRATCH.setdefault(len(x), np.empty(len(x), x.dtype))[:d - c]; "
    step += "comm.Sendrecv(x[a:b], right, 0, buf, left, 0); comm.Barrier(); x[c:d] += buf"
    mark = marks("01", "\nSCRATCH = {}\n" + RING.format(step), "allreduce")
    assert mark.points == mark.of, report.as_text([mark])
    assert marks("01", SHARED, "allreduce").parts[0].points == 0


def test_tags_that_never_meet(marks):
    code = THROUGH_0.format("comm.Recv(other, s, 1)", "comm.Send(x, 0, 5)")
    mark = marks("00", code, "sum_of_ranks")
    assert "rank 1 sends tag 5 to rank 0, which receives tag 1" in mark.parts[0].sentence
    right = THROUGH_0.format("comm.Recv(other, s, 5)", "comm.Send(x, 0, 5)")
    assert marks("00", right, "sum_of_ranks").points == mark.of


def test_an_order_that_depends_on_the_first_to_come(marks):
    mark = marks("00", THROUGH_0.format("comm.Recv(other)", "comm.Send(x, 0)"), "sum_of_ranks")
    assert [part.what for part in mark.parts if part.points < part.of] == ["bits"]
    assert mark.parts[1].sentence.startswith("your sums depend on which message comes first")


def test_the_first_wrong_message_is_told_with_an_error(marks):
    """The ring runs to the left, and its receives expect other slices than come."""
    step = "comm.Sendrecv(x[a:b], left, 0, buf, right, 0); x[c:d] += buf"
    sentence = marks("01", RING.format(step), "allreduce").parts[0].sentence
    assert "its first wrong message: rank 0, message 0: elements 0..2 to rank 2" in sentence
