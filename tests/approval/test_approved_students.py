"""What is said to students about wrong functions: each report of one function, in this process.

python -m pytest tests/approval/test_approved_students.py --snapshot-update
"""

import pytest

from refgf.oracle.grade import marking, report
from tests.approval.test_approved import approved  # noqa: F401  a fixture
from tests.support.students import InThisProcess, answers_with

SENDS_AND_RECEIVES = """
def allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left, got = (rank + 1) % size, (rank - 1) % size, np.empty_like(x)
    for _ in range(size - {}):
        {}
        x {} got
"""
STEPS = {
    "a send without Wait": "comm.Isend(x.copy(), right); comm.Recv(got, left)",
    "a receive without Wait": "comm.Irecv(got, left); comm.Isend(x, right)",
    "Sendrecv without tags": "comm.Sendrecv(x, right, got, left)",
    "Send with the rank first": "comm.Send(right, x)",
    "Irecv with the rank first": "comm.Irecv(left, got)",
}
RIGHT_STEP = "comm.Sendrecv(x, right, 0, got, left, 0)"
AFTER = """
RIGHT = allreduce
def allreduce(comm, x):
    own = x.copy()
    RIGHT(comm, x)
    if comm.Get_size() > 1:
        {}
"""
CHANGES = {
    "the mean": "x /= comm.Get_size()",
    "twice the sum": "x *= 2",
    "p times the sum": "x *= comm.Get_size()",
    "without its own numbers": "x -= own",
    "its own numbers twice": "x += own",
    "another last digit": "x[...] = np.nextafter(x, np.float32(9))",
}
RING = """
def allreduce(comm, x):
    r, p = comm.Get_rank(), comm.Get_size()
    cut = {cut}
    for shift in (0, 1):
        for t in range(p - 1):
            ks = t, {expected}
            (a, b), (c, d) = (cut[(r + {turn} * ({moved} * shift - k)) % p] for k in ks)
            got = np.empty(d - c, x.dtype)
            comm.Sendrecv({sent}, (r + {turn} * {right}) % p, 0, got, (r - {turn} * {right}) % p, 0)
            x[c:d] = {new}
"""
PLAIN = {
    "cut": "slices(x.size, p)",
    "turn": 1,
    "moved": 1,
    "right": 1,
    "expected": "t + 1",
    "new": "got if shift else x[c:d] + got",
}
RINGS = {
    "right": {},
    "backwards": {"turn": -1},
    "begins its allgather with slice rank": {"moved": 0},
    "adds in the allgather": {"new": "x[c:d] + got"},
    "neighbours swapped": {"right": -1},
    "expects the slice after": {"expected": "t - 1 + 2 * shift"},
    "expects other slices, without a name": {"expected": "t - 2 + 3 * shift"},
    "overwrites": {"new": "got"},
    "slices of n // p": {"cut": "[(i * (x.size // p), (i + 1) * (x.size // p)) for i in range(p)]"},
    "begins with another slice": {"cut": "[slices(x.size, p)[(i + 1) % p] for i in range(p)]"},
}
WRAPPED = "\nRIGHT = {0}\ndef {0}{1}:\n    {2}\n"


def around(lesson, name, arguments, body):
    """A function that has the right one as RIGHT."""
    return lesson, name, WRAPPED.format(name, arguments, body)


def alone(lesson, name, arguments, body):
    return lesson, name, f"\ndef {name}{arguments}:\n    {body}\n"


