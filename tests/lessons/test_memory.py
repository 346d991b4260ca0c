"""More ranks than fit are refused before they start, with the number that fits."""

import json
from argparse import Namespace

import pytest

from kit import memory

GIB = memory.GIB


def test_ranks_that_fit_are_not_refused():
    memory.require("03", 8 * GIB, GIB, 8)
    memory.require("03", None, GIB, 100)
    memory.require("03", GIB, 0, 100)


@pytest.mark.parametrize("ranks, free, fits", [(64, 23 * GIB, 23), (2, GIB // 2, 1)])
def test_too_many_ranks_are_refused(ranks, free, fits):
    with pytest.raises(ValueError, match=f"got {ranks} ranks .* wanted at most {fits},"):
        memory.require("03", free, GIB, ranks)


def test_available_memory(tmp_path):
    file = tmp_path / "meminfo"
    file.write_text("MemTotal: 100 kB\nMemAvailable:      7 kB\n")
    assert memory.available_bytes(file) == 7168
    assert memory.available_bytes(tmp_path / "none") is None


def test_needed_memory_is_that_of_the_figure(tmp_path):
    then = {"network": "alexnet", "full": False, "like": None}
    (tmp_path / "07.json").write_text(json.dumps({"peak_bytes": 5, "options": then}))

    def needed(name="07", **given):
        return memory.needed_bytes(name, Namespace(**given), tmp_path)

    assert needed() == needed(network="alexnet") == needed(network=None, full=False) == 5
    assert needed(network="resnet50") == needed(full=True) == needed(like="x") == needed("04") == 0


def test_peak_memory_grows():
    before = memory.peak_bytes()
    block = bytearray(before + 64 * 2**20)
    assert len(block) and memory.peak_bytes() >= before + 32 * 2**20
