"""Reading and writing cases: NAME.json says what is computed, NAME.safetensors holds the arrays.

    in.*      inputs
    out.*     results: must be given
    state.*   intermediate states: judged where they are given
    bound.*   allowed distance of a result from out.*; without it the same bits are wanted

The file `sha256` of a folder lists the hash of each of its files. A bfloat16 array is a float32
array in memory, and its 16 bits in the file.
"""

import fnmatch
import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from refgf.oracle.definitions import bfloat16_bits, bfloat16_values
from refgf.oracle.foreign.files import PLAIN_NAME, read_json, read_tensors, write_tensors
from refgf.oracle.foreign.untrusted import BadFile, read_bytes
from refgf.oracle.spec.case import FIELDS, FORMAT, SPEC, TEXTS, Case
from refgf.oracle.spec.statement import FUNCTIONS

GOLDEN = Path(__file__).parents[1] / "golden"
STATEMENT = re.compile(r"[A-Z][0-9]{1,3}")
LARGEST_LIST = 1 << 20  # bytes of a folder's sha256
EVERYTHING = ("in", "state", "out", "bound")


def save_case(
    case: Case,
    folder: Path | str,
    prefixes: tuple[str, ...] = EVERYTHING,
    stems: tuple[str, str] | None = None,
) -> None:
    """Write NAME.json and NAME.safetensors (or two other stems), with tensors of these prefixes."""
    about, arrays = stems or (case.name, case.name)
    Path(folder, f"{about}.json").write_text(json.dumps(case.description(), indent=1) + "\n")
    tensors = {name: a for prefix in prefixes for name, a in case.with_prefix(prefix).items()}
    save_tensors(Path(folder, f"{arrays}.safetensors"), tensors, case.bfloat16)


def save_tensors(path: Path, tensors: dict[str, np.ndarray], bfloat16: Iterable[str] = ()) -> None:
    """Write tensors. Of those named in `bfloat16`, float32 in memory, the 16 bits are written."""
    bits = {name: bfloat16_bits(a) if name in bfloat16 else a for name, a in tensors.items()}
    write_tensors(path, bits, bfloat16)


def load_tensors(path: Path | str) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    """-> {name: array}, names of those that are bfloat16 in the file (float32 in memory)"""
    arrays, types = read_tensors(path)
    short = tuple(name for name, kind in types.items() if kind == "bfloat16")
    values = {name: bfloat16_values(a) if name in short else a for name, a in arrays.items()}
    return values, short


def load_case(folder: Path | str, name: str) -> Case:
    """Raises BadFile for anything that is not a case that this version can judge."""
    text = read_json(inside(folder, f"{name}.json"))
    if text.get("format") != FORMAT or text.get("spec") != SPEC:
        got = f"format {str(text.get('format'))[:20]}, spec {str(text.get('spec'))[:20]}"
        raise BadFile(f"{name}.json: got {got}; wanted format {FORMAT}, spec {SPEC}")
    for key in TEXTS:
        if not isinstance(text.get(key), str):
            raise BadFile(f"{name}.json: got {key} {str(text.get(key))[:20]}; wanted a text")
    if text["name"] != name or text["function"] not in FUNCTIONS:
        got = f"case {text['name'][:40]!r}, function {text['function'][:40]!r}"
        raise BadFile(f"{name}.json: got {got}; wanted case {name!r} and a function of SPEC.md")
    if not isinstance(text.get("arguments"), dict):
        raise BadFile(f"{name}.json: wanted arguments as an object")
    if not _are_statements(text.get("statements")):
        raise BadFile(f'{name}.json: wanted statements as a list like ["R1"]')
    tensors, short = load_tensors(inside(folder, f"{name}.safetensors"))
    return Case(**{key: text[key] for key in FIELDS}, tensors=tensors, bfloat16=short)


def _are_statements(values: Any) -> bool:
    if not isinstance(values, list) or not values:
        return False
    return all(isinstance(v, str) and STATEMENT.fullmatch(v) for v in values)


def inside(folder: Path | str, name: str) -> Path:
    """The path of a file in a folder. Raises BadFile for odd characters and for links outside."""
    if not PLAIN_NAME.fullmatch(name):
        raise BadFile(f"{name[:60]!r} is not the name of a file in the folder {folder}")
    path = Path(folder, name)
    if path.is_symlink() and path.resolve().parent != Path(folder).resolve():
        raise BadFile(f"{path} leads out of its folder")
    return path


def load_folder(folder: Path | str) -> list[Case]:
    """All cases of a folder, or of its subfolders if the folder itself has no `sha256`.

    Hashes are checked. The order is that of the subfolders' names and of the lists in them.
    """
    folders = [Path(folder)]
    if not Path(folder, "sha256").exists():
        below = (path.parent for path in Path(folder).glob("*/sha256"))
        folders = sorted(place for place in below if not place.is_symlink())
    if not folders:
        raise BadFile(
            f"{folder}: no cases; wanted a folder with a file sha256, or folders that have one; "
            "next: python -m refgf.oracle export FOLDER"
        )
    return [load_case(place, name) for place in folders for name in listed(place)]


def listed(folder: Path) -> list[str]:
    """Names of the cases in the folder's `sha256`. Raises BadFile unless all hashes agree."""
    names = []
    text = read_bytes(inside(folder, "sha256"), LARGEST_LIST).decode(errors="replace")
    for line in text.splitlines():
        digest, _, name = line.partition("  ")
        if hashlib.sha256(read_bytes(inside(folder, name))).hexdigest() != digest:
            raise BadFile(
                f"{folder / name}: its sha256 is not the listed one; next: fetch or export it again"
            )
        if name.endswith(".json"):
            names.append(name.removesuffix(".json"))
    if not names:
        raise BadFile(f"{folder / 'sha256'}: lists no case")
    return names


def save_folder(cases: list[Case], folder: Path | str) -> None:
    """Write cases and their sha256 list into one folder."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for case in cases:
        save_case(case, folder)
    files = sorted(f"{case.name}.{end}" for case in cases for end in ("json", "safetensors"))
    hashes = ((hashlib.sha256((folder / name).read_bytes()).hexdigest(), name) for name in files)
    (folder / "sha256").write_text("".join(f"{digest}  {name}\n" for digest, name in hashes))


def save_by_letter(cases: list[Case], folder: Path | str) -> None:
    """Write cases into a subfolder per letter of their first statement, each with a sha256 list."""
    for letter in sorted({case.letter for case in cases}):
        save_folder([case for case in cases if case.letter == letter], Path(folder, letter))


def selected(case: Case, patterns: list[str] | None) -> bool:
    """Do these patterns (None: all cases) name its statements, their letters, function or name?"""
    names = [case.name, case.function, *case.statements, *{s[0] for s in case.statements}]
    if not patterns:
        return True
    return any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in patterns)
