"""Results that SPEC.md accepts under a name, next to those of the definitions.

mpich    H2, H7: of two ranks that pair up first, where p is not a power of two, the even one hands
         over, not the odd one
"""

from collections.abc import Callable
from functools import cache
from types import SimpleNamespace

import numpy as np

from refgf.oracle.judge.comparison import judge_bits
from refgf.oracle.spec.calls import Outputs
from refgf.oracle.spec.case import Case
from refgf.oracle.spec.statement import FUNCTIONS
from refgf.oracle.spec.variants import uses, variant


def even_hands_over(rank: int) -> bool:
    """In MPICH's code; instead of the definition `hands_over`."""
    return rank % 2 == 0


VARIANTS: dict[str, dict[str, Callable]] = {"mpich": {"hands_over": even_hands_over}}


@cache
def definitions_of(name: str) -> SimpleNamespace:
    """The definitions with a variant's functions in them."""
    return variant(**VARIANTS[name])


def variant_of(case: Case, got: Outputs) -> str | None:
    """The variant that gives exactly this result; None for the definitions' own or a wrong one."""
    names = [name for name, new in VARIANTS.items() if not uses(case.function).isdisjoint(new)]
    if not names or judge_bits(case, got) is None:
        return None
    return next((name for name in names if judge_bits(as_variant(case, name), got) is None), None)


def as_variant(case: Case, name: str) -> Case:
    """The case with a variant's results in place of the definitions'."""
    with np.errstate(all="ignore"):
        results = FUNCTIONS[case.function].run(definitions_of(name), case)
    return Case(**{**vars(case), "tensors": {**case.tensors, **results}})
