"""Norms, choice and densities against the definitions, with ties and awkward lengths."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refgf.exchange.chunk_choice import Density, add_norms, choose, importance
from refgf.oracle import definitions

quietly = settings(derandomize=True, database=None, deadline=None)


@given(st.integers(1, 60), st.integers(1, 70), st.lists(st.integers(0, 60), max_size=6))
@quietly
def test_norms_in_any_pieces(n, chunk, cuts):
    x = np.random.default_rng([n, chunk]).integers(-50, 50, n).astype(np.float32) / 8
    norms = np.zeros(len(definitions.chunk_bounds(n, chunk)))
    edges = sorted({0, n, *(cut for cut in cuts if cut < n)})
    for start, stop in zip(edges, edges[1:]):
        add_norms(norms, abs(x[start:stop]), start, chunk)
    wanted = definitions.importance([x], chunk)
    assert definitions.same_bits(importance(norms, n, chunk), wanted)


def test_norms_are_added_up_in_float64():
    """In float32 the ones would be lost beside 2**24."""
    x = np.array([2.0**24, 1, 1, 1, -1], np.float32)
    norms = np.zeros(1)
    add_norms(norms, abs(x), 0, 5)
    assert norms[0] == 2.0**24 + 4


def test_the_short_last_chunk_is_not_starved():
    """Without the division by the length, 5 elements of 2 would lose against 8 of 1.5."""
    norms = np.array([12.0, 10.0])
    assert choose(importance(norms, 13, 8), 50) == [1] and choose(norms, 50) == [0]


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.floats(0.01, 100))
@quietly
def test_choice_with_ties(values, percent):
    values = np.array(values, np.float64)
    assert choose(values, percent) == definitions.choose(values, percent)


def test_ties_go_to_the_lower_number():
    assert choose(np.ones(10), 30) == [0, 1, 2]


@pytest.mark.parametrize(
    "density", [Density(10), Density(10, (100, 25), 3), Density(5, (50,), 2), Density(100)]
)
def test_densities(density):
    for step in range(12):
        wanted = definitions.percent_of_step(
            step, density.steps_per_epoch, density.warmup, density.percent
        )
        assert density.at(step) == wanted


@pytest.mark.parametrize("percent", [0, -1, 100.1, float("nan"), float("inf")])
def test_a_density_is_above_0_and_at_most_100_percent(percent):
    with pytest.raises(
        ValueError, match="got a density of .* %; wanted above 0, at most 100; next: 10"
    ):
        Density(percent)
    with pytest.raises(ValueError, match="got a density of"):
        Density(10, warmup=(percent,))


def test_a_warmup_longer_than_the_run_is_refused():
    assert Density(10, (100, 100), 5, steps=11)
    with pytest.raises(ValueError, match="warm-up of 10 steps in a run of 10"):
        Density(10, (100, 100), 5, steps=10)
    with pytest.raises(ValueError, match="steps_per_epoch=0"):
        Density(10, (100,), 0)