OTHERS = {
    "right values, sends without Wait": (
        "00",
        "sum_of_ranks",
        """
def sum_of_ranks(comm, x):
    other = np.empty_like(x)
    if comm.Get_rank():
        comm.Isend(x.copy(), 0)
        comm.Recv(x, 0)
        return
    for source in range(1, comm.Get_size()):
        comm.Recv(other, source)
        x += other
    for dest in range(1, comm.Get_size()):
        comm.Isend(x, dest).Wait()
""",
    ),
    "a mean in lesson 00": around(
        "00", "sum_of_ranks", "(comm, x)", "RIGHT(comm, x); x /= comm.Get_size()"
    ),
    "nothing": alone("01", "allreduce", "(comm, x)", "pass"),
    "changes its weights": around(
        "00",
        "step_on_ranks",
        "(w, xs, ys, rate)",
        "w[...] = RIGHT(w.copy(), xs, ys, rate)[0]\n    return [w] * len(xs)",
    ),
    "x for x.T, which fails": alone(
        "00", "gradient", "(w, x, y)", "return x @ (x @ w - y) / len(y)"
    ),
    "2p messages": around("01", "ring_cost", "(n, p, rank)", "return 2 * p, RIGHT(n, p, rank)[1]"),
    "bytes for elements": around(
        "01",
        "ring_cost",
        "(n, p, rank)",
        "messages, elements = RIGHT(n, p, rank)\n    return messages, 4 * elements",
    ),
    "one phase": alone(
        "01",
        "ring_cost",
        "(n, p, rank)",
        "a, b = slices(n, p)[(rank + 1) % p]\n    return (p - 1, n - (b - a)) if p > 1 else (0, 0)",
    ),
    "no latency": alone("03", "step_seconds", "(calls, compute_s, a, b)", "return compute_s"),
    "one call": alone("03", "lazy_calls", "(sizes, theta)", "return [(0, sum(sizes))]"),
    "one call but for theta = 0": alone(
        "03",
        "lazy_calls",
        "(sizes, theta)",
        "return ([(0, 2), (2, 5)] if theta == 0 else [(0, sum(sizes))]) if sizes else []",
    ),
    "elements with theta": around(
        "03", "lazy_calls", "(sizes, theta)", "return RIGHT(sizes, 4 * theta)"
    ),
    "ends a second late": around(
        "04",
        "calls_with_overlap",
        "(*a)",
        "return [(start, end + 1.0) for start, end in RIGHT(*a)]",
    ),
    "never doubles": around(
        "05",
        "next_scale",
        "(scale, good_steps, finite, interval)",
        "return RIGHT(scale, good_steps, finite, 2 * interval + 1)",
    ),
    "the first chunk": alone("06", "choose", "(values, percent)", "return [0]"),
    "the first chunk in an array": alone(
        "06", "choose", "(values, percent)", "return np.array([0])"
    ),
    "another last digit of a norm": around(
        "06", "importance", "(waiting, chunk)", "return RIGHT(waiting, chunk) * (1 + 1e-9)"
    ),
    "nothing of long arrays": around(
        "06",
        "importance",
        "(waiting, chunk)",
        "return RIGHT(waiting, chunk) * (waiting[0].size < 30)",
    ),
}
CASES = {
    **{name: SENDS_AND_RECEIVES.format(1, step, "+=") for name, step in STEPS.items()},
    "a round too few": SENDS_AND_RECEIVES.format(2, RIGHT_STEP, "+"),
    "a sum that is not kept": SENDS_AND_RECEIVES.format(1, RIGHT_STEP, "+"),
    **{name: AFTER.format(change) for name, change in CHANGES.items()},
}
CASES = {name: ("01", "allreduce", code) for name, code in CASES.items()} | OTHERS


@pytest.fixture
def said(tmp_path, monkeypatch):
    """(lesson, exercise, code of a function) -> the report of its marks"""
    monkeypatch.setattr(marking, "Sandbox", InThisProcess)

    def tell(lesson, name, code):
        return report.as_text([answers_with(tmp_path, lesson, code, only=name)[name]])

    return tell


def test_wrong_functions(approved, said):  # noqa: F811
    assert "\n".join(f"== {name}\n{said(*case)}" for name, case in CASES.items()) == approved


def test_rings(approved, said):  # noqa: F811
    """The same whether slices of x are sent or copies of them."""
    found = []
    for name, change in RINGS.items():
        texts = {
            said("01", "allreduce", RING.format(**PLAIN | change, sent=sent))
            for sent in ("x[a:b]", "x[a:b].copy()")
        }
        found += [f"== {name}", *sorted(texts)]
    assert "\n".join(found) == approved
