"""Nonsense in the variables that Python, MPICH, Hydra and the C library read themselves.

A command may refuse or go on. It ends in time, without a traceback, and an exit code that is not 0
has a sentence. What a launcher prints before any rank lives is its own; the doctor names the
variables. (PYTHONHOME ends Python itself, and PYTHONPATH is a wish: neither is tried.)
"""

import random
import sys
from collections.abc import Callable
from pathlib import Path

from tests.attack.fate import SENTENCE, fate_of, judge

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 150.0
OF_PYTHON = {
    "PYTHONOPTIMIZE": ("1", "2", "banana"),
    "PYTHONSAFEPATH": ("1",),
    "PYTHONUTF8": ("0",),
    "PYTHONIOENCODING": ("ascii", "utf-16", "latin-1:replace"),
    "PYTHONDEVMODE": ("1",),
    "PYTHONNOUSERSITE": ("1",),
    "PYTHONHASHSEED": ("0", "1"),
    "PYTHONSTARTUP": ("/nowhere", "/dev/zero"),
    "PYTHONDONTWRITEBYTECODE": ("1",),
    "PYTHONFAULTHANDLER": ("1",),
    "LC_ALL": ("C", "xx_YY.KOI8-R", "tr_TR.UTF-8", "\udcff"),
    "LANG": ("", "C"),
    "COLUMNS": ("1", "-5", "abc", "999999"),
    "LINES": ("0",),
    "TERM": ("", "dumb", "$(id)"),
    "TZ": (":/etc/passwd", "x" * 5000),
    "HOME": ("", "/nonexistent", "/proc"),
    "TMPDIR": ("/nonexistent", "/proc"),
    "MPLBACKEND": ("TkAgg",),
    "MPLCONFIGDIR": ("/proc/x",),
    "NUMBA_DISABLE_JIT": ("1",),
    "NUMBA_CACHE_DIR": ("/proc/x",),
    "OMP_NUM_THREADS": ("0", "abc", "-1", "1,2"),
    "SOURCE_DATE_EPOCH": ("abc",),
    "FORCE_COLOR": ("1",),
    "VIRTUAL_ENV": ("/nowhere",),
    "CONDA_PREFIX": ("/opt/conda",),
}
OF_MPI = {
    "HYDRA_LAUNCHER": ("slurm", "nonsense"),
    "HYDRA_BOOTSTRAP": ("slurm",),
    "HYDRA_HOST_FILE": ("/nonexistent", "/dev/null"),
    "HYDRA_IFACE": ("eth99",),
    "HYDRA_LAUNCHER_EXEC": ("/nonexistent",),
    "MPIEXEC_TIMEOUT": ("abc", "-1"),
    "MPIEXEC_PORT_RANGE": ("banana",),
    "MPIR_CVAR_CH4_NETMOD": ("banana",),
    "MPIR_CVAR_DEBUG_HOLD": ("0",),
    "UCX_TLS": ("nonsense",),
    "UCX_NET_DEVICES": ("eth99",),
    "FI_PROVIDER": ("nonsense",),
    "OMPI_MCA_btl": ("nonsense",),
    "PRTE_MCA_plm": ("nonsense",),
}


def words_of(text: str) -> list[str]:
    return text.split()


PROGRAMS = {
    "lesson": words_of(f"{ROOT}/lessons/01_ring_allreduce.py --threads 2 --quick --output o"),
    "plan": words_of("-m refgf.predict plan --model alexnet --machine mgwfbp-10gbe --ranks 4"),
    "grade": words_of(f"-m refgf.oracle grade 00 {ROOT}/lessons/student/00.py"),
    "schedule": words_of("-m refgf.oracle schedule none.xml"),
    "cluster": words_of("-m refgf.cluster check"),
    "doctor": words_of("-m refgf.doctor"),
}
OUTPUTS = ("", "", "", "/dev/full")  # where the output goes


def case(rng: random.Random) -> tuple[str, Callable]:
    table = rng.choice((OF_PYTHON, OF_PYTHON, OF_MPI))
    names = rng.sample(list(table), rng.choice((1, 1, 2)))
    env = {name: rng.choice(table[name]) for name in names}
    program = rng.choice(list(PROGRAMS) if table is OF_PYTHON else ["doctor", "cluster"])
    output = rng.choice(OUTPUTS) if program in ("lesson", "schedule", "grade") else ""

    def attack(folder: Path) -> list[str]:
        words = [sys.executable, *PROGRAMS[program]]
        if output:
            words = ["/bin/sh", "-c", f'exec "$@" > {output}', "sh", *words]
        fate = fate_of(words, folder, limit_s=LIMIT_S, env=env | {"PYTHONPATH": str(ROOT)})
        reported = "broken" in fate.out or " points (" in fate.out or SENTENCE.search(fate.out)
        return judge(fate, lost=None, says=not reported)

    shown = " ".join(f"{name}={value[:40]!r}" for name, value in env.items())
    return f"{shown} {program}{f' > {output}' * bool(output)}", attack
