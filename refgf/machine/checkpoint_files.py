"""The files of one checkpoint: arrays in safetensors, and a manifest that has a hash of everything.

    *.safetensors    arrays; facts as JSON in the metadata
    manifest.json    settings, position, size and SHA-256 of each file, and a SHA-256 of all this

What is read may be damaged: a flipped bit, a truncated file, a pipe in place of a file. Readers
raise `Damaged` for all of these. Nothing is believed before its SHA-256 was compared.
"""

import functools
import hashlib
import json
import os
from pathlib import Path

import numpy
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from refgf.device import to_host
from refgf.machine.regular_files import open_regular

MANIFEST = "manifest.json"
LARGEST_MANIFEST = 1 << 24  # bytes
FACTS = "facts"  # key in the metadata of a safetensors file

_KINDS = {
    "ranks": int,
    "layout": str,
    "code": str,
    "settings": dict,
    "position": dict,
    "files": dict,
}


class Damaged(ValueError):
    """A file of a checkpoint is not as it was written. The message names the file."""


def write_arrays(path: Path, arrays: dict, facts: dict) -> dict:
    """Write arrays and facts (JSON) to one file, synced to the disk; its {"bytes", "sha256"}.

    Errors: OSError; ValueError for a type that safetensors does not have. Memory: the file's size.
    """
    host = {name: numpy.asarray(to_host(array), order="C") for name, array in arrays.items()}
    try:
        content = save(host, metadata={FACTS: json.dumps(facts)})
    except SafetensorError as error:
        raise ValueError(f"{path.name}: {error}") from None
    _write_synced(path, content)
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def read_arrays(path: Path, entry: object) -> tuple[dict, dict]:
    """(arrays, facts) of `write_arrays`, once the file agrees with the manifest's entry."""
    if not isinstance(entry, dict):
        raise Damaged(f"{path.name} is not in the manifest")
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size != entry.get("bytes"):
                raise Damaged(f"{path.name}: got {size} bytes, wanted {entry.get('bytes')}")
            if hashlib.file_digest(file, "sha256").hexdigest() != entry.get("sha256"):
                raise Damaged(f"{path.name} has changed since it was written")
        with safe_open(path, framework="numpy") as file:
            facts = json.loads(file.metadata()[FACTS])
            return {name: file.get_tensor(name) for name in file.keys()}, facts  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise Damaged(f"{path.name}: {error}") from None


def write_manifest(target: Path, about: dict) -> None:
    """Under another name first: a manifest is there completely or not at all."""
    body = json.loads(json.dumps(about))  # as a reader will see it: keys are text, tuples are lists
    content = json.dumps({"sha256": _digest(body)} | body, indent=1).encode()
    if len(content) > LARGEST_MANIFEST:
        raise ValueError(
            f"{MANIFEST}: got {len(content)} bytes, wanted at most {LARGEST_MANIFEST}; "
            "next: keep a shorter position"
        )
    unfinished = target / f"{MANIFEST}.part"
    _write_synced(unfinished, content)
    unfinished.rename(target / MANIFEST)
    for folder in (target, target.parent):
        _sync_folder(folder)


def read_manifest(source: Path) -> dict:
    """What `write_manifest` wrote into the folder `source`, else Damaged."""
    try:
        with open_regular(source / MANIFEST) as file:
            content = file.read(LARGEST_MANIFEST + 1)
        if len(content) > LARGEST_MANIFEST:
            raise Damaged(f"{MANIFEST}: wanted at most {LARGEST_MANIFEST} bytes")
        body = json.loads(content)
        if not isinstance(body, dict) or body.pop("sha256", None) != _digest(body):
            raise Damaged(f"{MANIFEST} has changed since it was written")
    except Damaged:
        raise
    except (OSError, ValueError, RecursionError) as error:  # not JSON, nested deeply, a huge number
        raise Damaged(f"{MANIFEST}: {error}") from None
    for name, kind in _KINDS.items():
        if not isinstance(body.get(name), kind):
            raise Damaged(f"{MANIFEST}: wanted {name} of type {kind.__name__}")
    return body


def require_json(position: object) -> None:
    """ValueError unless a manifest can hold this position."""
    try:
        json.dumps(position)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"got a position that is not JSON ({error})") from None
    if not isinstance(position, dict):
        raise ValueError(f"got a position that is {type(position).__name__}")


def _digest(body: dict) -> str:
    """SHA-256 of what the manifest means: spaces and the order of keys do not count."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _write_synced(path: Path, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Without this a file's name may be lost with the power although its content is on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@functools.cache
def code_hash() -> str:
    """SHA-256 over the sources of this package, as they are when a run first asks."""
    root, digest = Path(__file__).resolve().parents[1], hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()
