"""Damaged checkpoints: a resumed run has the bits of an uninterrupted one, or it is refused.

Two threads resume from two checkpoints of which files were harmed, and go on to step LAST.
"""

import contextlib
import functools
import hashlib
import json
import os
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from refgf.machine import threads
from refgf.machine.checkpoint import Checkpoints
from tests.attack.fate import fate_of, judge
from tests.support.checkpoint_cases import STACKS, advance, bits, new_flow, save_on_threads

SAVED, LAST, RANKS = (2, 4), 6, 2
NONSENSE = (b"", b"null", b"[]", b'{"ranks": 2}', b"\xff\xfe", b"[" * 99_999, b'{"files": ' * 9999)
NONSENSE += (b'{"position": ' + b"9" * 5000 + b"}", b'{"sha256": NaN}', b"\0" * 4096)
POSITIONS = (None, {}, {"at": 1}, {"at": "4"}, [4], 4, 1e400)
NAMES = ("step-00000003", "step-99999999", "step-5", "my thesis")


def go_on(folder: Path, parts: dict) -> None:
    """Resume, train to step LAST, print a hash of the bits."""

    def body(comm):
        flow = new_flow(comm, **parts)
        position = Checkpoints(folder, flow, lambda text: None).resume() or {"at": 0}
        if position != {"at": flow.steps}:
            print("resumed at", position, "with the state of step", flow.steps)
        return bits(advance(flow, LAST))

    print(hashlib.sha256(b"".join(threads.run(RANKS, body))).hexdigest())


@functools.cache
def whole(name: str) -> tuple[Path, str, tempfile.TemporaryDirectory]:
    """A folder with the checkpoints of SAVED, and the hash of the bits at step LAST."""
    kept = tempfile.TemporaryDirectory(prefix="refgf-attack-")
    saved, none = Path(kept.name, "saved"), Path(kept.name, "none")
    fate = fate_of(lambda: save_on_threads(saved, SAVED, RANKS, STACKS[name]), saved.parent)
    assert fate.code == 0, fate.err
    return saved, fate_of(lambda: go_on(none, STACKS[name]), saved.parent).out.strip(), kept


def other(path: Path, rng: random.Random) -> Path:
    """Another file of this folder or of one beside it."""
    return rng.choice(sorted(set(path.parent.parent.glob("*/*")) - {path}))


def flip(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(rng.choice((1, 1, 1, 2, 64)) if content else 0):
        bit = rng.randrange(8 * len(content))
        content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def swap(path: Path, rng: random.Random) -> None:
    middle, second = path.with_name("middle"), other(path, rng)
    path.rename(middle), second.rename(path), middle.rename(second)


def position(path: Path, rng: random.Random) -> None:
    """Another position in the manifest, the rest untouched."""
    path = path.parent / "manifest.json"
    about = json.loads(path.read_bytes()) | {"position": rng.choice(POSITIONS)}
    path.write_text(json.dumps(about, indent=1))


def special(path: Path, rng: random.Random) -> None:
    """A pipe, a folder, no file, or a link to a device, to itself, to nothing, to its folder."""
    path.unlink()
    kind = rng.choice(("pipe", "folder", "", "/dev/zero", "/proc/self/mem", path.name, "no", "."))
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind:
        path.symlink_to(kind)


def rename(path: Path, rng: random.Random) -> None:
    """The whole checkpoint under another name, or behind a link."""
    new = path.parent.rename(path.parent.with_name(rng.choice(NAMES)))
    if rng.random() < 0.5:
        path.parent.symlink_to(new.name)


HARMS = {
    "flipped": flip,
    "truncated": lambda path, rng: os.truncate(path, rng.randrange(path.stat().st_size)),
    "longer": lambda path, rng: os.truncate(path, path.stat().st_size + 8 ** rng.randrange(14)),
    "swapped": swap,
    "nonsense": lambda path, rng: path.write_bytes(rng.choice(NONSENSE)),
    "another file": lambda path, rng: path.write_bytes(other(path, rng).read_bytes()),
    "another position": position,
    "special": special,
    "renamed": rename,
    "special lock": lambda path, rng: special(path.parent.parent / "refgf.lock", rng),
}


def case(rng: random.Random) -> tuple[str, Callable]:
    name, seed = rng.choice(sorted(STACKS)), rng.random()
    harms = rng.choices(["flipped", *HARMS], k=rng.choice((1, 1, 2)))

    def attack(folder: Path) -> list[str]:
        saved, wanted, _ = whole(name)
        kept, again = Path(shutil.copytree(saved, folder / "kept")), random.Random(seed)
        for harm in harms:
            files = sorted(path for path in kept.glob("step-*/*") if path.is_file())
            with contextlib.suppress(OSError, ValueError, TypeError):  # taken or broken before
                HARMS[harm](again.choice(files), again)
        fate = fate_of(lambda: go_on(kept, STACKS[name]), folder)
        wrong = judge(fate, lost=None, own=True)
        if fate.code == 0 and fate.out.strip() != wanted:
            wrong.append(f"other bits without a word: {fate.out.strip()[:100]}")
        return wrong

    return f"{name}: {', '.join(harms)}", attack
