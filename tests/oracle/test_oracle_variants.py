"""Named variants: MPICH's recursive doubling, where even ranks hand over, is right too (H2)."""

import json
import types

import numpy as np
import pytest

from refgf.oracle import definitions
from refgf.oracle.definitions import on_wire, slice_bounds, tree_allreduce
from refgf.oracle.judge.implementations import PythonModule
from refgf.oracle.judge.report import as_json, as_text
from refgf.oracle.judge.verify import verify
from refgf.oracle.spec.fresh import fresh_cases
from tests.support import golden

SHOWING = ("doubling-p6-n13-sensitive-wire-float16",)  # of those without `extras` in their name
FUNCTIONS = ("doubling_allreduce", "log_phases_allreduce", "schedule_traffic")
CASES = [case for case in golden.CASES if case.function in FUNCTIONS]
FRESH = [
    case for seed in range(4) for case in fresh_cases(3, seed, lambda c: c.function in FUNCTIONS)
]


class Mpich:
    """MPICH's control flow, rank by rank, written from its behaviour; `sent` counts messages."""

    def __init__(self, p):
        self.p, self.q = p, 1 << (p.bit_length() - 1)
        self.extras = p - self.q
        self.sent = [[] for _ in range(p)]

    def rank(self, number):
        """Of a participant: the odd ranks of the first pairs, then all others."""
        return 2 * number + 1 if number < self.extras else number + self.extras

    def evens(self):
        return range(0, 2 * self.extras, 2)

    def allreduce(self, xs, wire):
        held = list(xs)
        for even in self.evens():
            held[even + 1] = self.added(held[even + 1], on_wire(held[even], wire))
        mask = 1
        while mask < self.q:
            before = list(held)
            for number in range(self.q):
                rank, partner = self.rank(number), self.rank(number ^ mask)
                held[rank] = on_wire(before[rank], wire) + on_wire(before[partner], wire)
            mask *= 2
        for even in self.evens():
            held[even] = held[even + 1]
        return [on_wire(x, wire).copy() for x in held]

    def added(self, own, received):
        return own + received

    def traffic(self, algorithm, n):
        for even in self.evens():
            self.sent[even].append(n)
        for number in range(self.q):
            messages = self.sent[self.rank(number)]
            if algorithm == "recursive_doubling":
                messages += [n] * (self.q.bit_length() - 1)
            else:
                messages += self.halving(number, n)
        for even in self.evens():
            self.sent[even + 1].append(n)
        return [(len(messages), sum(messages)) for messages in self.sent]

    def halving(self, number, n):
        """The larger of two partners keeps the upper half; then all that is held goes back."""
        lengths = [j - i for i, j in slice_bounds(n, self.q)]
        first, last, mask, given, back = 0, self.q, 1, [], []
        while mask < self.q:
            middle, upper = (first + last) // 2, number > number ^ mask
            other = lengths[first:middle] if upper else lengths[middle:last]
            given.append(sum(other))
            first, last = (middle, last) if upper else (first, middle)
            back.insert(0, sum(lengths[first:last]))
            mask *= 2
        return given + back


def implementation(kind=Mpich):
    def doubling_allreduce(xs, wire=None):
        return kind(len(xs)).allreduce(xs, wire)

    def log_phases_allreduce(xs, nodes, wire=None):
        masters = [tree_allreduce([xs[r] for r in node], wire)[0] for node in nodes]
        return [doubling_allreduce(masters, wire)[0] for _ in xs]

    def schedule_traffic(algorithm, n, nodes, rank):
        if algorithm in ("recursive_doubling", "halving_doubling"):
            return kind(sum(map(len, nodes))).traffic(algorithm, n)[rank]
        if algorithm != "log_phases":
            return definitions.schedule_traffic(algorithm, n, nodes, rank)
        i, node = next((i, node) for i, node in enumerate(nodes) if rank in node)
        messages, elements = definitions.schedule_traffic("tree", n, [node], node.index(rank))
        if rank != node[0]:
            return messages, elements
        more = kind(len(nodes)).traffic("halving_doubling", n)[i]
        return messages + more[0], elements + more[1]

    return PythonModule(types.SimpleNamespace(**locals()))


def power_of_two(count):
    return count & (count - 1) == 0


def roles_show(case):
    """In traffic always; in sums only what the wire rounds, and a master's sum is rounded (H8)."""
    a = case.arguments
    if case.function == "schedule_traffic":
        nodes = len(a["nodes"]) if a["algorithm"] == "log_phases" else sum(map(len, a["nodes"]))
        doubling = a["algorithm"] in ("recursive_doubling", "halving_doubling", "log_phases")
        return doubling and not power_of_two(nodes)
    return case.name.startswith("doubling-extras") or case.name in SHOWING


@pytest.mark.parametrize("cases", [CASES, FRESH], ids=["golden", "fresh"])
def test_mpichs_doubling_passes_every_case_and_is_named(cases):
    verdicts = verify(cases, implementation(), with_diagnosis=False)
    assert [f"{v.case.name}: {v.failure}" for v in verdicts if v.status != "pass"] == []
    named = {v.case.name for v in verdicts if v.variant == "mpich"}
    assert {v.case.function for v in verdicts if v.variant} == {
        "doubling_allreduce",
        "schedule_traffic",
    }
    if cases is CASES:
        assert named == {case.name for case in cases if roles_show(case)}


def test_the_report_names_the_variant():
    cases = [case for case in CASES if case.function == "doubling_allreduce"]
    verdicts = verify(cases, implementation(), with_diagnosis=False)
    count = sum(roles_show(case) for case in cases)
    line = f"variant mpich: {count} of the passed cases of doubling_allreduce"
    assert count > 2 and line in as_text(verdicts).splitlines()
    by_name = {case["case"]: case["variant"] for case in json.loads(as_json(verdicts))["cases"]}
    assert by_name["doubling-extras-p3-wire-float16"] == "mpich"
    assert by_name["doubling-p8-n21-sensitive-wire-float16"] is None


def test_the_definitions_are_no_variant():
    verdicts = verify(CASES, PythonModule(definitions), with_diagnosis=False)
    assert {(v.status, v.variant) for v in verdicts} == {("pass", None)}


class NotReturned(Mpich):
    """Seeded mistake: the odd ranks do not send the sum back."""

    def traffic(self, algorithm, n):
        counted = super().traffic(algorithm, n)
        for even in self.evens():
            messages, elements = counted[even + 1]
            counted[even + 1] = messages - 1, elements - n
        return counted


class FarPairs(Mpich):
    """Seeded mistake: rank r hands to rank r + e, not to its neighbour."""

    def allreduce(self, xs, wire):
        order = [r for i in range(self.extras) for r in (i, i + self.extras)]
        return super().allreduce([xs[r] for r in order] + list(xs[2 * self.extras :]), wire)


class BothRounded(Mpich):
    """Seeded mistake: the receiver rounds its own array too, before it adds the extra one."""

    def allreduce(self, xs, wire):
        self.wire = wire
        return super().allreduce(xs, wire)

    def added(self, own, received):
        return on_wire(own, self.wire) + received


@pytest.mark.parametrize("wrong", [NotReturned, FarPairs, BothRounded])
def test_a_mistake_in_mpichs_order_is_still_one(wrong):
    with np.errstate(all="ignore"):
        verdicts = verify(CASES, implementation(wrong), with_diagnosis=False)
    failed = {v.case.function for v in verdicts if v.status == "fail"}
    assert failed, "no golden case notices it"
    assert all(v.variant is None for v in verdicts if v.status == "fail")
