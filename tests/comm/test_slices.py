"""Slices and chunks against a count by hand."""

import pytest

from refgf.comm.slices import chunks, length, slices


@pytest.mark.parametrize("size", range(1, 10))
@pytest.mark.parametrize("n", [0, 1, 5, 7, 8, 9, 1000, 100003])
def test_slices_deal_elements_like_cards(n, size):
    hands = [0] * size
    for card in range(min(n, 5000)):
        hands[card % size] += 1
    got = slices(min(n, 5000), size)
    assert [length(s) for s in got] == hands
    assert [s.start for s in got] == [sum(hands[:i]) for i in range(size)]


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
