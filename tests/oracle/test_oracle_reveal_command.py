"""`reveal` as a command: what it says of wrong input. What it prints: tests/approval."""

import pytest

from refgf.oracle.__main__ import main

FILE = """
import signal
def allreduce(xs):
    total = xs[0]
    for x in xs[1:]:
        total = total + x
    return [total] * len(xs)
def slow(xs):
    while True: pass
def unstoppable(xs):
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    while True: pass
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


def test_bfloat16(command):
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
        (
            ("--python", "FILE", "--function", "slow", "--timeout", "0.2"),
            "did not end within 0.2 s",
        ),
        (
            ("--python", "FILE", "--function", "unstoppable", "--timeout", "0.2"),
            "unstoppable: did not end within 0.2 s, inside a call that Python cannot interrupt",
        ),
    ],
)
def test_wrong_input_gets_a_sentence(command, options, says):
    code, out = command(*options)
    assert code == 2 and says in out and "Traceback" not in out
