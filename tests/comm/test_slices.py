"""Chunks by hand, and what is refused; both conform: test_oracle_own.py."""

import pytest

from refgf.comm.slices import chunks, slices


def test_chunks():
    assert chunks(0, 4) == []
    assert chunks(9, 4) == [slice(0, 4), slice(4, 8), slice(8, 9)]
    assert len(chunks(62_378_344, 32_768)) == 1904


@pytest.mark.parametrize(
    "call", [lambda: slices(-1, 2), lambda: slices(3, 0), lambda: chunks(3, 0)]
)
def test_nonsense_is_refused(call):
    with pytest.raises(ValueError, match="got"):
        call()
