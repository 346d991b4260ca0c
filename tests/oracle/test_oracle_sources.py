"""What SPEC.md states of its sources, where it can be computed."""

import json
import re

import pytest

from refgf.oracle.definitions import alexnet_step, chunk_bounds, split_layers
from refgf.oracle.judge.cases import GOLDEN
from refgf.oracle.judge.report import SPEC

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
    assert str(STATED[name]) in told and str(full if name == "AlexNet" else full + 1) in told
    case = json.loads((GOLDEN / f"C/chunks-n{n}-chunk32768.json").read_text())
    assert case["arguments"] == {"n": n, "chunk": 32768}


def test_alexnet_has_no_normalisation_after_the_last_pooling():
    """N10: 26 tensors; with one more layer of beta and gamma, as Jia et al. have it, 28."""
    assert [len(layer) for layer in split_layers(list(range(26)))] == [2, 2, 2, 4, 4, 4, 4, 4]
    assert "not their network" in alexnet_step.__doc__ and "not done here" in source("N10")


@pytest.mark.parametrize("number", ["H2", "H4", "H6", "L5", "M8", "N10", "T3", "T6", "T7"])
def test_what_is_ours_is_not_the_papers(number):
    """Each of these has a choice of this project, or an unverified part, in its source."""
    assert re.search(r"chosen|is ours|unverified", source(number))
