"""Trace checks: matched messages, no deadlock with blocking sends, counts, order and places."""

from dataclasses import replace

from refgf.comm import ring
from refgf.oracle.__main__ import main
from refgf.oracle.definitions import slice_bounds
from refgf.oracle.judge.trace import TraceEvent, check_trace, write_trace
from tests.support.own import traced


def test_the_whole_tensor_round_the_ring_is_told_by_its_bytes():
    p, n = 3, 7
    events = [
        TraceEvent(r, t, *what, 0, n, "float32")
        for r in range(p)
        for t in range(p - 1)
        for what in (("send", (r + 1) % p), ("add", (r - 1) % p))
    ]
    assert check_trace(events, p, n) == []
    start, stop = slice_bounds(n, p)[1]
    wanted = 2 * n - (stop - start) - 2
    assert (
        check_trace(events, p, n, "ring")[0]
        == f"rank 0: sent 2 messages, 14 elements; wanted 4, {wanted}"
    )


def changed(change, algorithm=ring.allreduce, p=4, n=100):
    """The events of a right trace, each as `change` makes it; None leaves one out."""
    return [e for e in map(change, traced(algorithm, p, n)) if e]


def adds_again(e):
    return replace(e, operation="add") if e.operation == "copy" else e


def test_the_command_says_what_was_compared(tmp_path, capsys):
    def said(events, *options):
        write_trace(tmp_path / "t.jsonl", events)
        code = main(["verify", "--trace", str(tmp_path / "t.jsonl"), *options])
        return code, "".join(capsys.readouterr())

    options = "--ranks", "4", "--size", "100", "--algorithm", "ring", "--dtype", "float32"
    code, out = said(changed(lambda e: e), *options)
    assert code == 0 and "24 messages in float32" in out and "compared with R2, R5, R6" in out
    assert "finish" not in out and "not compared: the values" in out
    code, out = said(changed(adds_again), *options)
    assert code == 1 and "right" not in out
    code, out = said([e for e in changed(lambda e: e) if e.operation != "finish"], *options)
    assert code == 0 and "not compared: the rounding of the finished slice" in out
    code, out = said(changed(adds_again))
    assert code == 0 and "not compared: operations, places, messages and elements; next: --a" in out
    code, out = said(changed(lambda e: e), "--algorithm", "ring")
    assert code == 2 and "--algorithm ring without --size" in out
    code, out = said([])
    assert code == 2 and "without events" in out
