"""What SPEC.md states of its sources, where it can be computed."""

import json
import re

import numpy as np
import pytest

from refgf.oracle.definitions import (
    accumulated_gradient,
    chunk_bounds,
    next_residual,
    same_bits,
    split_layers,
    zero_residual,
)
from refgf.oracle.judge.cases import GOLDEN
from refgf.oracle.spec.page import SPEC

STATED = {"AlexNet": 1903, "ResNet-50": 797}  # chunks of 32K gradients, by the press article


def source(number):
    """The last column of a statement."""
    row = re.search(rf"^\| {number} \| .*\|$", SPEC.read_text(), re.MULTILINE)[0]
    return row.rsplit(" | ", 1)[1].removesuffix(" |")


@pytest.mark.parametrize(
    "name, n, full, last",
    [("AlexNet", 62_378_344, 1903, 20_840), ("ResNet-50", 25_557_032, 779, 30_760)],
)
def test_chunks_of_the_stated_networks(name, n, full, last):
    """C1: the stated 1903 are AlexNet's full chunks; the stated 797 are no count of ours."""
    lengths = [stop - start for start, stop in chunk_bounds(n, 32768)]
    assert lengths == [32768] * full + [last]
    assert (STATED[name] in (full, full + 1)) == (name == "AlexNet")
    told = source("C1")
    assert str(STATED[name]) in told and str(full) in told
    case = json.loads((GOLDEN / f"C/chunks-n{n}-chunk32768.json").read_text())
    assert case["arguments"] == {"n": n, "chunk": 32768}


def test_alexnet_has_no_normalisation_after_the_last_pooling():
    """N10: 26 tensors; with one more layer of beta and gamma, as Jia et al. have it, 28."""
    assert [len(layer) for layer in split_layers(list(range(26)))] == [2, 2, 2, 4, 4, 4, 4, 4]
    assert "not done here" in source("N10")


class DGCMemory:
    """One process of DGC's public code (dgc/memory.py), written from its behaviour."""

    def __init__(self, n, momentum, masking):
        self.u, self.v = np.zeros(n, np.float32), np.zeros(n, np.float32)
        self.momentum, self.masking = np.float32(momentum), masking

    def compensate(self, g):
        self.u = self.u * self.momentum + g
        self.v = self.v + self.u
        return self.v

    def update(self, sent):
        self.v[sent] = 0
        if self.masking:
            self.u[sent] = 0

    def dense(self, mean):
        self.u = self.u * self.momentum + mean
        return self.u


@pytest.mark.parametrize("form", ["dgc", "dgc_masked"])
def test_a_sparse_step_is_that_of_dgc_s_code(form):
    """C2, C3, bit for bit; chosen elements stand for chosen chunks."""
    rng, n = np.random.default_rng(23), 50
    memory, residual = DGCMemory(n, 0.9, form == "dgc_masked"), zero_residual(form, n)
    for _ in range(6):
        g, sent = rng.standard_normal(n).astype(np.float32), rng.random(n) < 0.3
        theirs = memory.compensate(g).copy()
        assert same_bits(accumulated_gradient(form, residual, g, 0.9), theirs)
        memory.update(sent)
        residual = next_residual(form, residual, g, 0.9, sent)
        assert same_bits(residual["u"], memory.u) and same_bits(residual["v"], memory.v)


@pytest.mark.parametrize("form", ["dgc", "dgc_masked"])
def test_a_dense_step_has_dgc_s_mean_but_not_its_ranks(form):
    """C3: DGC's code averages before momentum, so its u is alike on all ranks. Exact data."""
    rng, n, p = np.random.default_rng(24), 20, 4
    memory, residuals = DGCMemory(n, 0.5, True), [zero_residual(form, n) for _ in range(p)]
    for _ in range(4):
        gs = rng.integers(-8, 9, (p, n)).astype(np.float32)
        theirs = memory.dense(gs.mean(axis=0))
        sent = [accumulated_gradient(form, r, g, 0.5) for r, g in zip(residuals, gs)]
        assert same_bits(np.mean(sent, axis=0), theirs)
        everywhere = np.ones(n, bool)
        residuals = [
            next_residual(form, r, g, 0.5, everywhere, dense=True) for r, g in zip(residuals, gs)
        ]
    assert same_bits(np.mean([r["u"] for r in residuals], axis=0), memory.u)
    assert not any((r["u"] == memory.u).all() for r in residuals)
    assert "each rank has its own u" in source("C3")


@pytest.mark.parametrize(
    "number",
    ["C3", "H2", "H4", "H6", "K4", "L5", "M3", "M8", "M9", "N10", "P5", "T3", "T6", "T7"],
)
def test_what_is_ours_is_not_the_papers(number):
    """Each of these has a choice of this project, or an unverified part, in its source."""
    assert re.search(r"chosen|is ours|unverified", source(number))


def test_secondary_sources_have_names():
    """Each that a statement calls the article, the notes or the review is named above them all."""
    conventions, statements = SPEC.read_text().split("## Statements", 1)
    called = set(re.findall(r"the (article|notes|review)\b", statements))
    assert called == {"article", "notes", "review"}
    assert all(f'"the {each}"' in conventions for each in called)
    assert "kuizhiqing/papers" in conventions and "stella-y/TIL" in conventions
    assert "secondary sources" not in statements


def test_the_form_paper_is_heat_s_code_but_for_receipt_and_averaging():
    """Only A2 and A5 rest on Heat's documentation, but for the last batch, which its code has.

    All other rows name its code, or say chosen.
    """
    for number in range(1, 13):
        described = source(f"A{number}").startswith("described")
        assert described == (number in (2, 5)), number
        assert re.search("Heat's code" if described else "Heat|chosen", source(f"A{number}"))
