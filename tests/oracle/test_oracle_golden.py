"""The golden files are those that the generator makes, and small."""

import numpy as np
import pytest

from refgf.oracle.definitions import same_bits
from refgf.oracle.foreign.untrusted import BadFile
from refgf.oracle.judge.cases import GOLDEN, load_folder, save_folder
from refgf.oracle.judge.comparison import judge_bits
from refgf.oracle.spec.draw import random_source
from refgf.oracle.spec.families import inputs
from refgf.oracle.spec.statement import golden_cases
from tests.support.golden import CASES

POWERS = ("top_k", "mstopk")  # their inputs are cubes in float32
POWER_ULP = 4  # NumPy's bound for powers by AVX-512; processors without it have other last bits


def test_the_generator_makes_the_golden_cases():
    """Bit for bit, or within the bound of results that use exp, log or norms; claims hold."""
    made = {case.name: case for case in golden_cases()}
    assert sorted(made) == sorted(case.name for case in CASES)
    for case in CASES:
        other = made[case.name]
        assert case.description() == other.description(), case.name
        for name, array in other.with_prefix("in").items():
            if case.function in POWERS and array.dtype == np.float32:
                np.testing.assert_array_max_ulp(array, case[name], POWER_ULP)
            else:
                assert same_bits(array, case[name]), (case.name, name)
        assert judge_bits(case, other.tensors) is None, case.name


def test_the_files_stay_small():
    said = "they are in the wheel; next: fewer numbers in a case, or a higher limit and its reason"
    assert sum(file.stat().st_size for file in GOLDEN.glob("*/*")) < 4_500_000, said


def test_what_is_written_is_what_is_read(tmp_path):
    save_folder(CASES, tmp_path)
    for case in load_folder(tmp_path):
        wanted = next(c for c in CASES if c.name == case.name)
        assert case.description() == wanted.description() and case.bfloat16 == wanted.bfloat16
        assert all(same_bits(a, wanted[name]) for name, a in case.tensors.items())


def test_a_case_that_does_not_do_what_it_claims_is_not_made():
    with pytest.raises(AssertionError, match="does not hold"):
        CASES[0].shows(False, "a claim")


def test_families_are_what_they_say():
    x = inputs("provenance", 5, 3, "float32", random_source("t"))
    assert x.sum(axis=0).tolist() == [31.0] * 3
    x = inputs("invariant", 9, 100, "bfloat16", random_source("t"))
    assert np.abs(x).sum(axis=0).max() * 4 <= 2**8 + 32  # quarters below 2^8 fit 8 digits
    x = inputs("denormal", 4, 50, "float16", random_source("t"))
    assert (np.abs(x[x != 0]) < 2.0**-14).all()


def test_a_folder_without_cases_is_refused_with_what_to_try(tmp_path):
    with pytest.raises(BadFile, match="no cases; wanted .* sha256.*; next: .* export"):
        load_folder(tmp_path)
