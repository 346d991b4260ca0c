"""More ranks than fit are refused before they start, with the number that fits."""

import json
import subprocess
import sys
from argparse import Namespace

import pytest

from kit import images, memory

GIB = memory.GIB


def options(**given):
    return Namespace(**{"quick": False, "threads": 2, "batch": 8} | given)


def a_gib_and_images(_, batch=None):
    """1 GiB, and a quarter of one for each of 8 images or `batch`."""
    return GIB + (8 if batch is None else batch) * GIB // 4


def test_ranks_that_fit_are_not_refused():
    memory.require("none", options(), a_gib_and_images, 6 * GIB)
    memory.require("none", options(quick=True, threads=None), available=memory.PROCESS_BYTES)


@pytest.mark.parametrize(
    "threads, free, tries",
    [(64, 23, "--threads 7"), (2, 5, "--threads 1 or --batch 6"), (2, 1, "a smaller network")],
)
def test_too_many_ranks_are_refused_with_what_fits(threads, free, tries):
    said = f"none: got {threads} ranks on this machine, of about 3.0 GiB each; .*next: {tries}"
    with pytest.raises(ValueError, match=said):
        memory.require("none", options(threads=threads), a_gib_and_images, free * GIB)


def test_the_figures_memory_counts_for_ranks_of_mpi(monkeypatch):
    monkeypatch.setattr(memory, "needed_bytes", lambda *_: GIB)
    with pytest.raises(ValueError, match="of about 1.0 GiB each; .*next: a smaller"):
        memory.require("03", options(threads=None), available=GIB // 2)
    memory.require("03", options(threads=None, quick=True), available=GIB // 2)


def test_available_memory(tmp_path):
    file, own, groups = tmp_path / "meminfo", tmp_path / "cgroup", tmp_path / "groups"
    file.write_text("MemTotal: 100 kB\nMemAvailable:      7 kB\n")
    assert memory.available_bytes(file, own, groups) == 7168
    assert memory.available_bytes(tmp_path / "none", own, groups) is None
    assert memory.available_bytes() > 0


@pytest.mark.parametrize(
    "line, folder, limit, used",
    [
        ("0::/job/step", "", "memory.max", "anon"),
        ("4:memory:/job/step", "memory", "memory.limit_in_bytes", "total_rss"),
    ],
)
def test_the_limit_of_a_control_group_counts(tmp_path, line, folder, limit, used):
    own, job = tmp_path / "cgroup", tmp_path / folder / "job"
    own.write_text(f"9:cpu:/job/step\n{line}\n")
    (job / "step").mkdir(parents=True)
    for group, most in ((job, "5000"), (job / "step", "max")):
        (group / limit).write_text(most + "\n")
        (group / "memory.stat").write_text(f"file 4000\n{used} 1000\n")
    assert memory.available_bytes(tmp_path / "none", own, tmp_path) == 4000
    (job / "step" / limit).write_text("1500\n")
    assert memory.available_bytes(tmp_path / "none", own, tmp_path) == 500


PEAK = r"""
import re, sys
from functools import partial
import numpy as np
from refgf.machine import threads
from refgf.nn.alexnet import AlexNet
from refgf.training.gradientflow import GradientFlow
from refgf.training.sgd import MomentumSGD
from refgf.training.step import replica
size, width, batch = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
def peak():
    with open("/proc/self/status") as file:  # ru_maxrss begins with that of the parent process
        return 1024 * int(re.search(r"VmHWM:\s+(\d+)", file.read())[1])
def train(comm):
    with GradientFlow(comm, replica(AlexNet(10, size, width), MomentumSGD)) as stack:
        for _ in range(2):
            images = np.ones((batch, size, size, 3), np.float32)
            stack.step(images, np.zeros(batch, np.int64), batch, rate=0.01)
before = peak()
threads.run(1, train)
print(peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
@pytest.mark.parametrize("size, width, batch", [(67, 1 / 8, 512), (131, 1 / 2, 8), (67, 1.0, 4)])
def test_the_estimate_is_right_within_a_factor_of_two(size, width, batch):
    asked = options(image_size=size, width=width, batch=batch, data="none")
    arguments = [sys.executable, "-c", PEAK, str(size), str(width), str(batch)]
    taken = int(subprocess.run(arguments, capture_output=True, check=True).stdout)
    assert 1 / 2 < taken / images.estimated_bytes(asked) < 2


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
