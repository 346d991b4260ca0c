"""Gives a site's MPICH the name that mpi4py's wheels want (Linux).

They are linked with libmpi.so.12, the name of MPICH's ABI. Debian and Ubuntu build MPICH as
libmpich.so.12 and give it no other name. A symbolic link in the environment's lib/ is one, and the
loader finds it where LD_LIBRARY_PATH names that folder. Another module may be loaded the next time,
so `python -m refgf.doctor --setup` makes the link anew or takes it away.
"""

import os
import shlex
import subprocess
import sys
from pathlib import Path

WANTED, DEBIAN = "libmpi.so.12", "libmpich.so.12"
FOLDER = Path(sys.prefix, "lib")
# prints the path of the library that the loader finds by this name, or fails
LOAD = """
import ctypes, sys
ctypes.CDLL(sys.argv[1])
for line in open("/proc/self/maps"):
    if "/" + sys.argv[2] in line:
        sys.exit(print(line.split(None, 5)[-1].strip()))
"""


def debian_mpich() -> str | None:
    """The path of a libmpich.so.12, if the loader finds no libmpi.so.12 but that of our link."""
    if not sys.platform.startswith("linux") or _found(WANTED):
        return None
    return _found(DEBIAN)


def command(library: str) -> str:
    """What makes this library loadable in a shell, by hand."""
    return f"ln -sf {shlex.quote(library)} {shlex.quote(str(FOLDER / WANTED))} && {export()}"


def export() -> str:
    """What lets the loader find the link. The Makefile exports it itself."""
    return f'export LD_LIBRARY_PATH="{FOLDER}:$LD_LIBRARY_PATH"'


def has_link() -> bool:
    """Is there a link of ours?"""
    place = FOLDER / WANTED
    return place.is_symlink() and os.path.basename(os.readlink(place)).startswith(DEBIAN)


def link(family: str | None) -> str:
    """Make or remove the link. family: of the mpiexec on PATH. Returns a sentence, "" for nothing.

    Only in a virtual environment, and never in place of a file that is not such a link.
    """
    place = FOLDER / WANTED
    ours = has_link()
    if sys.prefix == sys.base_prefix or (os.path.lexists(place) and not ours):
        return ""
    library = debian_mpich() if family in ("MPICH", None) else None
    if ours and os.readlink(place) == library:
        return ""
    if ours:
        place.unlink()
    if library:
        place.symlink_to(library)
        return f"{place} is now a name of {library}; outside of make: {export()}"
    return f"removed {place}: its MPI is not the one that is loaded now" if ours else ""


def _found(name: str) -> str | None:
    paths = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    others = ":".join(path for path in paths if path and Path(path) != FOLDER)
    command = [sys.executable, "-c", LOAD, name, f"{name.partition('.so')[0]}.so"]
    environ = os.environ | {"LD_LIBRARY_PATH": others}
    done = subprocess.run(command, env=environ, capture_output=True, text=True)
    return done.stdout.strip() or None
