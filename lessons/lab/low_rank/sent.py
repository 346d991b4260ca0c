"""Lesson 17: the bytes that a rank sends in a step, counted and by formula, as p grows.

Counted with ranks as threads of rank 0, whose messages have the same bytes as any others.
"""

import numpy as np

import kit
from lab.low_rank.learning import tensors
from lab.low_rank.methods import CSC, GATHERED, SUMMED, exchange_of, predicted_bytes
from refgf.exchange.compressor import Compressor
from refgf.machine import threads
from refgf.machine.trace import TracedComm

NAMES = (*SUMMED, *GATHERED)
RANKS = (2, 4, 8, 16, 32, 64, 128, 256)
COUNTED, QUICK = (2, 4, 8, 16), (2, 4)


def measure(run: kit.Run, data, vote) -> dict:
    """{"ranks", "bytes": {name: by formula}, "counted": {name: {p: bytes}}, "first_above"}."""
    run.section("Bytes that a rank sends in a step")
    shapes, n = tensors(run, data)
    sizes, counted = run.quick(QUICK, COUNTED), {}
    if run.rank == 0:
        for name in NAMES:
            if name != CSC:  # counted in lesson 06
                counted[name] = [count(name, shapes, n, p, vote) for p in sizes]
    counted = run.plain.bcast(counted)
    formula = {name: [predicted_bytes(name, shapes, n, p) for p in RANKS] for name in NAMES}
    head = ["exchange", *(f"p = {p}" for p in (2, 8, 64, 256)), "counted, p = " + str(sizes[-1])]
    rows = []
    for name in NAMES:
        shown = [kit.number_of_bytes(formula[name][RANKS.index(p)]) for p in (2, 8, 64, 256)]
        last = kit.number_of_bytes(counted[name][-1]) if name in counted else "not here"
        rows.append([f"{name} ({'summed' if name in SUMMED else 'gathered'})", *shown, last])
    run.table(head, rows)
    above = first_above(shapes, n)
    run.say(f"{n:,} gradients. Gathered signs send more than summed votes from {above} ranks on.")
    found = {"ranks": list(RANKS), "sizes": list(sizes), "elements": n, "first_above": above}
    return found | {"bytes": formula, "counted": counted}


def count(name: str, shapes: list, n: int, p: int, vote) -> float:
    """Bytes that a rank sends, in the mean over p ranks. Counted."""

    def body(comm):
        traced, x = TracedComm(comm), np.arange(1, n + 1, dtype=np.float32)
        exchange = exchange_of(name, shapes, n, vote)(traced)
        if isinstance(exchange, Compressor):
            exchange.start(x)
        traced.reset()
        if isinstance(exchange, Compressor):
            exchange.sum(x, slice(0, n))
        else:
            exchange(x)
        return traced.bytes

    return float(np.mean(threads.run(p, body)))


def first_above(shapes: list, n: int) -> int:
    """The least number of ranks with which signs send more than votes."""
    p = 2
    while predicted_bytes(GATHERED[0], shapes, n, p) <= predicted_bytes(SUMMED[-1], shapes, n, p):
        p += 1
    return p
