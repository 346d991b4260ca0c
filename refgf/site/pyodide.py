"""The project's own Python in a page: Pyodide's core from npm, and the modules that a page runs.

`install` is the only step that uses the network, and only when a site is built; it also brings
MiniSearch (search.py). Without Pyodide a page shows the numbers that were exported when it was
built.

A page from a disk (`file:`) may neither fetch a file nor import a module. It loads a script,
disk.js, which holds the same files in base64; a page from a server never loads it.
"""

import json
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

PACKAGES = {"pyodide": "314.0.7", "minisearch": "7.2.0"}
FILES: tuple[str, ...] = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip")
FILES += ("pyodide-lock.json", "README.md", "package.json")  # the last name its licence: MPL-2.0

WORKER = Path(__file__).parent / "static" / "python-worker.js"
TYPES = {".mjs": "text/javascript", ".js": "text/javascript", ".wasm": "application/wasm"}


def folder(root: Path, package: str = "pyodide") -> Path:
    return root / ".venv" / "pyodide" / "node_modules" / package


def available(root: Path) -> bool:
    return all((folder(root) / name).is_file() for name in FILES)


def install(root: Path) -> str:
    """Get PACKAGES by npm unless they are there. -> a sentence for the terminal, or nothing"""

    def missing() -> list[str]:
        found = {name: (folder(root, name) / "package.json").is_file() for name in PACKAGES}
        return [f"{name}@{PACKAGES[name]}" for name, there in found.items() if not there]

    if not missing():
        return ""
    wanted = [f"{name}@{version}" for name, version in PACKAGES.items()]
    npm = shutil.which("npm")
    why = "npm is missing"
    if npm and (root / ".venv").is_dir():
        place = ["--prefix", str(root / ".venv" / "pyodide")]
        command = [npm, "install", "--silent", "--no-audit", "--no-fund", *place]
        try:
            subprocess.run([*command, *wanted], timeout=120, check=True)
        except (subprocess.SubprocessError, OSError) as problem:
            why = f"npm ended with: {problem}"
        if not missing():
            return ""
    return (
        f"site: got no {' and '.join(missing())} ({why}); without Pyodide the explorer shows "
        "exported numbers only, and the player takes no files; without MiniSearch there is no "
        "search; next: "
        f"npm install --prefix .venv/pyodide {' '.join(wanted)}"
    )


def files(root: Path) -> Iterator[tuple[str, bytes]]:
    """(address, content) of what a page loads; nothing without Pyodide."""
    if available(root):
        for name in FILES:
            yield f"pyodide/{name}", (folder(root) / name).read_bytes()
        yield "pyodide/disk.js", disk(root)


def disk(root: Path) -> bytes:
    """A script with all that a page from a disk needs: {name: data: address} in window.DISK."""
    paths = [folder(root) / name for name in FILES if not name.startswith(("README", "package"))]
    found = {}
    for path in (*paths, WORKER):
        kind = TYPES.get(path.suffix, "application/octet-stream")
        found[path.name] = f"data:{kind};base64,{b64encode(path.read_bytes()).decode()}"
    return f"window.DISK={json.dumps(found)};\n".encode()
