"""Cases of techniques that are no records yet."""

from collections.abc import Iterable

import numpy as np

from refgf.oracle import definitions
from refgf.oracle.spec.case import Case
from refgf.oracle.spec.draw import random_source, relative  # noqa: F401
from refgf.oracle.spec.families import (  # noqa: F401
    FAMILIES,
    array_type,
    inputs,
)
from refgf.oracle.spec.statement import fill


def make(
    name: str,
    function: str,
    statements: str,
    why: str,
    arguments: dict | None = None,
    family: str = "values",
    short: Iterable[str] = (),
    **arrays: np.ndarray,
) -> Case:
    """A case with inputs `arrays` and the definitions' results. short: bfloat16 inputs."""
    tensors = {f"in.{key}": np.asarray(value) for key, value in arrays.items()}
    short = tuple(f"in.{key}" for key in short)
    case = Case(name, function, statements.split(), why, family, arguments or {}, tensors, short)
    return fill(case, definitions)


def require(condition: bool, case: Case, claim: str) -> None:
    case.shows(condition, claim)
