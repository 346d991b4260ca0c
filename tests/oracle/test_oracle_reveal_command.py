"""`reveal` as a command: what it prints, and what it says of wrong input."""

import pytest

from refgf.oracle.__main__ import main

FILE = """
import os, signal
import numpy as np
calls = []
def allreduce(xs):
    total = xs[0]
    for x in xs[1:]:
        total = total + x
    return [total] * len(xs)
def ranks(comm, x):
    total = x.copy()
    got = np.empty_like(x)
    for k in range(1, comm.Get_size()):
        step = k, comm.Get_size() - k
        to, source = ((comm.Get_rank() + s) % comm.Get_size() for s in step)
        comm.Sendrecv(x, to, 0, got, source, 0)
        total = total + got
    x[...] = total
def reduce_scatter(xs):
    return np.array_split(allreduce(xs)[0], len(xs))
def broken(xs):
    raise KeyError("x")
def short(xs):
    return [x[:1] for x in xs]
def one_array(xs):
    return np.add.reduce(xs)
def in_place(xs):
    total = one_array(xs)
    for x in xs:
        x[...] = total
def slow(xs):
    while True: pass
def aborts(xs):
    os.abort()
def unstoppable(xs):
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    while True: pass
def nothing(xs):
    pass
def to_rank_0(xs):
    xs[0][...] = np.add.reduce(xs)
def third(xs):
    calls.append(1)
    if len(calls) == 3:
        raise KeyError("the third call")
    return allreduce(xs)
def wider(xs):
    return [allreduce(xs)[0].astype(np.float64)] * len(xs)
def whole(xs):
    return [allreduce(xs)[0].astype(np.int64)] * len(xs)
def own_first(xs):
    return [allreduce(xs[r:] + xs[:r])[0] for r in range(len(xs))]
"""


@pytest.fixture
def command(tmp_path, capsys):
    path = tmp_path / "mine.py"
    path.write_text(FILE)

    def run(*options):
        code = main(["reveal", *(str(path) if o == "FILE" else o for o in options)])
        out = capsys.readouterr()
        return code, out.out + out.err

    return run


def test_the_command(command):
    code, out = command("--python", "FILE", "--sizes", "1", "5")
    assert code == 0 and "n = 5: rank order" in out and "elements 0..4: ((0+1)+2)+3" in out
    code, out = command("--python", "FILE", "--function", "reduce_scatter", "--sizes", "9")
    assert code == 0 and "n = 9: rank order" in out
    code, out = command("--python", "FILE", "--function", "ranks", "--ranks", "3", "--sizes", "9")
    assert code == 1 and "rank 1 adds in another order than rank 0" in out, "each begins with own"
    for name in ("one_array", "in_place"):
        code, out = command("--python", "FILE", "--function", name, "--sizes", "1", "4", "9")
        assert code == 0 and "all sizes: the same order: rank order" in out, out
    pytest.importorskip("ml_dtypes", reason="bfloat16 of NumPy arrays needs ml_dtypes")
    code, out = command("--python", "FILE", "--dtype", "bfloat16", "--sizes", "5")
    assert code == 0 and "8 bits: bfloat16" in out


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ((), "got 0 of --python, --mpi, --torch"),
        (("--python", "FILE", "--mpi"), "got 2 of --python, --mpi, --torch"),
        (("--python", "nowhere.py"), "reveal: got nowhere.py: No such file"),
        (("--python", "FILE", "--function", "none"), "without none; wanted a function"),
        (("--python", "FILE", "--ranks", "1"), "got 1 rank, which adds nothing; wanted at least 2"),
        (("--python", "FILE", "--ranks", "257", "--dtype", "bfloat16"), "wanted 2 to 256, because"),
        (("--python", "FILE", "--sizes", "0"), "wanted at least 1 element"),
        (("--python", "FILE", "--repeats", "0"), "wanted at least 1 element and 1 repeat"),
        (("--python", "FILE", "--timeout", "0"), "wanted seconds, more than 0"),
        (("--python", "FILE", "--collective", "reduce_scatter"), "--function reduce_scatter"),
        (("--python", "FILE", "--function", "broken"), "broken raised KeyError"),
        (("--python", "FILE", "--function", "short", "--sizes", "3"), "results of shapes [(1,)]"),
        (
            ("--python", "FILE", "--function", "slow", "--timeout", "0.2"),
            "did not end within 0.2 s",
        ),
        (("--python", "FILE", "--function", "aborts"), "aborts: its process ended with signal SIG"),
        (
            ("--python", "FILE", "--function", "unstoppable", "--timeout", "0.2"),
            "unstoppable: did not end within 0.2 s, inside a call that Python cannot interrupt",
        ),
        (("--python", "FILE", "--function", "nothing"), "nothing returned None and left xs as it"),
        (("--python", "FILE", "--function", "third"), "third raised KeyError: 'the third call'"),
    ],
)
def test_wrong_input_gets_a_sentence(command, options, says):
    code, out = command(*options)
    assert code == 2 and says in out and "Traceback" not in out


def test_each_rank_is_compared_with_its_own_trees(command):
    code, out = command("--python", "FILE", "--function", "own_first", "--sizes", "9")
    assert code == 1 and "rank 2 adds in another order than rank 0" in out
    assert "random numbers: the bits that these trees give" in out, out


@pytest.mark.parametrize(("name", "kind"), [("wider", "float64"), ("whole", "int64")])
def test_results_of_another_type_are_named_and_wrong(command, name, kind):
    code, out = command("--python", "FILE", "--function", name, "--sizes", "9")
    assert code == 1 and f"results: got the type {kind}; wanted float32" in out, out


def test_a_sum_in_place_on_one_rank_is_not_taken_for_nothing(command):
    code, out = command("--python", "FILE", "--function", "to_rank_0", "--sizes", "9")
    assert code == 1 and "no sum of all ranks" in out, out
