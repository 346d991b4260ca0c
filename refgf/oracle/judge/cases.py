"""A golden case: inputs per rank, optional intermediate states, the result, and why the case exists.

Two files: NAME.json says what is computed, NAME.safetensors holds the arrays,

    in.*      inputs                                   state.*   intermediate states: judged where they are given
    out.*     results: must be given                   bound.*   how far from out.* a result may be; without it, bits

The file `sha256` of a folder lists the hash of each of its files. A bfloat16 array is a float32 array here and its 16
bits in the file.
"""

import hashlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from refgf.oracle.definitions import bfloat16_bits, bfloat16_values
from refgf.oracle.judge.files import PLAIN_NAME, BadFile, read_bytes, read_json, read_tensors, write_tensors
from refgf.oracle.judge.functions import CALLS

FORMAT, SPEC = 1, 1
GOLDEN = Path(__file__).parents[1] / "golden"
TEXTS = ("name", "function", "why", "family")
STATEMENT = re.compile(r"[A-Z][0-9]{1,3}")
FIELDS = (*TEXTS, "statements", "arguments")


@dataclass
class Case:
    """family: see generate/families.py, or "values"; bfloat16: names of tensors that are 16 bits in the file."""

    name: str
    function: str
    statements: list
    why: str
    family: str
    arguments: dict
    tensors: dict = field(default_factory=dict)
    bfloat16: tuple = ()

    def __getitem__(self, name):
        return self.tensors[name]

    @property
    def letter(self):
        """Family of the first statement: "R" for R2."""
        return self.statements[0][0]

    def part(self, prefix):
        """{"out.x": array} for the prefix "out"."""
        return {name: a for name, a in self.tensors.items() if name.startswith(prefix + ".")}

    def description(self):
        return {"format": FORMAT, "spec": SPEC, **{key: getattr(self, key) for key in FIELDS}}


def save_case(case, folder, prefixes=("in", "state", "out", "bound"), stems=None):
    """Write NAME.json and NAME.safetensors (or two other stems), the latter with the tensors of these prefixes only."""
    about, arrays = stems or (case.name, case.name)
    Path(folder, f"{about}.json").write_text(json.dumps(case.description(), indent=1) + "\n")
    tensors = {name: a for prefix in prefixes for name, a in case.part(prefix).items()}
    save_tensors(Path(folder, f"{arrays}.safetensors"), tensors, case.bfloat16)


def save_tensors(path, tensors, bfloat16=()):
    """Tensors named in `bfloat16` hold float32 values that are bfloat16 numbers; their 16 bits are written."""
    write_tensors(path, {k: bfloat16_bits(v) if k in bfloat16 else v for k, v in tensors.items()}, bfloat16)


def load_tensors(path):
    """-> {name: array}, names of those that are bfloat16 in the file (float32 values here)"""
    arrays, types = read_tensors(path)
    short = tuple(name for name, kind in types.items() if kind == "bfloat16")
    return {name: bfloat16_values(a) if name in short else a for name, a in arrays.items()}, short


def load_case(folder, name):
    """Raises BadFile for anything that is not a case that this version can judge."""
    text = read_json(inside(folder, f"{name}.json"))
    if text.get("format") != FORMAT or text.get("spec") != SPEC:
        got = f"format {str(text.get('format'))[:20]}, spec {str(text.get('spec'))[:20]}"
        raise BadFile(f"{name}.json: got {got}; wanted {FORMAT}, {SPEC}")
    for key in TEXTS:
        if not isinstance(text.get(key), str):
            raise BadFile(f"{name}.json: {key} is not a text")
    if text["name"] != name or text["function"] not in CALLS:
        raise BadFile(f"{name}.json: is about case {text['name']!r}, function {text['function']!r}; not known here")
    if not isinstance(text.get("arguments"), dict) or not _statements(text.get("statements")):
        raise BadFile(f"{name}.json: arguments is not an object, or statements not a list like [\"R1\"]")
    tensors, short = load_tensors(inside(folder, f"{name}.safetensors"))
    return Case(**{key: text[key] for key in FIELDS}, tensors=tensors, bfloat16=short)


def _statements(values):
    return isinstance(values, list) and len(values) > 0 and all(isinstance(v, str) and STATEMENT.fullmatch(v) for v in values)


def inside(folder, name):
    """The path of a file in a folder. Refuses names with other characters and links that lead out of the folder."""
    if not PLAIN_NAME.fullmatch(name):
        raise BadFile(f"{name[:60]!r} is not the name of a file in the folder {folder}")
    path = Path(folder, name)
    if path.resolve().parent != Path(folder).resolve():
        raise BadFile(f"{path} leads out of its folder")
    return path


def load_folder(folder):
    """All cases of a folder, or of its subfolders if the folder itself has no `sha256`; hashes are checked.

    -> list of Case, ordered by subfolder and then as in `sha256`
    """
    folders = [Path(folder)]
    if not Path(folder, "sha256").exists():
        below = (path.parent for path in Path(folder).glob("*/sha256"))
        folders = sorted(place for place in below if not place.is_symlink()) or folders
    return [load_case(place, name) for place in folders for name in listed(place)]


def listed(folder):
    """Names of the cases that the folder's `sha256` lists, once all hashes agree."""
    names = []
    for line in read_bytes(inside(folder, "sha256"), 1 << 20).decode(errors="replace").splitlines():
        digest, _, name = line.partition("  ")
        if hashlib.sha256(read_bytes(inside(folder, name))).hexdigest() != digest:
            raise BadFile(f"{Path(folder, name)}: its sha256 is not the listed one; next: fetch or export it again")
        if name.endswith(".json"):
            names.append(name.removesuffix(".json"))
    if not names:
        raise BadFile(f"{Path(folder, 'sha256')}: lists no case")
    return names


def save_folder(cases, folder):
    """Write cases and their sha256 list."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for case in cases:
        save_case(case, folder)
    files = sorted(f"{case.name}.{end}" for case in cases for end in ("json", "safetensors"))
    lines = [f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in files]
    (folder / "sha256").write_text("".join(lines))


def save_by_letter(cases, folder):
    """Write cases into a subfolder per letter of their first statement, each with its sha256 list."""
    for letter in sorted({case.letter for case in cases}):
        save_folder([case for case in cases if case.letter == letter], Path(folder, letter))


def plain_array(value):
    """An array of a type that files hold: a bool becomes 0 or 1."""
    value = np.asarray(value)
    return value.astype(np.uint8) if value.dtype == bool else value


def fill(case, module):
    """Add what the definitions (or any module) say to a case that has inputs only. -> the case"""
    results = CALLS[case.function].run(module, case)
    case.tensors.update({name: plain_array(value) for name, value in results.items()})
    if "in.x" in case.bfloat16:
        case.bfloat16 += tuple(name for name in results if case[name].dtype == np.float32)
    return case
