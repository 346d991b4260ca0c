"""Golden cases and their files by name. CASES is read once in a process; tests do not change it."""

from pathlib import Path

from refgf.oracle.judge.cases import GOLDEN, Case, load_case, load_folder

CASES = load_folder(GOLDEN)


def golden_file(name: str) -> Path:
    """The path of a file in whichever letter's folder it lies."""
    return next(GOLDEN.glob(f"*/{name}"))


def golden_case(name: str) -> Case:
    """Of the caller's own, to change."""
    return load_case(golden_file(f"{name}.json").parent, name)


def cases_of(folder: Path | str) -> list[Case]:
    """load_folder, but from memory for the golden cases."""
    return list(CASES) if Path(folder) == GOLDEN else load_folder(folder)
