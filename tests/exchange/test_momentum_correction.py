"""The plain residual and the engine's: the same bits in the same steps, whatever the block."""

from collections import namedtuple

import numpy as np
import pytest

from refgf.engine import blocks, fused
from refgf.engine.residual import FusedResidual
from refgf.exchange.momentum_correction import FORMS, CSCSettings, Residual
from refgf.exchange.pool import Pool

Spec = namedtuple("Spec", "name shape decay")
SPECS = [
    Spec("b", (5,), False),
    Spec("w", (6, 7), True),
    Spec("g", (4,), False),
    Spec("v", (30,), True),
]
N = 81


def steps(kind, form, chunk, dtype, decay, scale):
    """Everything a residual gives and keeps over some steps; the first and the last are dense."""
    pool, rng = Pool(SPECS, dtype), np.random.default_rng(3)
    parameters = rng.standard_normal(N).astype(dtype)
    settings = CSCSettings(50, form, chunk)
    residual = kind(pool, parameters, settings, 0.9, decay, 3)
    count, seen = len(residual.chunks), []
    gap = np.arange(1, count + 1)
    for step in range(7):
        dense = step in (0, 6)
        numbers = (
            list(range(count)) if dense else sorted(rng.permutation(count)[: (count + 1) // 2])
        )
        pool.flat[...] = (rng.standard_normal(N) * scale).astype(dtype)
        residual.norms[:] = 0
        lengths = [residual.chunks[c].stop - residual.chunks[c].start for c in numbers]
        packed = np.empty(N if dense else sum(lengths), dtype)
        for index in range(len(SPECS)):
            residual.accumulate(index, scale, packed if dense else None)
        if not dense:
            residual.pack(numbers, scale, packed)
        seen += [packed.copy(), residual.norms.copy()]
        if step == 3:
            continue  # not accepted: the next step starts from the same state
        residual.update([residual.chunks[c] for c in numbers], dense)
        residual.unpack(numbers, packed, scale, gap)
        seen += [pool.flat[residual.chunks[c]].copy() for c in numbers]
        if step % 2:
            seen += [array.copy() for array in residual.current_state().values()]
    return seen + list(residual.current_state().values())


@pytest.mark.parametrize("loops", [False, True], ids=["passes", "Numba's loops"])
@pytest.mark.parametrize("block", [16, 131_072])
@pytest.mark.parametrize("chunk", [1, 7, 8, 40, 81, 1000])
@pytest.mark.parametrize("form", FORMS)
def test_the_engine_s_bits_are_those_of_the_plain_residual(monkeypatch, form, chunk, block, loops):
    if loops:
        pytest.importorskip("numba")
        monkeypatch.setattr(fused, "LONG", 0)  # they begin at so many elements
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS_CPU", block)
    for dtype, decay, scale in ((np.float32, 0.01, 4.0), (np.float64, 0.0, 1.0)):
        plain = steps(Residual, form, chunk, dtype, decay, scale)
        engine = steps(FusedResidual, form, chunk, dtype, decay, scale)
        assert len(plain) == len(engine)
        for a, b in zip(plain, engine):
            if a.size == b.size == -(-N // chunk) and a.dtype == np.float64:
                # norms: sums of n numbers in float64, in another order
                assert np.allclose(a, b, rtol=N * 2.0**-52, atol=0)
            else:
                assert a.tobytes() == b.tobytes()


def test_a_form_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="got momentum correction 'nesterov'; wanted one of dgc"):
        CSCSettings(10, "nesterov")
    with pytest.raises(ValueError, match="got chunks of 0"):
        CSCSettings(10, chunk=0)
