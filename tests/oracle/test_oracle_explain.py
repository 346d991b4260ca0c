"""`explain` names the order that gave a result, and says so where none did."""

import re

import numpy as np
import pytest

from refgf.comm import direct, ring, tree
from refgf.comm.replay import replay
from refgf.oracle.__main__ import main
from refgf.oracle.definitions import (
    direct_allreduce,
    lazy_allreduce,
    on_wire,
    ring_allreduce,
    slice_bounds,
)
from refgf.oracle.foreign.files import write_tensors
from refgf.oracle.judge.explain import explain, explained
from refgf.oracle.judge.orders import ORDERS
from refgf.oracle.spec.draw import random_source
from refgf.oracle.spec.families import inputs
from refgf.papers.jia import doubling

P, N = 6, 200
XS = list(inputs("sensitive", P, N, "float32", random_source("explain"), "float16"))
SHARES = [x / np.float32(P) for x in XS]
NAMES = {
    "ring": ring.allreduce,
    "rank order": direct.allreduce,
    "recursive doubling or halving-doubling, nearest first": doubling.recursive_doubling,
    "binomial tree": tree.allreduce,
}


@pytest.mark.parametrize("order", NAMES)
def test_the_projects_algorithms_are_named(order):
    for algorithm in {
        NAMES[order],
        doubling.halving_doubling if "halving" in order else NAMES[order],
    }:
        result = replay([algorithm(r, P, N) for r in range(P)], XS)
        told = explain(XS, np.stack(result))
        assert told[0].startswith("these orders") and f"  {order}, sums in float32" in told


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (ring_allreduce(XS, "float16")[0], "ring, float16 on the wire at each hop"),
        (direct_allreduce(XS, "float16")[0], "rank order, inputs and result rounded to float16"),
        (
            ring_allreduce([on_wire(x, "bfloat16") for x in XS], "bfloat16")[0],
            "ring, sums in bfloat16",
        ),
        (ring_allreduce(SHARES)[0], "ring, sums in float32, divided by p before"),
        (ring_allreduce(XS)[0] / np.float32(P), "ring, sums in float32, divided by p after"),
        (
            ring_allreduce(XS)[0] / np.float32(P) / np.float32(P),
            "ring, sums in float32, divided by p twice",
        ),
        (ring_allreduce(XS)[0] / np.float32(P * P), "ring, sums in float32, divided by p times p"),
        (
            ring_allreduce(SHARES)[0] / np.float32(P),
            "ring, sums in float32, divided by p before and after",
        ),
        (sum(x.astype(np.float64) for x in XS).astype(np.float32), "rank order, sums in float64"),
    ],
)
def test_rounding_and_division_are_named(result, told):
    assert f"  {told}" in explain(XS, result)


def test_pieces_are_named_where_no_order_gives_all():
    """Another cut of the ring: a fold from each rank, piece by piece."""
    result, edges = np.empty(N, np.float32), [0, 90, 150, N]
    for rank, (i, j) in enumerate(zip(edges, edges[1:])):
        total = XS[rank][i:j]
        for k in range(1, P):
            total = total + XS[(rank + k) % P][i:j]
        result[i:j] = total
    told = "\n".join(explain(XS, result))
    # a piece may end a few elements late, where the next fold has the same bits
    assert "no known order" in told
    assert re.search(
        r"elements 0\.\.9\d: rank order, .*\n"
        r"  elements 9\d\.\.15\d: fold from rank 1 up.*\n  elements 15",
        told,
    )
    assert "every element is within the bound" in told


def test_one_order_that_no_algorithm_has_is_no_piece():
    """A fold from rank 3 up, of all elements."""
    told = explain(XS, direct_allreduce(XS[3:] + XS[:3])[0])
    assert told[:2] == [
        "one order gives exactly this result, not that of a known algorithm:",
        f"  elements 0..{N - 1}: fold from rank 3 up, sums in float32",
    ]


def test_ranks_that_differ_and_what_is_no_sum_are_told():
    result = np.stack(ring_allreduce(XS))
    result[3, 5] += 1000
    assert explain(XS, result)[0] == "rank 3 holds other bits than rank 0"
    assert explained(XS, result)[1] is False
    told = explain(XS, np.full(N, 12345.678, np.float32))
    assert f"elements 0..{N - 1}: nothing known" in told[1]
    assert "farther from the exact sum" in told[-1]


ROTATED = np.stack([direct_allreduce(XS[r:] + XS[:r])[r] for r in range(P)])


