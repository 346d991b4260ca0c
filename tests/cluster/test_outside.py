"""The process outside of the namespaces keeps nothing open."""

import os
import subprocess
from types import SimpleNamespace

import pytest

from refgf.cluster import check, outside


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="open files are counted in /proc")
@pytest.mark.parametrize("fails", [False, True])
def test_a_start_leaves_no_file_open(monkeypatch, fails):
    def popen(command, **options):
        if fails:
            raise FileNotFoundError(command[0])
        return SimpleNamespace(wait=lambda: 3)

    monkeypatch.setattr(check, "unshare_command", lambda latency: ["unshare"])
    monkeypatch.setattr(subprocess, "Popen", popen)
    settings = SimpleNamespace(latency_s=0, to_json=dict)
    before = os.listdir("/proc/self/fd")
    for _ in range(3):
        try:
            assert outside.start(settings, "mpiexec", "mpich", ["true"]) == 3
        except FileNotFoundError:
            assert fails
    assert len(os.listdir("/proc/self/fd")) == len(before)
