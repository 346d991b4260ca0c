"""Times of collectives and steps, and merged gradients: by hand, and against the project's code."""

import json
import random
import sys

import numpy as np
import pytest

from refgf.oracle import definitions as d
from refgf.oracle.__main__ import main
from refgf.oracle.judge.profiles import judge
from tests.support import own
from tests.support.golden import golden_case

U = 2.0**-53
LINK = (3.0, 0.5, 0.25)  # binary fractions: sums are exact
GRADIENTS = [1.0, 3.0, 4.0], [10, 20, 5]


# ---- by hand ----


def test_rounds_by_hand():
    """p = 3, n = 7 float32: slices of 3, 2, 2. Four rounds of 3 + 12/2; two add 12/4."""
    assert d.ring_s(7, 3, 4, LINK) == d.direct_s(7, 3, 4, LINK) == 4 * (3 + 6) + 2 * 3
    assert d.reduce_scatter_s(7, 3, 4, LINK) == 2 * 9 + 2 * 3
    assert d.tree_s(2, 3, 4, LINK) == 4 * (3 + 4) + 2 * 2
    assert d.recursive_doubling_s(2, 6, 4, LINK) == 4 * (3 + 4) + 3 * 2  # 2 of 4 ranks, 2 more
    assert d.halving_doubling_s(8, 4, 1, LINK) == (3 + 2 + 1) + (3 + 1 + 0.5) + (3 + 1) + (3 + 2)
    assert d.allreduce_line("ring", 4, LINK) == (18, 0.75 * (2 * 0.5 + 0.25))


def test_the_steps_of_the_paper_are_counted():
    """Jia et al., 1024 ranks of which 16 share a node: 186 in place of 2046."""
    one = (1.0, 0.0, 0.0)
    assert d.three_phase_s(10**6, 64, 16, 4, one, one) == 186
    assert d.ring_s(10**6, 1024, 4, one) == 2046


def test_top_k_by_hand():
    assert d.topk_s(3, 5, 2, LINK) == 2 * (3 + 5) + 2 * (3 + 10)
    inside_s = d.ring_s(8, 2, 2, LINK)
    assert d.hitopk_s(8, 3, 2, 5, 2, LINK, LINK) == inside_s + d.topk_s(3, 5, 2, LINK)
    pairs_s = d.reduce_scatter_s(8, 2, 2, LINK) + d.topk_s(2, 15, 2, LINK)
    assert d.hitopk_pairs_s(8, 3, 2, 5, 2, LINK, LINK) == pairs_s + d.topk_s(3, 5, 2, LINK)


def test_a_step_by_hand():
    """T = 1 + bytes / 10: calls of 2, 3 and 1.5 s. The third waits for the second."""
    assert d.step_times(*GRADIENTS, [1, 1, 1], (1, 0.1)) == ([(1, 3), (3, 6), (6, 7.5)], 7.5)
    assert d.step_times(*GRADIENTS, [2, 1], (1, 0.1)) == ([(3, 7), (7, 8.5)], 8.5)
    assert d.step_times(*GRADIENTS, [3], (1, 0.1), compute_s=9.0) == ([(4, 8.5)], 9.0)


def test_a_slowed_computation_by_hand():
    """Half of its speed from 1 to 3: one second of work, and the gradient of 3 s comes at 4."""
    calls, step_s = d.step_times(*GRADIENTS, [1, 1, 1], (1, 0.1), overlap=0.5)
    assert calls == [(1, 3), (4, 7), (7, 8.5)] and step_s == 8.5
    calls, step_s = d.step_times(*GRADIENTS, [1, 1, 1], (1, 0.1), overlap=0.0)
    assert calls == [(1, 3), (5, 8), (9, 10.5)] and step_s == 10.5


def test_groups_by_hand():
    smallest = [1.0, 2.0, 4.0], [1, 1, 1], (2, 1)
    assert d.greedy_counts(*smallest) == [2, 1] and d.best_counts(*smallest) == [1, 2]
    ends = [d.step_times(*smallest[:2], counts, (2, 1))[1] for counts in ([2, 1], [1, 2])]
    assert ends == [9, 8]
    assert d.greedy_counts([1.0, 3.0], [1, 1], (2, 1)) == [1, 1]  # the wait is exactly a
    assert d.greedy_counts([1.0, 3.0], [1, 1], (2, 1), small_bytes=2) == [2]
    assert d.greedy_counts([1.0, 3.0], [1, 1], (2, 1), small_bytes=1) == [1, 1]
    assert d.lazy_step(*GRADIENTS, 10, (1, 0.1))[0] == [2, 1]
    assert d.greedy_counts([], [], (1, 1)) == d.best_counts([], [], (1, 1)) == []


def test_all_groupings_are_tried():
    assert sorted(d.groupings(3)) == [[1, 1, 1], [1, 2], [2, 1], [3]]
    assert [len(list(d.groupings(count))) for count in range(6)] == [1, 1, 2, 4, 8, 16]


# ---- the project's own code, on random inputs ----


@pytest.mark.parametrize("name", ["two_level_s", "log_phases_s"])
def test_schedules_over_nodes_take_what_is_stated(name):
    """Two levels: at most that, and exactly where all slices are equal. Log phases: E4's slack."""
    rng, links = random.Random(name), ((1.0, 0.125, 0.125), (8.0, 2.0, 0.125))
    for _ in range(60):
        nodes, k = rng.randint(1, 9), rng.randint(1, 6)
        q = 2 ** (nodes.bit_length() - 1)
        for n in (rng.randint(0, 300), nodes * k * q * rng.randint(0, 9)):
            wanted, got = (getattr(of, name)(n, nodes, k, 4, *links) for of in (d, own))
            if n % (nodes * k * q) == 0:
                assert got == pytest.approx(wanted, rel=32 * nodes * k * U)
            elif name == "two_level_s":
                assert 0 <= wanted - got <= 4 * 2 * (nodes + k) * (2 * 2.0 + 0.125) + 1e-9
            else:
                slack = 4 * (q - 1) * (2 * 2.0 + 0.125)
                assert -1e-9 <= got - wanted <= slack + 1e-9