@pytest.mark.parametrize(
    ("result", "code", "told"),
    [
        (sum(XS[1:-1], XS[0]), 1, "elements are farther from the exact sum than any order"),
        (sum(XS[1:], XS[0] + XS[3]), 1, "elements are farther from the exact sum than any order"),
        (ROTATED, 1, "rank 2 holds other bits than rank 0: fold from rank 2 up, sums in float32"),
        (ROTATED, 1, "wrong: all ranks must end with the same bits (R4)"),
        (ROTATED, 1, "these orders give exactly rank 0's result (1):\n  rank order, sums in"),
        (ring_allreduce(XS)[0] / np.float32(P) / np.float32(P), 1, "wrong: a mean is divided by p"),
        (ring_allreduce(XS)[0] / np.float32(P), 0, "divided by p after"),
        ((XS[4] + XS[0]) + ((XS[1] + XS[5]) + (XS[3] + XS[2])), 0, "every element is within the"),
        (lazy_allreduce(XS, [40, 61, 99], 0, "float16")[0], 0, "a ring of its own, float16 on"),
        (np.stack(XS), 1, "wrong: all ranks must end"),
    ],
)
def test_the_exit_code_says_whether_it_is_a_sum_of_all_ranks(result, code, told, tmp_path, capsys):
    write_tensors(tmp_path / "x.safetensors", {"in.x": np.stack(XS), "out.x": result})
    assert main(["explain", str(tmp_path / "x.safetensors")]) == code
    assert told in capsys.readouterr().out


def test_the_command_line(tmp_path, capsys):
    write_tensors(
        tmp_path / "x.safetensors", {"in.x": np.stack(XS), "out.x": ring_allreduce(XS)[0]}
    )
    assert main(["explain", str(tmp_path / "x.safetensors")]) == 0
    assert "ring, sums in float32" in capsys.readouterr().out
    write_tensors(tmp_path / "y.safetensors", {"in.x": np.stack(XS)})
    assert main(["explain", str(tmp_path / "y.safetensors")]) == 2
    write_tensors(
        tmp_path / "z.safetensors", {"in.x": np.stack(XS), "out.x": np.zeros(3, np.float32)}
    )
    assert main(["explain", str(tmp_path / "z.safetensors")]) == 2


def test_slices_of_the_ring_are_the_pieces_it_is_made_of():
    assert slice_bounds(N, P)[0] == (0, 34)


@pytest.mark.parametrize(
    ("x", "result"),
    [
        (np.zeros((0, 3)), np.zeros(3)),
        (np.zeros((5, 3)), np.zeros((3, 3))),
        (np.zeros((5, 3)), np.zeros((5, 1, 3))),
    ],
)
def test_shapes_that_are_no_allreduce_are_refused(x, result, tmp_path, capsys):
    write_tensors(tmp_path / "x.safetensors", {"in.x": x, "out.x": result})
    assert main(["explain", str(tmp_path / "x.safetensors")]) == 2
    assert "wanted" in capsys.readouterr().err


@pytest.mark.parametrize("tail", [0, 30])
@pytest.mark.parametrize("wire", [None, "float16"])
def test_a_lazy_allreduce_is_told_by_its_calls(tail, wire):
    """Four rings, the last of which may be forgotten: no list of unrelated orders."""
    sizes = [40, 61, 69, 30]
    result = np.stack(lazy_allreduce(XS, sizes, 0, wire))
    told = explain(XS, result)
    if tail:
        result[:, -tail:] = np.stack(XS)[:, -tail:]
        told = explain(XS, result)
    lines = [
        re.fullmatch(r"  elements (\d+)\.\.(\d+): (.*)", line).groups()
        for line in told
        if line.startswith("  elements")
    ]
    arithmetic = "sums in float32" if wire is None else "float16 on the wire at each hop"
    calls, what = [40, 101, 170, 200], [f"a ring of its own, {arithmetic}"] * 4
    what[3] = "not summed, every rank has its own" if tail else what[3]
    assert [line[2] for line in lines] == what
    assert all(abs(int(line[1]) + 1 - stop) <= 1 for line, stop in zip(lines, calls)), (
        "one off where both cuts fit"
    )


@pytest.mark.parametrize("p, n", [(500, 1), (65, 1), (2, 1 << 19)])
def test_what_would_take_minutes_is_refused_at_once(p, n, tmp_path, capsys):
    tensors = {"in.x": np.ones((p, n), np.float32), "out.x": np.ones(n, np.float32)}
    write_tensors(tmp_path / "x.safetensors", tensors)
    assert main(["explain", str(tmp_path / "x.safetensors")]) == 2
    assert "wanted at" in capsys.readouterr().err


@pytest.mark.parametrize("p, n", [(5, 3), (3, 0), (7, 1), (4, 9)])
@pytest.mark.parametrize("name", ["ring", "ring backwards", "ring, rank r owns slice r"])
def test_rings_of_any_length_are_folds_of_their_slices(p, n, name):
    """Also where slices are empty or unequal."""
    first, step = {"ring": (0, 1), "ring backwards": (0, -1)}.get(name, (1, 1))
    xs = list(np.random.default_rng([p, n]).standard_normal((p, n)).astype(np.float32))
    wanted = np.empty(n, np.float32)
    for s, (i, j) in enumerate(slice_bounds(n, p)):
        total = xs[(s + first) % p][i:j]
        for k in range(1, p):
            total = total + xs[(s + first + step * k) % p][i:j]
        wanted[i:j] = total
    assert ORDERS[name](xs, np.add).tobytes() == wanted.tobytes()
