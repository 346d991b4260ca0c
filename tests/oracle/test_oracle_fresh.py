"""Fresh cases: other numbers, p and n for each seed; nobody can be right for public cases only."""

import json
import sys

import pytest

from refgf.oracle import definitions
from refgf.oracle.__main__ import main
from refgf.oracle.definitions import same_bits
from refgf.oracle.judge.implementations import PythonModule
from refgf.oracle.judge.verify import verify
from refgf.oracle.spec.fresh import DRAWN, fresh_cases

ONE_SUM = "from refgf.oracle.definitions import ring_allreduce as ring\nimport numpy as np\n"
ONLY_PUBLIC = {  # right for every golden case
    "more-ranks": "return ring(xs, wire) if len(xs) <= 19 else ring(xs[:19], wire) * 2",
    "more-elements": "return [np.append(y[:1000], x[1000:]) for x, y in zip(xs, ring(xs, wire))]",
}
WRONG = "def ring_allreduce(xs, wire=None):\n    "
RINGS = ["--no-diagnosis", "--only", "ring_allreduce"]


def everything(count, seed):
    return list(fresh_cases(count, seed, lambda case: True))


@pytest.mark.parametrize("wrong", ONLY_PUBLIC)
def test_what_is_right_for_the_golden_cases_only_is_rejected(tmp_path, capsys, wrong):
    """With any seed, because case 0 has more ranks and more elements than any golden case."""
    (tmp_path / "mine.py").write_text(ONE_SUM + WRONG + ONLY_PUBLIC[wrong] + "\n")
    command = ["verify", "--python", str(tmp_path / "mine.py"), *RINGS]
    assert main([*command, "--random", "0"]) == 0
    fresh = [*command[:-1], "random-ring_allreduce-*", "--random", "1"]
    assert [main([*fresh, "--seed", str(seed)]) for seed in (0, 1)] == [1, 1]


def test_the_seed_is_said_and_repeats_a_failure(tmp_path, capsys):
    (tmp_path / "mine.py").write_text(ONE_SUM + WRONG + "return [x + x for x in xs]\n")
    command = ["verify", "--python", str(tmp_path / "mine.py"), *RINGS]
    assert main([*command, "--json", str(tmp_path / "1.json")]) == 1
    said = capsys.readouterr().out
    repeat = said.splitlines()[0].partition("to repeat them: ")[2].split()
    assert repeat[:2] == ["--random", "3"] and f"drawn by {' '.join(repeat)}" in said
    assert main([*command, *repeat, "--json", str(tmp_path / "2.json")]) == 1
    first, second = (json.loads((tmp_path / f"{i}.json").read_text())["cases"] for i in (1, 2))
    assert [case["failure"] for case in first] == [case["failure"] for case in second]


def test_only_random_cases_that_were_judged_are_counted(tmp_path, capsys):
    (tmp_path / "mine.py").write_text("from refgf.oracle.definitions import ring_allreduce\n")
    assert main(["verify", "--python", str(tmp_path / "mine.py"), "--random", "2"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("with random cases; to repeat them: --random 2 --seed ")
    assert said[-1].endswith(" not judged; random cases judged: 2")


def test_a_seed_gives_the_same_cases_and_another_one_others():
    for a, b in zip(everything(2, 7), everything(2, 7)):
        assert a.description() == b.description()
        assert all(same_bits(array, b[name]) for name, array in a.tensors.items())
    shapes = [[c["in.x"].shape for c in everything(4, s) if "in.x" in c.tensors] for s in (7, 8)]
    assert shapes[0] != shapes[1]


def test_the_definitions_pass():
    """With seed 1: tests/approval."""
    verdicts = verify(everything(3, 0), PythonModule(definitions), with_diagnosis=False)
    assert [f"{v.case.name}: {v.failure}" for v in verdicts if v.status != "pass"] == []
    assert {v.case.function for v in verdicts} == set(DRAWN)


def test_programs_get_fresh_cases_and_files_cannot(tmp_path, capsys):
    (tmp_path / "prog.py").write_text(
        "import sys\nsys.exit(77 * ('random' not in open(sys.argv[1] + '/case.json').read()))\n"
    )
    command = ["--command", f"{sys.executable} {tmp_path / 'prog.py'} {{case}} {{out}}"]
    only = ["--only", "slice_bounds", "--no-diagnosis"]
    assert main(["verify", *command, *only, "--random", "2"]) == 1
    assert "2 failed, 5 not judged" in capsys.readouterr().out
    assert main(["verify", "--files", str(tmp_path), "--random", "1"]) == 2
    assert "fresh cases" in capsys.readouterr().err
    for count in ("-1", "9" * 30):
        assert main(["verify", "--python", "refgf.oracle.definitions", "--random", count]) == 2
