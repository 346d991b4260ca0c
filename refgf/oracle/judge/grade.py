"""Separate marks for what a student's function computes and for how it does so.

Lesson 01: `allreduce(comm, x)` sums a flat array over all ranks in place, with Send, Recv, Sendrecv, Isend, Irecv. It
runs on threads with blocking sends; x lies between guard words. Other lessons: functions as in SPEC.md.
"""

from dataclasses import dataclass

import numpy as np

from refgf.oracle.definitions import (
    exact_sum,
    ring_allreduce,
    ring_traffic,
    same_bits,
    slice_bounds,
    summation_bound,
)
from refgf.oracle.judge.comparison import differs
from refgf.oracle.judge.guard import contained
from refgf.oracle.judge.implementations import PythonModule, load_module
from refgf.oracle.judge.orders import candidates
from refgf.oracle.judge.ranks import run
from refgf.oracle.judge.verify import by_statement, verify
from refgf.oracle.seeded.generate.families import inputs, random_source

SHAPES = [(1, 5), (2, 4), (3, 7), (4, 13), (5, 3), (3, 0), (8, 41)]  # (p, n)
COMPUTED = ("values", "bits", "schedule", "messages", "bytes")
GUARD = 16  # elements on either side
STATEMENTS = {
    "02": "N",
    "03": "L",
    "05": "P",
    "06": "C",
    "11": "M",
}  # lesson -> statements of its functions


@dataclass
class Mark:
    """what: "values", "bits", ...; told: the first thing that is wrong, None when nothing is; open: nothing shows it."""

    what: str
    told: str | None
    open: bool = False

    def __str__(self):
        outcome = "FAIL" if self.told else "open" if self.open else "pass"
        return f"{outcome}  {self.what}{'' if self.told is None else ': ' + self.told}"


def grade(path, lesson, cases):
    """-> list of Mark"""
    module = load_module(path)
    if lesson == "01":
        if not callable(getattr(module, "allreduce", None)):
            raise ValueError(f"grade: {path} has no function allreduce(comm, x); next: define one")
        return grade_allreduce(module.allreduce)
    if lesson not in STATEMENTS:
        raise ValueError(f"grade: got lesson {lesson}; wanted one of 01, {', '.join(STATEMENTS)}")
    chosen = [case for case in cases if case.statements[0][0] == STATEMENTS[lesson]]
    return grade_functions(module, chosen)


def grade_functions(module, cases):
    """A mark per statement."""
    verdicts = verify(cases, PythonModule(module))
    if all(v.status == "absent" for v in verdicts):
        raise ValueError(
            f"grade: none of these functions is there: {', '.join(sorted({c.function for c in cases}))}"
        )
    marks = []
    for statement, counts in by_statement(verdicts).items():
        failed = (
            next((v for v in verdicts if statement in v.violated), None) if counts["fail"] else None
        )
        looks = f"; looks like: {failed.diagnosis[0]}" if failed and failed.diagnosis else ""
        told = (
            f"{counts['fail']} cases, first {failed.case.name}: {failed.failure}{looks}"
            if failed
            else None
        )
        marks.append(Mark(statement, told, open=not counts["pass"]))
    return marks


def grade_allreduce(function):
    """Marks for values, bits, schedule, messages, bytes, guard words, and for not waiting for ever."""
    told = {
        what: []
        for what in ("ends", "values", "bits", "schedule", "messages", "bytes", "guard words")
    }
    for p, n in SHAPES:
        for family in ("invariant", "sensitive"):
            x = inputs(family, p, n, "float32", random_source(f"grade-{p}-{n}-{family}"))
            for what, sentence in grade_once(function, list(x)).items():
                if sentence:
                    told[what].append(f"p = {p}, n = {n}: {sentence}")
            if told["ends"] and "did not end" in told["ends"][-1]:  # its threads are still running
                return _marks(told)
    return _marks(told)


def _marks(told):
    return [Mark(what, sentences[0] if sentences else None) for what, sentences in told.items()]


def grade_once(function, xs):
    """{what: sentence or None} of one run."""
    guarded = [
        np.concatenate([np.full(GUARD, -12345.0, x.dtype), x, np.full(GUARD, -12345.0, x.dtype)])
        for x in xs
    ]
    views = [g[GUARD : GUARD + len(x)] for g, x in zip(guarded, xs)]
    with contained():
        comms, wrong = run(views, function)
    marks = {"ends": wrong, "guard words": guards(guarded)}
    if wrong:
        return {**marks, **dict.fromkeys(COMPUTED, "not judged: it did not come to its end")}
    wanted = ring_allreduce(xs)[0]
    return {
        **marks,
        "values": values(xs, views),
        "bits": bits(xs, views, wanted),
        **traffic(comms, len(xs[0])),
    }


def guards(guarded):
    for r, g in enumerate(guarded):
        if (g[:GUARD] != -12345.0).any() or (g[len(g) - GUARD :] != -12345.0).any():
            return f"rank {r} wrote outside its array"
    return None


def values(xs, results):
    """Profile `sum`: within S2 on every rank."""
    exact, bound = exact_sum(xs), summation_bound(xs)
    for r, result in enumerate(results):
        wrong = np.flatnonzero(~(np.abs(result - exact) <= bound))
        if len(wrong):
            i = int(wrong[0])
            return (
                f"rank {r}, element {i}: got {result[i].item()!r}, the sum is {exact[i].item()!r}"
            )
    return None


def bits(xs, results, wanted):
    """R2, the same on every rank; otherwise the order that it looks like."""
    for r, result in enumerate(results):
        wrong = np.flatnonzero(differs(result, wanted))
        if len(wrong):
            i = int(wrong[0])
            known = [name for name, total in candidates(xs, wires=()) if same_bits(total, result)]
            looks = f"; looks like: {known[0]}" if known else ""
            return f"rank {r}, element {i}: got {result[i].item()!r}, wanted {wanted[i].item()!r}{looks}"
    return None


def traffic(comms, n):
    """Schedule (which slice to whom, in which order), messages and bytes, against R5 and R6."""
    found, p = {"schedule": None, "messages": None, "bytes": None}, len(comms)
    for comm in comms:
        messages, elements = ring_traffic(n, p, comm.rank)
        nbytes, sent = elements * comm.x.itemsize, sum(size for _, _, size, _ in comm.sends)
        if len(comm.sends) != messages:
            found["messages"] = (
                found["messages"] or f"rank {comm.rank} sends {len(comm.sends)}, wanted {messages}"
            )
        if sent != nbytes:
            found["bytes"] = (
                found["bytes"] or f"rank {comm.rank} sends {sent} bytes, wanted {nbytes}"
            )
        found["schedule"] = found["schedule"] or schedule(comm, n, p)
    return found


def schedule(comm, n, p):
    """The sends of R5: to the right, slice r-t, then slice r+1-t."""
    bounds = slice_bounds(n, p)
    slices = [(comm.rank - t) % p for t in range(p - 1)] + [
        (comm.rank + 1 - t) % p for t in range(p - 1)
    ]
    if len(comm.sends) != len(slices):
        return f"rank {comm.rank}: {len(comm.sends)} sends, wanted {len(slices)}"
    for t, (s, (peer, count, _, offset)) in enumerate(zip(slices, comm.sends)):
        start, stop = bounds[s]
        right = (comm.rank + 1) % p
        if (peer, count) != (right, stop - start) or (count and offset not in (None, start)):
            return (
                f"rank {comm.rank}, send {t}: {count} elements from {offset} to rank {peer}, wanted {stop - start} "
                f"from {start} (slice {s}) to rank {right}"
            )
    return None
