"""Separate marks for what a student's function computes and for how it does so.

Lesson 01: `allreduce(comm, x)` sums a flat array over all ranks in place, with Send, Recv,
Sendrecv, Isend, Irecv. It runs on threads with blocking sends; x lies between guard words. Other
lessons: functions as in SPEC.md.
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import numpy as np

from refgf.oracle.definitions import (
    exact_sum,
    ring_allreduce,
    ring_traffic,
    same_bits,
    slice_bounds,
    summation_bound,
)
from refgf.oracle.judge.case import Case
from refgf.oracle.judge.comparison import differs
from refgf.oracle.judge.guard import contained
from refgf.oracle.judge.implementations import PythonModule, load_module
from refgf.oracle.judge.orders import candidates
from refgf.oracle.judge.ranks import Comm, run
from refgf.oracle.judge.verify import by_statement, verify
from refgf.oracle.seeded.generate.families import inputs, random_source

SHAPES = [(1, 5), (2, 4), (3, 7), (4, 13), (5, 3), (3, 0), (8, 41)]  # (p, n)
COMPUTED = ("values", "bits", "schedule", "messages", "bytes")
MARKS = ("ends", *COMPUTED, "guard words")
GUARD, GUARD_VALUE = 16, -12345.0  # elements on either side
STATEMENTS = {"02": "N", "03": "L", "05": "P", "06": "C", "11": "M"}  # lesson -> letter
Arrays = list[np.ndarray]


@dataclass
class Mark:
    """what: "values", "bits", ...; failure: the first one, None if there is none.

    open: no case shows it.
    """

    what: str
    failure: str | None
    open: bool = False

    def __str__(self) -> str:
        outcome = "FAIL" if self.failure else "open" if self.open else "pass"
        return f"{outcome}  {self.what}{'' if self.failure is None else ': ' + self.failure}"


def grade(path: str, lesson: str, cases: list[Case]) -> list[Mark]:
    """The marks of a student's file."""
    module = load_module(path)
    if lesson == "01":
        if not callable(getattr(module, "allreduce", None)):
            raise ValueError(
                f"grade: got {path} without allreduce; wanted allreduce(comm, x); next: define it"
            )
        return grade_allreduce(module.allreduce)
    if lesson not in STATEMENTS:
        raise ValueError(f"grade: got lesson {lesson}; wanted one of 01, {', '.join(STATEMENTS)}")
    return grade_functions(module, [c for c in cases if c.letter == STATEMENTS[lesson]])


def grade_functions(module: ModuleType, cases: list[Case]) -> list[Mark]:
    """A mark per statement."""
    verdicts = verify(cases, PythonModule(module))
    if all(v.status == "absent" for v in verdicts):
        names = ", ".join(sorted({case.function for case in cases}))
        raise ValueError(f"grade: got none of the functions; wanted some of {names}")
    marks = []
    for statement, counts in by_statement(verdicts).items():
        failures = (v for v in verdicts if statement in v.violated)
        failed = next(failures, None) if counts["fail"] else None
        text = None
        if failed:
            text = f"{counts['fail']} cases, first {failed.case.name}: {failed.failure}"
            text += f"; looks like: {failed.diagnosis[0]}" if failed.diagnosis else ""
        marks.append(Mark(statement, text, open=not counts["pass"]))
    return marks


def grade_allreduce(function: Callable) -> list[Mark]:
    """Marks for ending at all, values, bits, schedule, messages, bytes and guard words."""
    found = {what: [] for what in MARKS}
    for p, n in SHAPES:
        for family in ("invariant", "sensitive"):
            x = inputs(family, p, n, "float32", random_source(f"grade-{p}-{n}-{family}"))
            for what, failure in grade_once(function, list(x)).items():
                if failure:
                    found[what].append(f"p = {p}, n = {n}: {failure}")
            if found["ends"] and "did not end" in found["ends"][-1]:  # its threads still run
                return _marks(found)
    return _marks(found)


def _marks(found: dict[str, list[str]]) -> list[Mark]:
    return [Mark(what, failures[0] if failures else None) for what, failures in found.items()]