# ---- the judge ----


def test_any_groups_that_end_as_early_are_right():
    case = golden_case("best-many")
    arguments = case["in.ready_s"].tolist(), case["in.nbytes"].tolist()
    line, best = tuple(case.arguments["line"]), case["out.counts"].tolist()
    best_s, right = d.step_times(*arguments, best, line)[1], 0
    for counts in d.groupings(8):
        failure = judge(case, {"out.counts": np.array(counts)})
        assert (failure is None) == (d.step_times(*arguments, counts, line)[1] == best_s)
        right += failure is None
    assert right > 3


@pytest.mark.parametrize("counts", [[8, 1], [4, 3], [0, 8], [-1, 9], [4.0, 4.0], [[8]], None, []])
def test_what_is_no_grouping_is_refused(counts):
    failure = judge(golden_case("best-many"), {"out.counts": counts and np.array(counts)})
    assert "is no grouping of the gradients" in failure.message and "8 in all" in failure.wanted


def test_groups_that_end_later_are_told_with_both_ends():
    failure = judge(golden_case("best-smallest"), {"out.counts": np.array([2, 1])})
    assert (failure.got, failure.wanted) == ("9.0", "8.0")


# The control flow of the authors' program: layers in forward order, times of each, and all starts
# of calls computed anew after a merge. `wait_s < alpha` is where a mistake is put in.
THEIRS = """
def greedy_counts(ready_s, nbytes, line, small_bytes=0):
    alpha, beta = line
    ready, p = list(ready_s)[::-1], list(nbytes)[::-1]  # layer 0 comes last in backward
    tc, layers = [alpha + beta * size for size in p], len(p)

    def starts():
        tau = [0.0] * layers
        for l in range(layers)[::-1]:
            before = tau[l + 1] + tc[l + 1] if l + 1 < layers else 0.0
            tau[l] = max(before, ready[l])
        return tau

    tau, groups, group = starts(), [], []
    for l in range(1, layers)[::-1]:
        group.append(l)
        running, wait_s = ready[l - 1] < tau[l] + tc[l], ready[l - 1] - tau[l]
        if running and (wait_s < 0 or wait_s < alpha) or p[l] < small_bytes:
            tc[l], p[l - 1], p[l] = 0.0, p[l - 1] + p[l], 0
            tc[l - 1] = alpha + beta * p[l - 1]
            tau = starts()
        else:
            groups.append(group)
            group = []
    return [len(g) for g in [*groups, [*group, 0]]] if layers else []
"""
LATER = {  # what is put in, and what verify calls it
    "wait_s < 0 or wait_s <= alpha": "merges where waiting takes exactly a latency (violates G5)",
    "True": "waits for any gradient that is ready before the call would end (violates G4)",
}


def verified(tmp_path, capsys, text, *more):
    (tmp_path / "theirs.py").write_text(text)
    code = main(["verify", *more, "--only", "greedy_counts", "--seed", "1"])
    return code, capsys.readouterr().out


def test_the_authors_way_is_right(tmp_path, capsys):
    code, said = verified(tmp_path, capsys, THEIRS, "--python", str(tmp_path / "theirs.py"))
    assert code == 0 and "G4  pass" in said and "0 failed" in said, said


@pytest.mark.parametrize("wrong", LATER)
def test_a_mistake_in_the_authors_way_is_named(tmp_path, capsys, wrong):
    text = THEIRS.replace("wait_s < 0 or wait_s < alpha", wrong)
    code, said = verified(tmp_path, capsys, text, "--python", str(tmp_path / "theirs.py"))
    assert code == 1 and LATER[wrong] in said, said


PROGRAM = (
    "import json, struct, sys\n"
    + THEIRS
    + """
case, out = sys.argv[1:]
about = json.load(open(case + "/case.json"))
if about["function"] != "greedy_counts":
    sys.exit(77)
raw = open(case + "/inputs.safetensors", "rb").read()
size = struct.unpack("<Q", raw[:8])[0]
header, rows = json.loads(raw[8 : 8 + size]), {}
for name, kind in (("in.ready_s", "d"), ("in.nbytes", "q")):
    start, stop = header[name]["data_offsets"]
    values = raw[8 + size + start : 8 + size + stop]
    rows[name] = struct.unpack(f"<{len(values) // 8}{kind}", values)
a = about["arguments"]
counts = greedy_counts(rows["in.ready_s"], rows["in.nbytes"], a["line"], a["small_bytes"])
result = {"dtype": "I64", "shape": [len(counts)], "data_offsets": [0, 8 * len(counts)]}
text = json.dumps({"out.counts": result}).encode()
with open(out + "/result.safetensors", "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text + struct.pack(f"<{len(counts)}q", *counts))
"""
)


def test_a_program_without_numpy_is_judged_too(tmp_path, capsys):
    (tmp_path / "prog.py").write_text(PROGRAM)
    command = f"{sys.executable} -S {tmp_path / 'prog.py'} {{case}} {{out}}"
    report, names = tmp_path / "r.json", ["greedy-tie", "greedy-40-seed0", "greedy-no-gradient"]
    more = ["--random", "0", "--no-diagnosis", "--json", str(report)]
    assert main(["verify", "--command", command, "--only", *names, *more]) == 0
    cases = json.loads(report.read_text())["cases"]
    assert {case["case"]: case["status"] for case in cases} == dict.fromkeys(names, "pass")
