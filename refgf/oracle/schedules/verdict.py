"""The verdict on a plan: the first of these that applies.

out of range, unmatched     steps that cannot be run
deadlock                    steps that wait for each other in a circle, where a channel holds any
                            number of messages: a real one holds few, so a plan that sends much
                            before it receives may hang all the same
race                        two accesses that nothing orders: the value is a matter of luck
shared channel              two thread blocks use one end of a channel, which no executor of MSCCL
                            can run. Other verdicts name it as well
wrong value                 a rank does not end with what the collective promises
other bits                  each rank's sum is right, but in another order than another rank's
no value                    it runs to its end, but says too little to know what it computes
right
"""

from dataclasses import dataclass, replace

from refgf.oracle.schedules.form import COLLECTIVE, Finding, Plan
from refgf.oracle.schedules.layout import KNOWN, known_name, layout, outside
from refgf.oracle.schedules.order import SHOWN, Graph, Races
from refgf.oracle.schedules.times import Transfer, schedule_times, traffic
from refgf.oracle.schedules.values import Values
from refgf.predict.cost import Link

VERDICTS = {
    "out of range": "steps out of range",
    "unmatched": "unmatched steps",
    "deadlock": "deadlock",
    "race": "race",
    "shared channel": "thread blocks share a channel end",
    "wrong value": "wrong value",
    "other bits": "right value but ranks differ in bits",
    "no value": "runs to its end; its value cannot be known",
    "right": "right",
}


@dataclass(frozen=True)
class Judged:
    """kind: a key of VERDICTS. orders: {tree: output chunks}. Empty if it cannot run."""

    kind: str
    found: list[Finding]
    orders: dict[str, int]
    traffic: list[tuple[int, int]]
    chunk_bytes: float
    seconds: float
    transfers: list[Transfer]
    link: Link | None = None


def judge(plan: Plan, link: Link, nbytes: int) -> Judged:
    """In place and out of place, if the plan is used both ways: the first that is not right.

    nbytes: of the whole vector, for the time and the traffic.
    """
    judged = judge_once(plan, link, nbytes)
    if judged.kind != "right" or not (plan.inplace and plan.outofplace):
        return judged
    other = judge_once(replace(plan, inplace=False), link, nbytes)
    found = [replace(each, text=f"out of place: {each.text}") for each in other.found]
    return judged if other.kind == "right" else replace(other, found=found)


def judge_once(plan: Plan, link: Link, nbytes: int) -> Judged:
    """In one way."""
    where, other_sizes = layout(plan)
    found = [*other_sizes, *outside(plan, where)]
    if found:
        return stopped(found[0].kind, found)
    graph, shared = Graph(plan), list(plan.shared)
    if graph.found:
        return stopped("unmatched", [*graph.found, *shared])
    races = Races(graph, where)
    found = races.all()
    blocked = graph.unequal or graph.deadlock()
    if blocked:  # in this run: in another one only if the order at each channel is forced
        kind = "race" if races.ends else blocked[0].kind
        return stopped(kind, [*races.ends, *blocked, *shared])
    values = Values(graph, where)
    wrong = values.wrong()
    kind, bits = "right", []
    if found:
        kind = "race"
    elif shared:
        kind = "shared channel"
    elif wrong:
        kind = "wrong value"
    elif not where.collective:
        kind = "no value"
    else:
        bits = values.other_bits()
        kind = "other bits" if bits else "right"
    orders = values.orders() if kind in ("right", "other bits") else {}
    chunk_bytes = nbytes / where.total if where.total else 1.0  # a trace counts bytes
    seconds, transfers = schedule_times(graph, chunk_bytes, link)
    found = [*found, *shared, *wrong, *bits]
    return Judged(kind, found, orders, traffic(graph), chunk_bytes, seconds, transfers, link)


def stopped(kind: str, found: list[Finding]) -> Judged:
    return Judged(kind, found, {}, [], 0.0, 0.0, [])


