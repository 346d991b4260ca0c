"""Densities that are refused. Norms, choice and densities conform: test_oracle_own.py."""

import pytest

from refgf.exchange.chunk_choice import Density


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
