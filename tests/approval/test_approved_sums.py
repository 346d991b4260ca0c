"""What `explain` says of a result, and `verify --trace` of the messages of an allreduce.

python -m pytest tests/approval/test_approved_sums.py --snapshot-update
"""

from dataclasses import replace

import numpy as np

from refgf.comm import direct, ring, tree
from refgf.comm.replay import replay
from refgf.oracle.definitions import direct_allreduce, lazy_allreduce, on_wire, ring_allreduce
from refgf.oracle.foreign.files import write_tensors
from refgf.oracle.judge.trace import TraceEvent, check_trace
from refgf.oracle.spec.draw import random_source
from refgf.oracle.spec.families import inputs
from refgf.papers.jia import doubling
from tests.approval.test_approved import answered, approved  # noqa: F401  fixtures
from tests.support.own import traced

P, N = 6, 200
XS = list(inputs("sensitive", P, N, "float32", random_source("explain"), "float16"))
SHARES, MEAN = [x / np.float32(P) for x in XS], np.float32(P)
RING, LAZY = ring_allreduce(XS)[0], ([40, 61, 69, 30], 0)
OF_OURS = {
    "ring": ring.allreduce,
    "direct": direct.allreduce,
    "tree": tree.allreduce,
    "recursive doubling": doubling.recursive_doubling,
    "halving-doubling": doubling.halving_doubling,
}


def in_pieces():
    """Another cut of the ring: a fold from each rank, piece by piece."""
    result, edges = np.empty(N, np.float32), [0, 90, 150, N]
    for rank, (i, j) in enumerate(zip(edges, edges[1:])):
        result[i:j] = direct_allreduce([x[i:j] for x in XS[rank:] + XS[:rank]])[0]
    return result


def one_rank_differs():
    result = np.stack(ring_allreduce(XS))
    result[3, 5] += 1000
    return result


def without_the_end(wire):
    result = np.stack(lazy_allreduce(XS, *LAZY, wire))
    result[:, -30:] = np.stack(XS)[:, -30:]
    return result


RESULTS = {
    **{name: replay([of(r, P, N) for r in range(P)], XS)[0] for name, of in OF_OURS.items()},
    "ring, float16 on the wire": ring_allreduce(XS, "float16")[0],
    "rank order, float16 on the wire": direct_allreduce(XS, "float16")[0],
    "ring in bfloat16": ring_allreduce([on_wire(x, "bfloat16") for x in XS], "bfloat16")[0],
    "divided before": ring_allreduce(SHARES)[0],
    "divided after": RING / MEAN,
    "divided twice": RING / MEAN / MEAN,
    "divided by p p": RING / np.float32(P * P),
    "divided before and after": ring_allreduce(SHARES)[0] / MEAN,
    "in float64": sum(x.astype(np.float64) for x in XS).astype(np.float32),
    "pieces of other rings": in_pieces(),
    "from rank 3 up": direct_allreduce(XS[3:] + XS[:3])[0],
    "one rank differs": one_rank_differs(),
    "no sum": np.full(N, 12345.678, np.float32),
    "without a rank": sum(XS[1:-1], XS[0]),
    "a rank twice": sum(XS[1:], XS[0] + XS[3]),
    "each rank begins with its own": np.stack(
        [direct_allreduce(XS[r:] + XS[:r])[r] for r in range(P)]
    ),
    "an unknown tree": (XS[4] + XS[0]) + ((XS[1] + XS[5]) + (XS[3] + XS[2])),
    "not communicated": np.stack(XS),
    **{
        f"lazy, wire {wire}{what}": result
        for wire in (None, "float16")
        for what, result in (
            ("", np.stack(lazy_allreduce(XS, *LAZY, wire))),
            (", its last call forgotten", without_the_end(wire)),
        )
    },
}


def test_explained(approved, answered, tmp_path):  # noqa: F811
    found, file = [], tmp_path / "x.safetensors"
    for name, result in RESULTS.items():
        write_tensors(file, {"in.x": np.stack(XS), "out.x": result})
        found.append(f"== {name}\n{answered('explain', file, folder=tmp_path)}")
    assert "\n".join(found) == approved


def hand_made(*rows):
    return [
        TraceEvent(rank, step, operation, peer, 0, count, "float32")
        for rank, step, operation, peer, count in rows
    ]


BY_HAND = {  # of two ranks and seven elements
    "no receive": [(0, 0, "send", 1, 3)],
    "no send": [(1, 0, "add", 0, 3)],
    "fewer elements": [(0, 0, "send", 1, 3), (1, 0, "add", 0, 2)],
    "no such rank": [(0, 0, "send", 2, 3)],
    "to itself": [(0, 0, "send", 0, 3)],
    "no such element": [(0, 0, "send", 1, 8)],
    "sends that wait for each other": [
        *((0, 0, "send", 1, 3), (1, 0, "send", 0, 3)),
        *((0, 1, "copy", 1, 3), (1, 1, "copy", 0, 3)),
    ],
    "sends and receives at once": [
        *((0, 0, "send", 1, 3), (1, 0, "send", 0, 3)),
        *((0, 0, "copy", 1, 3), (1, 0, "copy", 0, 3)),
    ],
    "all receive first": [
        *((0, 0, "add", 1, 1), (1, 0, "add", 0, 1)),
        *((0, 1, "send", 1, 1), (1, 1, "send", 0, 1)),
    ],
}


def where(to, **of):
    """Changes an event that has these values."""
    return lambda e: replace(e, **to) if of.items() <= vars(e).items() else e


def leave_out(**of):
    return lambda e: None if of.items() <= vars(e).items() else e


def apart(e):
    """Even ranks send first, odd ones receive first."""
    first = (e.operation == "send") == (e.rank % 2 == 0)
    return replace(e, step=2 * e.step + (not first))


def two_exchanged(e):
    return replace(e, step={1: 2, 2: 1}.get(e.step, e.step))


OF_RINGS = {
    "right": where({}),
    "in other steps": apart,
    "adds again": where({"operation": "add"}, operation="copy"),
    "never adds": where({"operation": "copy"}, operation="add"),
    "always slice 0": where({"offset": 0}),
    "another place": where({"offset": 75}, rank=1, step=0, operation="add"),
    "two sends exchanged": two_exchanged,
    "all in one step": where({"step": 0}),
    "one finish lost": leave_out(rank=3, operation="finish"),
    "finishes another slice": where({"offset": 0}, operation="finish"),
    "finishes first": where({"step": 0}, operation="finish"),
    "float64 on the wire": where({"dtype": "float64"}),
}
OF_DIRECT = {
    "right": where({}),
    "in other steps": apart,
    "no fold": leave_out(operation="fold"),
    "adds what comes": where({"operation": "add"}, operation="keep"),
    "folds first": where({"step": 0}, operation="fold"),
    "always slice 0": where({"offset": 0}),
}


def test_traces(approved):  # noqa: F811
    """The first three problems of each."""
    found = {name: check_trace(hand_made(*rows), 2, 7) for name, rows in BY_HAND.items()}
    for name, of, changes in (("ring", ring, OF_RINGS), ("direct", direct, OF_DIRECT)):
        for what, change in changes.items():
            for n in (2, 100) if what == "in other steps" else (100,):
                events = [e for e in map(change, traced(of.allreduce, 4, n)) if e]
                problems = check_trace(events, 4, n, name, "float32")
                found[f"{name} of {n}, {what}"] = problems
    lines = ["\n    ".join([name, *said[:3]]) for name, said in found.items()]
    assert "\n".join(lines) == approved
