"""What a user types to get what is missing: in a checkout, or where a wheel was installed."""

from pathlib import Path
from types import ModuleType

CHECKOUT = (Path(__file__).resolve().parents[1] / "pyproject.toml").exists()


def install(*extras: str) -> str:
    """The command that installs these extras of refgf."""
    names = f"[{','.join(extras)}]"
    return f"pip install -e '.{names}'" if CHECKOUT else f"pip install 'refgf{names}'"


def mpi(asked: str) -> ModuleType:
    """mpi4py.MPI. ValueError with what to install if it, or an MPI library for it, is missing.

    asked: what needs MPI, for the message. mpi4py's wheels raise RuntimeError without a library.
    """
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:120]
        raise ValueError(
            f"{asked}: got no MPI ({reason}); wanted mpi4py and an MPI library; "
            f"next: {install('mpi', 'mpich')}, or on a cluster load the site's MPI"
        ) from None
    return MPI