def as_lines(path: str, plan: Plan, judged: Judged) -> list[str]:
    """What the command prints about one file."""
    head = f"{len(plan.ranks)} ranks, {plan.collective or 'collective not named'}, {plan.format}"
    lines = [f"{path}: {VERDICTS[judged.kind]} ({head})"]
    shown = judged.found[:SHOWN]
    shown += [finding for finding in plan.shared[:SHOWN] if finding not in shown]
    lines += [f"  {finding}" for finding in shown]
    if len(judged.found) > len(shown):
        lines.append(f"  and {len(judged.found) - len(shown)} more")
    lines += about_race(plan) if judged.kind == "race" else []
    lines += [f"  {note}" for note in plan.notes]
    if judged.kind == "no value" and plan.format != "chakra" and known_name(plan) not in KNOWN:
        lines.append(f"  wanted one of these collectives, to know it: {', '.join(KNOWN)}")
    writes_input = any(span.buffer == "i" for _, _, step in plan.steps() for span in step.writes)
    if judged.kind == "right" and writes_input and (plan.outofplace or not plan.inplace):
        lines.append("  out of place it overwrites its input, which the caller may still need")
    trees = list(judged.orders.items())[:SHOWN]
    if any("+" in tree for tree, _ in trees):
        if judged.kind == "right":
            lines.append("  every rank sums in the same order, up to commutativity:")
        for tree, chunks in trees:
            lines.append(f"  {chunks} chunk{'s' * (chunks > 1)}: {tree}")
        if len(judged.orders) > SHOWN:
            lines.append(f"  and {len(judged.orders) - SHOWN} more orders of summation")
    unnamed = sum(step.op == COLLECTIVE for _, _, step in plan.steps())
    if unnamed:
        lines.append(
            f"  {unnamed} nodes of type {COLLECTIVE} only wait: no trace names their messages, so "
            "ranks that call other collectives, or in another order, are not found"
        )
    if judged.traffic:
        lines.append(f"  sent {traffic_text(judged, plan.unit)}; {predicted_text(judged)}")
    return lines


def about_race(plan: Plan) -> list[str]:
    """What explains a race that a reader of the file does not see."""
    lines, written = [], {span.buffer for _, _, step in plan.steps() for span in step.writes}
    if plan.inplace and "o" in written:
        lines.append("  in place, input and output are one memory, which has one name here")
    if plan.format == "mscclpp-json":
        lines.append(
            "  next: a signal orders only what its own thread block did before it, so that another "
            "thread block's accesses need a barrier with it, or a signal of their own"
        )
    return lines


def predicted_text(judged: Judged) -> str:
    """The time, and the cost model's numbers that it follows from."""
    text = f"predicted {judged.seconds * 1e6:.1f} us"
    if judged.link:
        alpha, beta, gamma = vars(judged.link).values()
        text += f" with alpha {alpha * 1e6:g} us, beta {beta * 1e9:g} ns/byte"
        text += f", gamma {gamma * 1e9:g} ns/byte" * bool(gamma)
    return text


def traffic_text(judged: Judged, unit: str) -> str:
    """Equal ranks in one phrase: ranks 0-3: 6 messages, 24 bytes."""
    same = {}
    for rank, sent in enumerate(judged.traffic):
        same.setdefault(sent, []).append(rank)
    phrases = []
    for (messages, chunks), ranks in list(same.items())[:SHOWN]:
        who = "every rank" if len(same) == 1 else "rank " + ", ".join(map(str, ranks[:SHOWN]))
        who += ", ..." * (len(same) > 1 and len(ranks) > SHOWN)
        nbytes = round(chunks * judged.chunk_bytes)
        length = f"{chunks} chunks, {nbytes} bytes" if unit == "chunks" else f"{chunks} bytes"
        phrases.append(f"by {who}: {messages} messages, {length}")
    return "; ".join(phrases) + ("; ..." if len(same) > SHOWN else "")
