"""No false alarm: random correct sums and traces pass."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from refgf.comm import direct, ring, tree
from refgf.comm.replay import replay
from refgf.oracle.definitions import on_wire
from refgf.oracle.judge.explain import explain
from refgf.oracle.judge.profiles import judge
from refgf.oracle.judge.trace import check_trace
from refgf.oracle.spec.families import FAMILIES, inputs
from refgf.oracle.spec.statement import FUNCTIONS
from refgf.papers.jia import doubling
from tests.support.own import traced

ALGORITHMS = [ring.allreduce, direct.allreduce, tree.allreduce]
ALGORITHMS += [doubling.recursive_doubling, doubling.halving_doubling]
ranks, sizes, seeds = st.integers(1, 9), st.integers(0, 60), st.integers(0, 2**32 - 1)
dtypes, wires = (
    st.sampled_from(["float16", "float32", "float64"]),
    st.sampled_from([None, "float16", "float32"]),
)


few = settings(max_examples=30, derandomize=True, deadline=None, database=None)


@few
@given(ranks, sizes, dtypes, st.sampled_from(FAMILIES), wires, seeds)
def test_any_tree_of_additions_is_within_the_bound(p, n, dtype, family, wire, seed):
    """Random pairs are added until one is left; a number may be rounded to the wire type first."""
    rng = np.random.default_rng(seed)
    x = inputs(family, p, n, dtype, np.random.default_rng(seed), wire)
    case = FUNCTIONS["ring_allreduce"].case(
        "random", "random numbers", "R2", family, wire=wire, x=x
    )
    held = list(case["in.x"])
    with np.errstate(all="ignore"):
        while len(held) > 1:
            a, b = (held.pop(rng.integers(len(held))) for _ in range(2))
            held.append(on_wire(a, wire if rng.random() < 0.8 else None) + on_wire(b, wire))
        total = on_wire(held[0], wire)
    assert judge(case, {"out.x": np.stack([total] * p)}, "sum") is None


@few
@given(ranks, st.integers(0, 200), st.sampled_from(ALGORITHMS))
def test_traces_of_right_schedules_are_right(p, n, algorithm):
    name = {ring.allreduce: "ring", direct.allreduce: "direct"}.get(algorithm)
    assert check_trace(traced(algorithm, p, n), p, n, name) == []


@few
@given(st.integers(2, 8), st.integers(5, 40), seeds)
def test_explain_always_names_the_ring(p, n, seed):
    xs = list(np.random.default_rng(seed).standard_normal((p, n)).astype(np.float32))
    told = explain(xs, np.stack(replay([ring.allreduce(r, p, n) for r in range(p)], xs)))
    assert "  ring, sums in float32" in told
