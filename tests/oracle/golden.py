"""Golden cases and their files by name."""

from pathlib import Path

from refgf.oracle.judge.cases import GOLDEN, Case, load_case


def golden_file(name: str) -> Path:
    """The path of a file in whichever letter's folder it lies."""
    return next(GOLDEN.glob(f"*/{name}"))


def golden_case(name: str) -> Case:
    return load_case(golden_file(f"{name}.json").parent, name)
