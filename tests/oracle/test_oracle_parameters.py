"""No parameter is seen as powers of two only: these hide where a factor is rounded."""

import math
from collections import defaultdict

from refgf.oracle.spec.fresh import fresh_cases
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
