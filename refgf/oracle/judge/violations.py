"""Which statements does a wrong result violate?

Those that its diagnosis names; without one, all that the result does not show to hold.
"""

import re

import numpy as np

from refgf.oracle.definitions import agree
from refgf.oracle.judge.comparison import compare
from refgf.oracle.spec.calls import Outputs
from refgf.oracle.spec.case import Case
from refgf.oracle.spec.plain_sums import PLAIN_SUMS

NAMED = re.compile(r"\(violates ([A-Z]\d+)\)$")
ORDERS = ("R2", "R3", "D1", "D2", "H1", "H2")  # the order of summation, and its rounding
BY_PROFILE = {"sum": ["S2"], "agreement": ["R4"]}  # of an allreduce in any order


def judged_statements(case: Case, outputs: Outputs | None, profile: str = "bits") -> list[str]:
    """Statements that a run judges: by profile; R5 only where intermediate states were given."""
    if profile != "bits" and case.function in PLAIN_SUMS:
        return BY_PROFILE[profile]
    given = outputs is not None and any(name.startswith("state.") for name in outputs)
    return [s for s in case.statements if s != "R5" or given]


def violated(
    case: Case, outputs: Outputs | None, diagnosis: list[str], judged: list[str]
) -> list[str]:
    """Of the judged statements of a failing case those that may be violated.

    There is more than one where the result does not show which.
    """
    if len(judged) < 2 or outputs is None:
        return judged
    named = {match[1] for match in map(NAMED.search, diagnosis) if match}
    right = shown_right(case, outputs)
    if named:
        return sorted(named - right or named)
    if "R5" in judged and "R5" not in right and _holds(case, "out.x", outputs):
        return ["R5"]
    if any(sentence.startswith("these orders: ") for sentence in diagnosis):
        return [s for s in judged if s in ORDERS] or judged
    return [s for s in judged if s not in right] or judged


def shown_right(case: Case, outputs: Outputs) -> set[str]:
    """Statements that even a wrong result may satisfy: equal bits on all ranks, and the states."""
    rows, shown = np.asarray(outputs.get("out.x", [])), set()
    if case.function in PLAIN_SUMS and rows.ndim == 2 and len(rows) and agree(list(rows)):
        shown.add("R4")
    if "state.x" in case.tensors and _holds(case, "state.x", outputs):
        shown.add("R5")
    return shown


def _holds(case: Case, name: str, outputs: Outputs) -> bool:
    return compare(case, name, outputs, case[name]) is None
