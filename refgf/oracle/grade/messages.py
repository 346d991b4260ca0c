"""Marks for functions that communicate: values, bits, schedule, messages, bytes, each apart."""

import re

import numpy as np

from refgf.oracle.definitions import exact_sum, same_bits, summation_bound
from refgf.oracle.foreign import ranks
from refgf.oracle.grade.collective import Outcome, played
from refgf.oracle.grade.difference import apart
from refgf.oracle.grade.mark import NOT_JUDGED, Mark, PartMark
from refgf.oracle.grade.sandbox import Sandbox
from refgf.oracle.grade.shown import chosen_output, shortened, without_line, without_text
from refgf.oracle.judge.orders import candidates
from refgf.oracle.judge.words import span
from refgf.oracle.spec.exercise import PUBLIC_SEED, Collective, TypicalMistake, copied

LATE = (
    "your sums depend on which message comes first, and MPI has no order between different ranks; "
    "next: name the source of each receive"
)
INTO_X = "receive or add into x itself (x += other, not x = x + other)"


def mark_collective(sandbox: Sandbox, exercise: Collective, seeds: list[int]) -> Mark:
    """Marks for values, bits, schedule, messages and bytes, each for all cases."""
    failures = dict.fromkeys(exercise.scores, "")
    runs, calls, late = [], [], False
    for seed in seeds:
        sandbox.fresh()  # a process for each rank: those of public cases need not wait
        hidden = seed != PUBLIC_SEED
        for number, (p, n) in enumerate(exercise.shapes):
            where = f"for p = {p}, n = {n}" + " of the teacher's seed" * hidden
            xs = drawn(seed, p, n)
            found = sandbox.collective(exercise.name, copied(xs), hidden)
            call = f"{exercise.name}, p = {p}, n = {n}"
            calls.append([call, bool(found.error), sandbox.printed])
            if found.error:
                error = without_text(found.error) if hidden else found.error
                sends = () if hidden else found.sends  # numbers could tell its case
                wrong = wrong_message(exercise, sends, n, p)
                error += f"; its first wrong message: {wrong}" * bool(wrong)
                lost = {what: failure or NOT_JUDGED for what, failure in failures.items()}
                first = next(iter(lost))
                lost[first] = failures[first] or f"{error}, {where}"
                runs.append((xs, found))
                left = [drawn(seed, *shape) for shape in exercise.shapes[number + 1 :]]
                if not late and (named := explained(sandbox, exercise, runs, left, hidden)):
                    lost[first] = f"{named}: {lost[first]}"
                return _collective_mark(exercise, lost, seeds, calls)
            runs.append((xs, found))
            late |= found.late
            for what, failure in judged(exercise, xs, found).items():
                calls[-1][1] |= bool(failure)
                if failure and what in failures and not failures[what]:
                    failures[what] = f"{'wrong' if hidden else failure}, {where}"
    first = next((what for what, failure in failures.items() if failure), "")
    if first and not late and (named := typical_collective(exercise, runs)):
        failures[first] = f"{named[0].sentence}: {failures[first]}"
    return _collective_mark(exercise, failures, seeds, calls)


def drawn(seed: int, p: int, n: int) -> list[np.ndarray]:
    """The x of each rank."""
    random = np.random.default_rng([seed, p, n])
    return [random.standard_normal(n).astype(np.float32) for _ in range(p)]


def _collective_mark(
    exercise: Collective, failures: dict[str, str], seeds: list[int], calls: list
) -> Mark:
    parts = [
        PartMark(what, 0 if failures[what] else points, points, failures[what])
        for what, points in exercise.scores.items()
    ]
    return Mark(exercise.name, parts, chosen_output(calls) if seeds == [PUBLIC_SEED] else [])


def judged(exercise: Collective, xs, outcome: Outcome) -> dict[str, str]:
    """{what: "" or the first failure} of one run."""
    wanted = exercise.reference(copied(xs))
    p, n = len(xs), xs[0].size
    found = {"values": values(xs, outcome)}
    found["bits"] = bits(xs, outcome.xs, wanted, right=not found["values"])
    if outcome.late:
        first = "values" if found["values"] else "bits"
        found[first] = f"{LATE}: {found[first] or 'another order of messages, other bits'}"
    found |= traffic(exercise, outcome.sends, n, p, xs[0].itemsize)
    for rank, left in enumerate(outcome.unfinished):
        if left:
            never = f"rank {rank} never waits for its {left[0]}"
            found["messages"] = (
                f"{never}; next: request = comm.{left[0].split()[0]}(...), request.Wait()"
            )
            found["values"] = found["values"] and f"{never}: {found['values']}"
            break
    return found


def values(xs, outcome: Outcome) -> str:
    """ "" if each rank holds the sum, to within any order of adding p numbers."""
    results = outcome.xs
    exact, bound = exact_sum(xs), summation_bound(xs)
    for rank, result in enumerate(results):
        wrong = np.flatnonzero(~(np.abs(result - exact) <= bound))
        if len(wrong):
            i = int(wrong[0])
            terms = shortened([x[i].item() for x in xs])
            numbers = f"{apart(result[i], exact[i])}, the exact sum of {terms}"
            text = f"rank {rank}, element {i}: {numbers}"
            if np.isnan(result[i]):
                text += " (an array of Irecv holds nan until its Wait)"
            unchanged = [same_bits(x, result) for x, result in zip(xs, results)]
            if all(unchanged) and outcome.returned is not None:
                return f"it returns the sum; wanted x changed in place (x[...] = total): {text}"
            if unchanged[rank]:
                comes = any(peer == rank for mine in outcome.sends for peer, *_ in mine)
                hint = INTO_X if comes else "no message goes to it"
                return f"x is unchanged on rank {rank}: {hint}: {text}"
            other = instead_of_the_sum(result, xs[rank], exact, len(xs) * bound, len(xs))
            return f"rank {rank} holds {other}: {text}" if other else text
    return ""


