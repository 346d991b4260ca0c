"""Which statements does a wrong result violate? Those that its diagnosis names, or all that it does not show to hold."""

import re

import numpy as np

from refgf.oracle.definitions import agree
from refgf.oracle.judge.comparison import compare
from refgf.oracle.judge.functions import SUMS

NAMED = re.compile(r"\(violates ([A-Z]\d+)\)$")
ORDERS = ("R2", "R3", "D1", "D2", "H1", "H2")  # who adds what, and how it is rounded
BY_PROFILE = {"sum": ["S2"], "agreement": ["R4"]}  # what these profiles judge of an allreduce, whatever its order


def judged_statements(case, outputs, profile="bits"):
    """Statements that a run judges: by the profile; R5 only where intermediate states were given."""
    if profile != "bits" and case.function in SUMS:
        return BY_PROFILE[profile]
    given = outputs is not None and any(name.startswith("state.") for name in outputs)
    return [s for s in case.statements if s != "R5" or given]


def violated(case, outputs, diagnosis, judged):
    """Of the statements of a failing case; more than one where the result does not tell which. -> list"""
    if len(judged) < 2 or outputs is None:
        return judged
    named = {match[1] for match in map(NAMED.search, diagnosis) if match}
    if named:
        return sorted(named)
    right = shown_right(case, outputs)
    if "R5" in judged and "R5" not in right and _holds(case, "out.x", outputs):
        return ["R5"]
    if any(told.startswith("these orders: ") for told in diagnosis):
        return [s for s in judged if s in ORDERS] or judged
    return [s for s in judged if s not in right] or judged


def shown_right(case, outputs):
    """Statements that even a wrong result may show to hold: agreement of the ranks, and the states in between."""
    rows = np.asarray(outputs.get("out.x", []))
    shown = {"R4"} if case.function in SUMS and rows.ndim == 2 and len(rows) and agree(rows) else set()
    return shown | ({"R5"} if "state.x" in case.tensors and _holds(case, "state.x", outputs) else set())


def _holds(case, name, outputs):
    return compare(case, name, outputs, case[name]) is None
