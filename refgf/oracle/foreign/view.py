"""What foreign code may see, read and use: the settings of wall.py.

closed()        Python, NumPy and the system's libraries. For students' files, of which only the
                text enters: no refgf, no answers, no other file, one process
whole(module)   all files, read-only, without the golden cases' answers. For an implementation
                that its author judges: it may import what it likes and start processes
"""

import contextlib
import os
import site
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[3]
ORACLE = Path(__file__).resolve().parents[1]
SYSTEM: tuple[str, ...] = (
    "usr",
    "lib",
    "lib32",
    "lib64",
    "bin",
    "sbin",
    "nix/store",
    "gnu/store",
    "opt/conda",
)
SYSTEM += ("etc/alternatives", "etc/ld.so.cache", "etc/ld.so.conf", "etc/ld.so.conf.d")
SYSTEM += ("etc/localtime",)
RUNTIME = ("/run", "/tmp", "/var/tmp")  # sockets of services; others' files
GIB = 1 << 30
SECRET = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "API_KEY", "PRIVATE")


def closed(cpu_s: float, nbytes: int) -> dict[str, Any]:
    """For code that only computes. cpu_s, nbytes: limits on processor time and memory."""
    read, links = real([f"/{name}" for name in SYSTEM] + libraries())
    limits = {
        "RLIMIT_AS": nbytes,
        "RLIMIT_CPU": int(cpu_s) + 1,
        "RLIMIT_FSIZE": 0,
        "RLIMIT_NOFILE": 256,
        "RLIMIT_NPROC": 256,
    }
    settings = {"read": read, "hide": own_files(read), "links": links, "needed": needed()}
    more = {"scratch": "", "folder": "/", "alone": True, "another_user": True}
    return settings | more | {"limits": limits}


def whole(module: str, scratch: str, hidden: Iterable[str] = ()) -> dict[str, Any]:
    """For a module, by its name or a path.

    scratch: a folder that it may write. hidden: folders of cases.
    """
    places = [*libraries(), str(ROOT), *import_paths(), os.getcwd()]
    if module.endswith(".py"):
        places.append(os.path.dirname(os.path.realpath(module)))
    read, links = real(places)
    hide = [str(ORACLE / "golden")]  # definitions may be imported, as by anybody
    hide += [str(ROOT / "lessons" / "teaching" / "answers"), *history(ROOT), *RUNTIME]
    for folder in map(os.path.realpath, hidden):
        results = (str(file) for file in Path(folder).rglob("*.safetensors"))
        hide += results if folder in read else [folder]
    limits = {"RLIMIT_FSIZE": GIB, "RLIMIT_NPROC": 4096}
    settings = {"read": ["/", *read], "hide": real(hide)[0], "links": links, "needed": needed()}
    more = {"scratch": scratch, "folder": os.getcwd(), "alone": False, "another_user": False}
    return settings | more | {"limits": limits}


def history(checkout: Path) -> list[str]:
    """Git's folder of a checkout, which holds the answers, too; a worktree's names two."""
    place = checkout / ".git"
    if not place.is_file():
        return [str(place)]
    named = checkout / place.read_text().removeprefix("gitdir:").strip()
    return [str(place), str(named.parent.parent)]


def import_paths() -> list[str]:
    """The folders of PYTHONPATH."""
    return [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]


def import_order(whole: bool) -> dict[str, list[str]]:
    """Folders of modules: `paths` after the standard library's, `last` after all others."""
    if not whole:
        return {"paths": [], "last": [str(Path(np.__file__).parent.parent)]}
    return {"paths": [str(ROOT), *import_paths()], "last": [os.getcwd()]}


def environment(whole: bool) -> dict[str, str]:
    """The caller's variables without Python's own and what looks like a secret; or nearly none."""
    fixed = {"PYTHONDONTWRITEBYTECODE": "1"}
    if not whole:
        return fixed | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return fixed | {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PYTHON") and not any(word in name.upper() for word in SECRET)
    }


def libraries() -> list[str]:
    """The folders of this Python's modules, without those of refgf and of a working folder."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    found = [sysconfig.get_paths()[name] for name in names] + site.getsitepackages()
    found += [p for p in sys.path if Path(p).name in ("site-packages", "dist-packages")]
    found += [str(Path(np.__file__).parent.parent), str(Path(sys.base_prefix) / "lib")]
    with contextlib.suppress(AttributeError):
        found.append(site.getusersitepackages())
    return [path for path in dict.fromkeys(found) if path != str(ROOT) or holds_packages(path)]


def holds_packages(path: str) -> bool:
    return Path(path).name in ("site-packages", "dist-packages")


def real(paths: Iterable[str]) -> tuple[list[str], dict[str, str]]:
    """(existing paths without links, {a link's path: what it stands for})"""
    found, links = {}, {}
    for path in map(os.path.abspath, paths):
        if os.path.exists(path):
            target = os.path.realpath(path)
            found[target] = None
            if target != path:
                links[path] = target
    return list(found), links


def own_files(read: list[str]) -> list[str]:
    """refgf and its folders, wherever one of these paths would show them."""
    found = [str(ORACLE.parent)]
    if not holds_packages(str(ROOT)) and str(ROOT) not in read:
        found.append(str(ROOT))
    for path in filter(holds_packages, read):
        found += map(str, Path(path).glob("*refgf*"))
    return real(found)[0]


def needed() -> list[str]:
    """What another user must be able to read."""
    return [os.path.dirname(os.__file__), os.__file__, os.path.dirname(np.__file__), np.__file__]
