"""What a checkpoint consists of on the disk: files of arrays, a manifest, and checks that they are whole."""

import contextlib
import functools
import hashlib
import json
import os
import shutil
from pathlib import Path

import numpy

from refgf.device import to_host

MANIFEST = "manifest.json"


def prepare(target: Path) -> None:
    remove(target)  # a run that was resumed before this step, because this one was damaged
    target.mkdir(parents=True)


def remove(folder: Path) -> None:
    """Delete a checkpoint; the manifest first, so that a half-deleted one does not count."""
    with contextlib.suppress(OSError):
        (folder / MANIFEST).unlink()
    shutil.rmtree(folder, ignore_errors=True)


def write_arrays(path: Path, arrays: dict, facts: dict) -> dict:
    """Write arrays and facts (JSON) to one .npz, to the disk itself; {"bytes", "sha256"} of the file."""
    text = numpy.frombuffer(json.dumps(facts).encode(), numpy.uint8)
    with open(path, "wb") as file:
        numpy.savez(file, facts=text, **{name: to_host(array) for name, array in arrays.items()})
        file.flush()
        os.fsync(file.fileno())
    return _entry(path)


def read_arrays(path: Path) -> tuple[dict, dict]:
    """(arrays, facts) of `write_arrays`."""
    with numpy.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    return arrays, json.loads(arrays.pop("facts").tobytes())


def _entry(path: Path) -> dict:
    with open(path, "rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def write_manifest(target: Path, about: dict) -> None:
    """Under another name first: a manifest is there completely or not at all."""
    unfinished = target / f"{MANIFEST}.part"
    with open(unfinished, "w") as file:
        json.dump(about, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(target / MANIFEST)
    for folder in (target, target.parent):
        _sync_folder(folder)


def _sync_folder(folder: Path) -> None:
    """Without this a file's name may be lost with the power although its content is on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


def damage(path: Path, entry: dict | None) -> str | None:
    """What is wrong with a file, compared with the manifest's entry."""
    if entry is None:
        return f"{path.name} is not in the manifest"
    try:
        got = _entry(path)
    except OSError as error:
        return str(error)
    if got["bytes"] != entry["bytes"]:
        return f"{path.name} has {got['bytes']} bytes, should have {entry['bytes']}"
    return None if got == entry else f"{path.name} has changed since it was written"


def read_text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        return f"not readable: {error}"


@functools.cache
def code_hash() -> str:
    """SHA-256 over the sources of this package, as they are when a run first asks."""
    root, digest = Path(__file__).resolve().parents[1], hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()
