"""A golden case: inputs per rank, intermediate states, the result, and why the case exists."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

FORMAT, SPEC = 1, 1  # versions of the case format and of SPEC.md
TEXTS = ("name", "function", "why", "family")
Given = dict[str, Any]  # arguments and inputs of a case, by name
FIELDS = (*TEXTS, "statements", "arguments")


@dataclass
class Case:
    """family: of families.py, or "values"; bfloat16: tensors stored as 16 bits."""

    name: str
    function: str
    statements: list[str]
    why: str
    family: str
    arguments: Given
    tensors: dict[str, np.ndarray] = field(default_factory=dict)
    bfloat16: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> np.ndarray:
        return self.tensors[name]

    @property
    def letter(self) -> str:
        """Family of the first statement: "R" for R2."""
        return self.statements[0][0]

    def with_prefix(self, prefix: str) -> dict[str, np.ndarray]:
        """{"out.x": array} for the prefix "out"."""
        return {name: a for name, a in self.tensors.items() if name.startswith(prefix + ".")}

    def description(self) -> dict[str, Any]:
        """The contents of NAME.json."""
        return {"format": FORMAT, "spec": SPEC, **{key: getattr(self, key) for key in FIELDS}}

    def shows(self, condition: bool | np.bool, claim: str) -> "Case":
        """The generator's own check that this case exercises what it claims. -> the case"""
        if not condition:
            raise AssertionError(
                f"golden case {self.name}: {claim} does not hold; next: another seed or shape"
            )
        return self
