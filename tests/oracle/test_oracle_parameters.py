"""No parameter is seen as powers of two only: these hide where a factor is rounded."""

import math
from collections import defaultdict

import numpy as np
import pytest

from refgf.oracle.judge.implementations import PythonModule
from refgf.oracle.judge.verify import verify_case
from refgf.oracle.spec.fresh import fresh_cases
from refgf.oracle.spec.momentum.lars_step import factors_rounded_first
from refgf.oracle.spec.momentum.sgd import zero_times_w
from refgf.oracle.spec.precision.scale import times_the_reciprocal
from refgf.oracle.spec.variants import variant
from tests.support.golden import CASES

WHOLE = "a whole number, of which nothing is rounded"
BYTES = "bytes of a type of numbers, which are 2, 4 or 8"
SCALE = "a loss scale that is doubled and halved: scaled_allreduce judges how it is divided by"
ONLY_POWERS = {  # (function, parameter): why no other value can show a mistake
    **{(f"{of}_rounding", "unit"): "unit roundoff of a type" for of in ("alexnet", "momentum")},
    **{(function, "pad"): WHOLE for function in ("conv", "conv_backward")},
    **{(function, "stride"): WHOLE for function in ("conv", "conv_backward", "max_pool")},
    **{(function, "scale"): SCALE for function in ("csc_run", "scaled_run", "scaled_lars_run")},
    ("sparse_warmup_run", "scale"): SCALE,
}


def numbers(value):
    """All numbers in an argument, also in lists of lists."""
    if isinstance(value, dict | list | tuple):
        values = value.values() if isinstance(value, dict) else value
        return [number for each in values for number in numbers(each)]
    return [value] if isinstance(value, int | float) and not isinstance(value, bool) else []


def is_power(number):
    return number == 0 or not math.isfinite(number) or abs(math.frexp(number)[0]) == 0.5


def parameters(cases):
    found = defaultdict(set)
    for case in cases:
        for key, value in case.arguments.items():
            found[case.function, key].update(numbers(value))
    return {key: values for key, values in found.items() if values}


def test_every_parameter_has_a_value_that_is_no_power_of_two():
    hidden = {key for key, values in parameters(CASES).items() if all(map(is_power, values))}
    fresh = parameters(fresh_cases(20, 0, lambda case: case.function != "csc_run"))
    hidden = {key for key in hidden if all(map(is_power, fresh.get(key, ())))}
    itemsizes = {key for key in hidden if key[1] == "itemsize"}
    assert {value for key in itemsizes for value in parameters(CASES)[key]} <= {2, 4, 8}, BYTES
    assert hidden - itemsizes == set(ONLY_POWERS)


SPECIAL = {"-0": lambda x: np.signbit(x) & (x == 0), "infinity": np.isinf, "NaN": np.isnan}
SPECIAL["denormal"] = lambda x: (x != 0) & (np.abs(x) < np.finfo(x.dtype).tiny)


@pytest.mark.parametrize("function", ("decayed_gradient", "momentum_step", "ring_allreduce"))
@pytest.mark.parametrize("kind", SPECIAL)
def test_special_numbers_occur_in_each_input(function, kind):
    cases = [case for case in CASES if case.function == function]
    names = {name for case in cases for name in case.with_prefix("in")} - {"in.decayed"}
    for name in names:
        assert any(SPECIAL[kind](case[name]).any() for case in cases), (function, name)


# What an implementer tried, and `verify` once accepted: function, its wrong variant, statement.
ACCEPTED = {
    "scaled_allreduce": (times_the_reciprocal, "P4"),
    "decayed_gradient": (zero_times_w, "M2"),
    "lars_step": (factors_rounded_first, "M5"),
}


@pytest.mark.parametrize("function", ACCEPTED)
@pytest.mark.parametrize("golden", (True, False))
def test_violations_that_powers_of_two_hid_are_found(function, golden):
    wrong, statement = ACCEPTED[function]
    module = PythonModule(variant(**{function: wrong}))
    cases = [c for c in CASES if c.function == function]
    if not golden and function != "lars_step":  # fresh cases leave the order of norms open
        cases = fresh_cases(20, 1, lambda case: case.function == function)
    failed = [case for case in cases if verify_case(case, module).status == "fail"]
    assert failed and all(statement in case.statements for case in failed)
