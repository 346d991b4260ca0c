"""Wrong command lines and environments of the lessons and of python -m refgf.*.

The options are those that argparse knows, asked of each program itself. A wrong value is refused
with a sentence, at once, or the program does what it does without it.
"""

import argparse
import functools
import json
import os
import random
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

from tests.attack.fate import SENTENCE, TRACEBACK, fate_of, judge, several
from tests.support.jobs import mpiexec

ROOT = Path(__file__).resolve().parents[2]
LESSONS = [f"{path}" for path in sorted((ROOT / "lessons").glob("[0-9][0-9]_*.py"))]
MODULES = ("refgf.cluster", "refgf.doctor", "refgf.oracle", "refgf.course")
REFUSED_S = 20.0  # from the start of Python, on a busy machine
LIMIT_S = 60.0  # for a value that is taken: the work is then done
TAKEN_S = 8.0  # most values are right if nothing happens for so long: lessons end in other tests
NUMBERS = [*several("0 -1 1.5 1e99 99999999 nan -inf 1e-320 -0"), "9" * 30]
WORDS = several("banana - -- a,b [ {} %s%n \u2603 ../.. 1gbit, 1gbit,1e300s 0gbit,0s node9=1gbit")
WORDS += ["$(touch {here}/shell)", "", " ", "\udcff", "x" * 5000]
PATHS = several("""
/dev/null/x /dev/zero /proc/self/mem {here}/pipe {here}/file {here}/folder {here}/loop
{here}/nowhere/below""")
WORKING = {  # a command line that is right, to which something wrong is added
    ("refgf.cluster", "run"): "--nodes 2 -- true",
    ("refgf.cluster", "probe"): "--nodes 2",
    ("refgf.oracle", "export"): "{here}/new",
    ("refgf.oracle", "verify"): "--python refgf.oracle.definitions --only R1",
    ("refgf.oracle", "explain"): "{here}/file",
    ("refgf.oracle", "grade"): f"00 {ROOT}/lessons/student/00.py",
    ("refgf.course", "build"): "00 --for plain --output {here}/course",
}
VARIABLES = several("""
REFGF_CLUSTER REFGF_RANKS_ON_MACHINE REFGF_TRACE_DIR REFGF_TIMEOUT_S REFGF_STALL_S REFGF_ENGINE
REFGF_CUDA_AWARE PMI_SIZE PMI_RANK MPI_LOCALNRANKS MPI_LOCALRANKID OMP_NUM_THREADS
SLURM_STEP_NUM_TASKS SLURM_PROCID SLURM_STEP_TASKS_PER_NODE SLURM_NODEID SLURM_LOCALID
OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_RANK""")
CLUSTERS = ("{}", "[]", '{"nodes": 2}', '{"nodes": -1, "ranks_per_node": "x"}', "[" * 9999)


def call(words: list[str]) -> None:
    """Run `python words...` in this process."""
    sys.argv = words
    if words[0].endswith(".py"):
        sys.path.insert(0, os.path.dirname(words[0]))
        runpy.run_path(words[0], run_name="__main__")
    else:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)


@functools.cache
def options_of(program: str) -> list[list[list[str]]]:
    """Its options: [[words of the subcommand], [name], or [] if it is positional]."""

    def tell(parser: argparse.ArgumentParser, *_: object, **__: object) -> None:
        print(json.dumps(list(described(parser, []))), flush=True)
        os._exit(0)

    def ask() -> None:
        argparse.ArgumentParser.parse_args = tell
        call([program])

    fate = fate_of(ask, ROOT, limit_s=LIMIT_S)
    assert fate.code == 0, fate.err
    return [*json.loads(fate.out), [[], ["--banana"]]]


def described(parser: argparse.ArgumentParser, before: list[str]):
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, sub in action.choices.items():
                yield from described(sub, [*before, name])
        elif action.nargs != 0:
            yield before, action.option_strings[-1:]


def prepared(folder: Path) -> Path:
    """A folder with what PATHS name, so deep that a case may write into ../.."""
    here = folder / "deep" / "down"
    (here / "folder").mkdir(parents=True)
    os.mkfifo(here / "pipe")
    (here / "loop").symlink_to("loop")
    (here / "file").write_text("{")
    return here


def case(rng: random.Random) -> tuple[str, Callable]:
    words, env, ranks, taken = environment(rng) if rng.random() < 0.2 else command_line(rng)
    parts = [f"{name}={text}" for name, text in env.items()] + ["mpiexec -n 3"] * bool(ranks)
    title = " ".join([*parts, Path(words[0]).name, *words[1:]])

    def attack(folder: Path) -> list[str]:
        here = prepared(folder)
        line = [word.replace("{here}", str(here)) for word in words]
        given = {name: text.replace("{here}", str(here)) for name, text in env.items()}
        python = [sys.executable, *["-m"] * (line[0] in MODULES), *line]
        start = [mpiexec(), "-n", str(ranks), *python] if ranks else python
        start = start if ranks or env else lambda: call(line)  # which is faster
        fate = fate_of(start, here, limit_s=TAKEN_S if taken else LIMIT_S, env=given)
        if fate.code is None and taken and TRACEBACK not in fate.err:
            return []
        # a doctor's findings, a student's marks and a judge's verdicts are on stdout
        reported = "broken" in fate.out or " points (" in fate.out or SENTENCE.search(fate.out)
        wrong = judge(fate, lost=None, says=not reported)
        if (here / "shell").exists():
            wrong.append("a shell ran what it was given")
        if fate.code and fate.seconds > REFUSED_S:
            wrong.append(f"refused only after {fate.seconds:.0f} s")
        return wrong

    return title, attack


def command_line(rng: random.Random) -> tuple[list[str], dict, int, bool]:
    """(words, environment, ranks, may it be right?) with one wrong value."""
    program = rng.choice([*LESSONS, *MODULES, *MODULES])
    before, name = rng.choice(options_of(program))
    wrong = rng.choice(rng.choice((NUMBERS, NUMBERS, WORDS, PATHS)))
    added = [*name, wrong]
    if program not in LESSONS:
        words = [program, *before, *added, *WORKING.get((program, *before), "").split()]
        return words, {}, 0, wrong.isdigit() and len(wrong) > 6
    words = [program, "--quick", "--output", "{here}/results", *added]
    ranks, taken = 3 * (rng.random() < 0.15), rng.random() < 0.85
    return words, {}, ranks, taken or ranks > 0  # the same job took 8 to 32 s, and once above 60


def environment(rng: random.Random) -> tuple[list[str], dict, int, bool]:
    """Variables with nonsense, and a program that reads them."""
    names = rng.sample(VARIABLES, rng.choice((1, 1, 2)))
    env = {name: rng.choice(rng.choice((NUMBERS, WORDS, PATHS))) for name in names}
    if "REFGF_CLUSTER" in env:
        env["REFGF_CLUSTER"] = rng.choice((env["REFGF_CLUSTER"], *CLUSTERS))
    lesson = [rng.choice(LESSONS[:4]), "--quick", "--output", "{here}/results"]
    others = ["refgf.doctor"], ["refgf.cluster", "check"], ["-c", "import refgf.launch"]
    return rng.choice((lesson, lesson, *others)), env, 0, True
