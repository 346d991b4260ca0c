"""Broken folders of images: refused with a sentence, or what is whole is read, alike on all ranks.

Three threads list, check and load everything, as a user whom files can be closed to.
"""

import functools
import hashlib
import json
import os
import random
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from refgf.machine import threads
from refgf.machine.folders import image_folder
from tests.attack.damage import HARMS as OF_FILES
from tests.attack.damage import special
from tests.attack.fate import fate_of, judge
from tests.support.pictures import make_tree

NOBODY, PIXELS, RANKS = 65534, 20, 3
MEMORY_BYTES = 1 << 30  # for images of 40 x 30 pixels
CONTENTS = (b"", b"not an image", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0")


def load(root: Path, skip: bool, limit_bytes: int) -> None:
    """Print {file: hash of its pixels}; all ranks must have the same."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))

    def body(comm):
        settings = {"skip_bad_images": skip, "memory_limit_bytes": limit_bytes, "comm": comm}
        pixels = {}
        for data in image_folder(root, PIXELS, **settings):
            for path, image in zip(data.fetch.paths, data.fetch(np.arange(data.size))):
                pixels[os.path.relpath(path, root)] = hashlib.sha256(image).hexdigest()
        return pixels

    first, *others = threads.run(RANKS, body)
    assert all(other == first for other in others), "ranks have different images"
    print(json.dumps(first))
    print(image_folder(root, PIXELS, skip_bad_images=skip)[0].note, file=sys.stderr)


@functools.cache
def whole() -> tuple[Path, dict[str, str], tempfile.TemporaryDirectory]:
    """A tree without harm, and what `load` prints of it."""
    kept = tempfile.TemporaryDirectory(prefix="refgf-attack-")
    root = make_tree(Path(kept.name, "set"), per_class=4)
    fate = fate_of(lambda: load(root, False, 0), Path(kept.name))
    return root, json.loads(fate.out), kept


def special_folder(file: Path, rng: random.Random) -> None:
    """In place of a class or of train or val: a loop, a pipe, a file that is a device, nothing."""
    folder = file.parents[rng.randrange(2)]
    shutil.rmtree(folder)
    folder.touch()
    special(folder, rng)


def not_text(file: Path, rng: random.Random) -> None:
    """Not an image, and its name is not text."""
    Path(os.fsdecode(os.fsencode(file.parent) + b"/\xff\n.jpg")).write_text("no image")


FILES = {
    "special": special,
    "no image": lambda file, rng: file.write_bytes(rng.choice(CONTENTS)),
    "truncated": OF_FILES["truncated"],
    "13,000 x 13,000 pixels": lambda file, rng: Image.new("1", (13_000,) * 2).save(file, "PNG"),
    "name that is not text": not_text,
    "closed": lambda file, rng: file.chmod(0),
}
CLASSES = {
    "closed class": lambda file, rng: file.parent.chmod(0),
    "empty class": lambda file, rng: [path.unlink() for path in file.parent.iterdir()],
}
EVERYTHING = {  # cannot be skipped
    "no images": lambda file, rng: [path.unlink() for path in file.parents[2].glob("*/*/*")],
    "special folder": special_folder,
}
HARMS = FILES | CLASSES | EVERYTHING


def case(rng: random.Random) -> tuple[str, Callable]:
    skip, limit_bytes, seed = rng.random() < 0.6, rng.choice((0, 1 << 28)), rng.random()
    harms = rng.sample(list(FILES), rng.choice((1, 2)))
    if rng.random() < 0.35:
        harms = [rng.choice([*CLASSES, *EVERYTHING, *EVERYTHING])]

    def attack(folder: Path) -> list[str]:
        (whole_root, before, _), again = whole(), random.Random(seed)
        root = Path(shutil.copytree(whole_root, folder / "set"))
        files = again.sample(sorted(root.glob("*/*/*")), len(harms))
        for file, harm in zip(files, harms):
            HARMS[harm](file, again)

        def program() -> None:
            os.setegid(NOBODY), os.seteuid(NOBODY)  # root reads everything
            load(root, skip, limit_bytes)

        fate = fate_of(program, folder)
        for path in filter(Path.is_dir, root.glob("*/*")):
            path.chmod(0o755)  # so that it can be removed
        gone = "special" in harms and not any(map(os.path.lexists, files))  # as if never there
        everything = not EVERYTHING.keys().isdisjoint(harms)
        either = gone or everything and (skip or "every 10th" in fate.err)  # val/ need not be there
        wrong = judge(fate, lost=None if either else not skip, own=True)
        got = json.loads(fate.out) if fate.code == 0 else before
        if any(before.get(name) != pixels for name, pixels in got.items()):
            wrong.append("images with other pixels")
        harmed = {str(file.relative_to(root)) for file in files}
        if FILES.keys() >= set(harms) and set(before) - harmed - set(got):
            wrong.append("images that were whole are missing")
        return wrong

    return f"{', '.join(harms)}{' to be skipped' * skip}, {limit_bytes} bytes", attack