def grade_once(function: Callable, xs: Arrays) -> dict[str, str | None]:
    """{what: failure or None} of one run."""
    guarded = [guard_words_around(x) for x in xs]
    views = [g[GUARD : GUARD + len(x)] for g, x in zip(guarded, xs)]
    with contained():
        comms, failure = run(views, function)
    marks = {"ends": failure, "guard words": guards(guarded)}
    if failure:
        return {**marks, **dict.fromkeys(COMPUTED, "not judged: it did not come to its end")}
    wanted = ring_allreduce(xs)[0]
    marks |= {"values": values(xs, views), "bits": bits(xs, views, wanted)}
    return {**marks, **traffic(comms, len(xs[0]))}


def guard_words_around(x: np.ndarray) -> np.ndarray:
    words = np.full(GUARD, GUARD_VALUE, x.dtype)
    return np.concatenate([words, x, words])


def guards(guarded: Arrays) -> str | None:
    for r, g in enumerate(guarded):
        if (g[:GUARD] != GUARD_VALUE).any() or (g[len(g) - GUARD :] != GUARD_VALUE).any():
            return f"rank {r} wrote outside its array"
    return None


def values(xs: Arrays, results: Arrays) -> str | None:
    """Profile `sum`: within S2 on every rank."""
    exact, bound = exact_sum(xs), summation_bound(xs)
    for r, result in enumerate(results):
        wrong = np.flatnonzero(~(np.abs(result - exact) <= bound))
        if len(wrong):
            i = int(wrong[0])
            got, wanted = result[i].item(), exact[i].item()
            return f"rank {r}, element {i}: got {got!r}, the sum is {wanted!r}"
    return None


def bits(xs: Arrays, results: Arrays, wanted: np.ndarray) -> str | None:
    """R2, the same on every rank; otherwise the order that the result looks like."""
    for r, result in enumerate(results):
        wrong = np.flatnonzero(differs(result, wanted))
        if len(wrong):
            i = int(wrong[0])
            known = [name for name, total in candidates(xs, wires=()) if same_bits(total, result)]
            looks = f"; looks like: {known[0]}" if known else ""
            numbers = f"got {result[i].item()!r}, wanted {wanted[i].item()!r}"
            return f"rank {r}, element {i}: {numbers}{looks}"
    return None


def traffic(comms: list[Comm], n: int) -> dict[str, str | None]:
    """Schedule (which slice to which rank, in which order), messages and bytes: R5 and R6."""
    found, p = {"schedule": None, "messages": None, "bytes": None}, len(comms)
    for comm in comms:
        messages, elements = ring_traffic(n, p, comm.rank)
        count, sent = len(comm.sends), sum(size for _, _, size, _ in comm.sends)
        nbytes = elements * comm.x.itemsize
        if count != messages and not found["messages"]:
            found["messages"] = f"rank {comm.rank} sends {count}, wanted {messages}"
        if sent != nbytes and not found["bytes"]:
            found["bytes"] = f"rank {comm.rank} sends {sent} bytes, wanted {nbytes}"
        found["schedule"] = found["schedule"] or schedule(comm, n, p)
    return found


def schedule(comm: Comm, n: int, p: int) -> str | None:
    """The sends of R5: to the right, slice r-t, then slice r+1-t."""
    bounds, right = slice_bounds(n, p), (comm.rank + 1) % p
    slices = [(comm.rank - t) % p for t in range(p - 1)]
    slices += [(comm.rank + 1 - t) % p for t in range(p - 1)]
    if len(comm.sends) != len(slices):
        return f"rank {comm.rank}: {len(comm.sends)} sends, wanted {len(slices)}"
    for t, (s, (peer, count, _, offset)) in enumerate(zip(slices, comm.sends)):
        start, stop = bounds[s]
        if (peer, count) != (right, stop - start) or (count and offset not in (None, start)):
            return (
                f"rank {comm.rank}, send {t}: {count} elements from {offset} to rank {peer}, "
                f"wanted {stop - start} from {start} (slice {s}) to rank {right}"
            )
    return None
