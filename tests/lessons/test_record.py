"""A figure's hash changes with the code that measured it, and with nothing else."""

import pytest

from kit import record

LESSON, LAB, KIT = "lessons/01_ring.py", "lessons/lab/ring/times.py", "lessons/kit/__init__.py"
CLAIMS, YOURS, PICTURE, PAPER, RING, TREE = (
    "lessons/lab/ring/claims.py",
    "lessons/lab/ring/yours.py",
    "lessons/lab/ring/picture.py",
    "refgf/papers/jia.py",
    "refgf/comm/ring.py",
    "refgf/comm/tree.py",
)
PROJECT = {
    LESSON: '''"""Lesson."""

import kit
from lab.ring import picture, times
from lab.ring.claims import CLAIMS

REPEATS = 5  # few
print(kit.calls(1,
                REPEATS))
''',
    LAB: "WIDTH = 8\n",
    PICTURE: "COLOUR = 1\n",
    CLAIMS: 'from lab.ring.yours import YOURS\nCLAIMS = ("a ring is slow",)\n',
    YOURS: "from refgf.comm import tree\nYOURS = 1\n",
    KIT: """from refgf.papers import jia

def calls(a, b):
    return jia.node(a + b)
""",
    PAPER: """def node(p):
    from refgf.comm import ring
    return ring.steps(p)
""",
    RING: '''def steps(p: int, extra=0) -> int:
    """Two phases."""
    phases = 2
    return phases * (p - 1) + extra  # messages

class Step:
    first: int
    second: int = 0
''',
    TREE: "DEPTH = 3\n",
}
NO_CHANGE = [
    ("a comment", LESSON, "# few", "# a few"),
    ("a docstring", RING, "Two phases.", "Reduce-scatter, then allgather."),
    ("no docstring", RING, '    """Two phases."""\n', ""),
    ("an argument's type", RING, "p: int", "p: Rank"),
    ("no type of an argument", RING, "p: int", "p"),
    ("the type of what is returned", RING, "-> int", "-> list[int]"),
    ("an import of types", RING, "def steps", "from typing import Any\n\ndef steps"),
    ("a local name's type", RING, "phases = 2", "phases: int = 2"),
    ("a declaration", RING, "phases = 2", "phases: int\n    phases = 2"),
    ("a field's type", RING, "first: int", "first: float"),
    ("the type of a field with a default", RING, "second: int", "second: float"),
    ("a line break", LESSON, "1,\n                REPEATS", "1, REPEATS"),
    ("a claim", CLAIMS, "is slow", "is fast"),
    ("what --mine measures", YOURS, "= 1", "= 2"),
    ("a picture", PICTURE, "1", "2"),
    ("the kit", KIT, "a + b", "a - b"),
    ("a paper", PAPER, "steps(p)", "steps(p) + 1"),
    ("core code that is not imported", TREE, "3", "4"),
]
CHANGE = [
    ("a constant of the lesson", LESSON, "REPEATS = 5", "REPEATS = 6"),
    ("a constant of the lab", LAB, "8", "9"),
    ("a constant of the core", RING, "= 2", "= 3"),
    ("an argument's name", RING, "extra", "more"),
    ("one more argument", RING, "extra=0", "extra=0, more=0"),
    ("an argument's default", RING, "extra=0", "extra=1"),
    ("a field's default", RING, "second: int = 0", "second: int = 1"),
    ("a field without its default", RING, "second: int = 0", "second: int"),
    ("no field any more", RING, "second: int = 0", "second = 0"),
    ("one more field", RING, "first: int", "first: int\n    next: int"),
    ("the order of fields", RING, "first: int\n    second: int", "second: int\n    first: int"),
    ("one more core file", LESSON, "import kit", "import kit\nfrom refgf.comm import tree"),
]


def code_hash(folder, changed=None, old="", new=""):
    """The hash in a small project of which one text is replaced."""
    for name, text in PROJECT.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        assert name != changed or old in text
        file.write_text(text.replace(old, new) if name == changed else text)
    return record.code_hash(folder / LESSON, folder)


@pytest.mark.parametrize(
    "file, old, new", [row[1:] for row in NO_CHANGE], ids=[r[0] for r in NO_CHANGE]
)
def test_a_figure_stays_fresh(tmp_path, file, old, new):
    assert code_hash(tmp_path, file, old, new) == code_hash(tmp_path)


@pytest.mark.parametrize("file, old, new", [row[1:] for row in CHANGE], ids=[r[0] for r in CHANGE])
def test_a_figure_becomes_stale(tmp_path, file, old, new):
    assert code_hash(tmp_path, file, old, new) != code_hash(tmp_path)


def test_the_import_path_of_a_lesson():
    """The rule that finds files in the small project finds them in this one."""
    lesson = next((record.ROOT / "lessons").glob("03_*.py"))
    core = {file.name for file in record.import_path([lesson]) if record.counts(file)}
    assert {"lazy.py", "pool.py", "ring.py", "slices.py"} <= core


@pytest.mark.parametrize(
    "name, counted", [("picture.py", False), ("models_picture.py", False), ("times.py", True)]
)
def test_drawing_measures_nothing(name, counted):
    assert record.counts(record.ROOT / "lessons" / "lab" / "ring" / name) is counted
