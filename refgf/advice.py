"""What a user types to get what is missing, as this copy of refgf was installed.

refgf has no name on PyPI, so no command here asks PyPI for it: anyone who took that name would get
their code run.
"""

import importlib.metadata
import json
import os
import shlex
import sys
from pathlib import Path
from types import ModuleType
from urllib.parse import urlparse
from urllib.request import url2pathname

ROOT = Path(__file__).resolve().parents[1]
CHECKOUT = (ROOT / "pyproject.toml").exists()
PYTHON = shlex.quote(sys.executable or "python")


def install(*extras: str) -> str:
    """The command that installs these extras of refgf into this Python's environment."""
    names = f"[{','.join(extras)}]"
    if CHECKOUT:
        return f"{PYTHON} -m pip install -e {shlex.quote(f'{ROOT}{names}')}"
    return f"{PYTHON} -m pip install {_origin(names) or _libraries(extras)}"


def _origin(names: str) -> str | None:
    """What pip was given for this copy, with extras; None if pip noted none or it has gone."""
    try:
        noted = importlib.metadata.distribution("refgf").read_text("direct_url.json")
        found = json.loads(noted or "{}")
        url, vcs = found["url"], found.get("vcs_info")
    except (importlib.metadata.PackageNotFoundError, ValueError, KeyError, TypeError):
        return None
    if urlparse(url).scheme == "file" and not vcs:
        path = url2pathname(urlparse(url).path)
        return shlex.quote(path + names) if os.path.exists(path) else None
    address = f"{vcs['vcs']}+{url}@{vcs['commit_id']}" if vcs else url
    return shlex.quote(f"refgf{names} @ {address}")


def _libraries(extras: tuple[str, ...]) -> str:
    """The libraries that these extras stand for, by their own names."""
    try:
        wanted = importlib.metadata.requires("refgf") or []
    except importlib.metadata.PackageNotFoundError:  # a copy of the files: sys.path, a zip
        wanted = []
    pairs = [line.split(";") for line in wanted if ";" in line]
    ends = tuple(f"extra == {quote}{extra}{quote}" for extra in extras for quote in "'\"")
    found = [shlex.quote(name.strip()) for name, marker in pairs if marker.strip().endswith(ends)]
    return " ".join(found) or f"'PATH-OF-A-CHECKOUT[{','.join(extras)}]'"


def mpi(asked: str) -> ModuleType:
    """mpi4py.MPI. ValueError with what to do if it, or an MPI library for it, is missing.

    asked: what needs MPI, for the message. mpi4py's wheels raise RuntimeError without a library,
    and ImportError where a library has another name (Debian's MPICH).
    """
    try:
        _warn_of_two_mpis()
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:120]
        doctor = f"{PYTHON} -m refgf.doctor"
        if isinstance(error, ModuleNotFoundError):
            doctor = f"{install('mpi', 'mpich')}, or on a cluster load its MPI, then {doctor}"
        raise ValueError(
            f"{asked}: got no MPI ({reason}); wanted mpi4py and an MPI library; next: {doctor}"
        ) from None
    return MPI


def _warn_of_two_mpis() -> None:
    """A line before MPICH starts under Open MPI's launcher, where it may end without a word.

    An Open MPI under MPICH's launcher starts: each rank then believes that it is alone.
    """
    if os.environ.get("OMPI_COMM_WORLD_RANK") != "0" or "PMI_SIZE" in os.environ:
        return
    import mpi4py

    library = getattr(mpi4py, "_mpiabi", None)  # its wheels know which library they will load
    if library and library._get_mpiabi() == "mpich":
        print(
            "start: got Open MPI's mpiexec, and MPICH as this Python's library; wanted one MPI; "
            f"next, if it does not start: {PYTHON} -m refgf.doctor",
            file=sys.stderr,
            flush=True,
        )
