"""A program in C99, written from SPEC.md, passes the golden files: the format is language-neutral.

-ffp-contract=off: compilers may otherwise fuse a multiplication and an addition into one rounding.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from refgf.oracle.judge.implementations import Command
from refgf.oracle.judge.verify import verify
from tests.support import golden

HERE = Path(__file__).parent
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler")
FUNCTIONS = ("ring_allreduce", "direct_allreduce", "csc_run")
SOME = (
    "csc-none",
    "ring-p4-n9-float16-invariant",
    "ring-p4-n11-float32-sensitive-wire-float16",
)
CASES = [case for case in golden.CASES if case.function in FUNCTIONS]


def build(folder, program, change=("", "")):
    """Compile the sources, with one text in them replaced. -> the command"""
    for source in [*HERE.glob("*.c"), *HERE.glob("*.h")]:
        text = source.read_text()
        (folder / source.name).write_text(text.replace(*change) if change[0] else text)
    flags = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-O2", "-ffp-contract=off"]
    flags += [] if change[0] else ["-Werror"]
    sources = sorted(str(path) for path in folder.glob("*.c"))
    subprocess.run([COMPILER, *flags, "-o", str(folder / program), *sources, "-lm"], check=True)
    return Command(f"{folder / program} {{case}} {{out}}")


@pytest.mark.parametrize("fifths", [[0], pytest.param([1, 2, 3, 4], marks=pytest.mark.long)])
def test_the_c_program_passes_ring_direct_and_csc(tmp_path, fifths):
    chosen = [case for at, case in enumerate(CASES) if at % 5 in fifths]
    verdicts = verify(chosen, build(tmp_path, "foreign"))
    assert [f"{v.case.name}: {v.failure}" for v in verdicts if v.status == "fail"] == []
    absent = {v.case.name for v in verdicts if v.status == "absent"}
    assert all(name.startswith("csc-lars") for name in absent) and len(verdicts) > 20 * len(fifths)


def in_long(old, new, looks):
    return pytest.param((old, new), looks, marks=pytest.mark.long)


@pytest.mark.parametrize(
    ("change", "looks"),
    [
        # no known mistake: each longer slice loses its last element
        (("each + (s < longer)", "each"), ""),
        (("size_t right", "int right"), None),
        (("round_to(wire, xs[r][i])", "xs[r][i]"), "these orders: ring, sums in float32"),
        in_long(
            "[c] > importance[best]", "[c] >= importance[best]", "ties go to the higher number"
        ),
        in_long("q->v[j] = sent ? 0 :", "q->v[j] =", "not cleared"),
        in_long("q->importance[c] /= (double)length_of(s, c);", "", "not divided by the chunk's"),
    ],
)
def test_a_mistake_in_c_is_caught(tmp_path, change, looks):
    """Seeded in the sources; the second is none and must pass."""
    chosen = [case for case in CASES if case.name in SOME]
    verdicts = verify(chosen, build(tmp_path, "mutant", change))
    failed = [v for v in verdicts if v.status == "fail"]
    assert bool(failed) == (looks is not None)
    if looks:
        told = " ".join(sentence for v in failed for sentence in v.diagnosis)
        assert looks in told, told
