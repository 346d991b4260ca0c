"""Students' files that want marks for nothing, or to harm: tests/oracle/foreign/hostile.

No file gets a mark that its answers do not earn (EARNED). None reads answers, stops the judge,
leaves a process, or writes outside its own folder. CHECKOUT in a file stands for this checkout.
"""

import random
import re
import sys
from collections.abc import Callable
from pathlib import Path

from tests.attack.fate import fate_of, judge

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "oracle" / "foreign" / "hostile"
EARNED = {"right": 16, "wrong": 11, "starter": 2}  # points; of any other file at most LITTLE
LITTLE = 2  # for not doing anything where nothing is to be done
LIMIT_S = 240.0  # eight exercises, each with its own limit, on a busy machine
WATCHED = ("refgf", "lessons", "tests")


def case(rng: random.Random) -> tuple[str, Callable]:
    names = sorted(path.stem for path in FOLDER.glob("*.txt") if not path.stem.startswith("v"))
    name = rng.choice([one for one in names if one != "attempts"])
    more = rng.choice(([], ["--seed", str(rng.randrange(1000))], ["--json", "marks.json"]))

    def attack(folder: Path) -> list[str]:
        text = (FOLDER / f"{name}.txt").read_text().replace("CHECKOUT", str(ROOT))
        lesson = "03" if "def pool_slices" in text else "01"
        (folder / "mine").mkdir()
        (folder / "mine" / "answers.py").write_text(text)
        before = changed(folder)
        words = ["grade", lesson, str(folder / "mine" / "answers.py"), *more]
        program = [sys.executable, "-P", "-m", "refgf.oracle", *words]
        fate = fate_of(program, folder, limit_s=LIMIT_S, env={"PYTHONPATH": str(ROOT)})
        wrong = judge(fate, lost=None, says=False)
        points = re.search(r"^(\d+(?:\.\d+)?) of \d+ points", fate.out, re.MULTILINE)
        if not points:
            wrong.append(f"no marks: {(fate.err or fate.out).strip()[-150:]}")
        elif float(points[1]) > EARNED.get(name, LITTLE):
            wrong.append(f"{points[0]}, which it has not earned")
        elif float(points[1]) < EARNED.get(name, 0):
            wrong.append(f"{points[0]}, and it has earned {EARNED[name]}")
        if found := re.search(r"\bREAD\b.*|uid=\d+.*", fate.out):
            wrong.append(f"read or ran what is not its own: {found[0][:80]}")
        escaped = {c for c in fate.out + fate.err if c < " " and c not in "\n\t"}
        if escaped:
            wrong.append(f"control characters reached the terminal: {sorted(escaped)}")
        if (now := changed(folder)) != before:
            wrong.append(f"changed: {sorted(now ^ before)[:3]}")
        return wrong

    return f"{name}, grade {' '.join(more)}", attack


def changed(folder: Path) -> set[tuple[str, int]]:
    """The files that a student's file could harm, with their sizes, caches excepted."""
    places = [ROOT / name for name in WATCHED] + [folder / "mine"]
    files = (path for place in places for path in place.rglob("*") if path.is_file())
    return {(str(f), f.stat().st_size) for f in files if "__pycache__" not in f.parts}