def instead_of_the_sum(result, own, exact, bound, p: int) -> str:
    """What a rank holds in place of the sum, "" if that is none of these."""
    known = {
        "the mean, not the sum": exact / p,
        "twice the sum": 2 * exact,
        "p times the sum": p * exact,
        "the sum without its own numbers": exact - own,
        "the sum with its own numbers twice": exact + own,
    }
    fits = (name for name, x in known.items() if (np.abs(result - x) <= 2 * bound).all())
    return next(fits, "")


def bits(xs, results, wanted, right: bool) -> str:
    """The wanted bits on every rank; otherwise the order of summation that gives the result.

    right: the values are; other values have no order. Nor have the sums of 3 ranks one: whichever
    rank begins, a + b is b + a.
    """
    for rank, result in enumerate(results):
        wrong = np.flatnonzero(result.view(np.uint32) != wanted[rank].view(np.uint32))
        if len(wrong):
            if not right:
                return "lost with the values"
            i = int(wrong[0])
            known = candidates(xs, wires=(), divided=False) if len(xs) > 3 else ()
            orders = [name for name, total in known if same_bits(total, result)]
            looks = f"; looks like: {orders[0]}" if orders else ""
            numbers = f"{apart(result[i], wanted[rank][i])}, from the wanted order of adding"
            return f"rank {rank}, element {i}: {numbers}{looks}"
    return ""


def traffic(exercise: Collective, sends, n: int, p: int, itemsize: int) -> dict[str, str]:
    """Which slice to which rank in which order, how many messages, how many bytes."""
    found = {"schedule": wrong_message(exercise, sends, n, p), "messages": "", "bytes": ""}
    for rank, mine in enumerate(sends):
        wanted = exercise.sends(n, p, rank)
        nbytes = sum(message[2] for message in mine)
        wanted_bytes = itemsize * sum(stop - start for _, start, stop in wanted)
        if len(mine) != len(wanted) and not found["messages"]:
            found["messages"] = f"rank {rank} sends {len(mine)} messages; wanted {len(wanted)}"
        if nbytes != wanted_bytes and not found["bytes"]:
            found["bytes"] = f"rank {rank} sends {nbytes} bytes; wanted {wanted_bytes}"
    found["schedule"] = found["schedule"] or found["messages"]
    return found


def wrong_message(exercise: Collective, sends, n: int, p: int) -> str:
    """The first message that has another slice or receiver; "" if there is none."""
    for rank, mine in enumerate(sends):
        pairs = zip(mine, exercise.sends(n, p, rank))
        for t, ((peer, count, _, offset), (to, start, stop)) in enumerate(pairs):
            if (peer, count) != (to, stop - start) or (count and offset not in (None, start)):
                sent = span(offset or 0, (offset or 0) + count)
                return (
                    f"rank {rank}, message {t}: {sent} to rank {peer}; wanted {span(start, stop)} "
                    f"to rank {to}"
                )
    return ""


def typical_collective(exercise: Collective, runs: list) -> list[TypicalMistake]:
    """The mistakes that give the same results, messages and errors in all runs (xs, outcome)."""
    return [m for m in exercise.mistakes if all(_same_run(m, *run) for run in runs)]


def explained(
    sandbox: Sandbox, exercise: Collective, runs: list, left: list[list[np.ndarray]], hidden: bool
) -> str:
    """The sentence of a mistake that fails as the file does, in the last run and in what is left.

    Only what raises and what deadlocks: a loop without end is not run again.
    """
    raised = re.match(rf"rank \d+ raised|{ranks.DEADLOCK}", runs[-1][1].error)
    named = typical_collective(exercise, runs) if raised else []
    for xs in left:
        if named:
            found = sandbox.collective(exercise.name, copied(xs), hidden)
            named = [mistake for mistake in named if _same_run(mistake, xs, found)]
    return named[0].sentence if named else ""


def _same_run(mistake: TypicalMistake, xs: list[np.ndarray], found: Outcome) -> bool:
    """After an error, the messages until then: it may stop other ranks sooner or later."""
    mine = played(copied(xs), mistake.function)
    if cause(mine) != cause(found):
        return False
    pairs = list(zip(mine.sends, found.sends))
    if mine.error:
        pairs = [(a[: len(b)], b[: len(a)]) for a, b in pairs]
    same = all(_same_sends(theirs, sent) for theirs, sent in pairs)
    return same and (bool(mine.error) or all(map(same_bits, mine.xs, found.xs)))


def cause(found: Outcome) -> str:
    """Its error without ranks and numbers: which rank fails first is a matter of time."""
    return re.sub(r"\d+", "0", without_line(found.error))


def _same_sends(theirs: list[tuple], mine: list[tuple]) -> bool:
    """A copy has no place in x: its count and its receiver are compared."""
    pairs = [(a, b if b[3] is not None else (*b[:3], a[3])) for a, b in zip(theirs, mine)]
    return len(theirs) == len(mine) and all(a == b for a, b in pairs)
