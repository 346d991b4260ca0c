"""`explain`: what it refuses, and the orders that it knows. What it says: tests/approval."""

import numpy as np
import pytest

from refgf.oracle.__main__ import main
from refgf.oracle.definitions import (
    slice_bounds,
)
from refgf.oracle.foreign.files import write_tensors
from refgf.oracle.judge.orders import ORDERS


@pytest.mark.parametrize(
    ("x", "result"),
    [
        (np.zeros((0, 3)), np.zeros(3)),
        (np.zeros((5, 3)), np.zeros(4)),
        (np.zeros((5, 3)), np.zeros((3, 3))),
        (np.zeros((5, 3)), np.zeros((5, 1, 3))),
        (np.zeros((5, 3)), None),
    ],
)
def test_shapes_that_are_no_allreduce_are_refused(x, result, tmp_path, capsys):
    tensors = {"in.x": x} if result is None else {"in.x": x, "out.x": result}
    write_tensors(tmp_path / "x.safetensors", tensors)
    assert main(["explain", str(tmp_path / "x.safetensors")]) == 2
    assert "wanted" in capsys.readouterr().err


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
