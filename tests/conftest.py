"""Fixtures for all tests.

A test that takes `on_ranks` is written once and run on threads by a plain `pytest`, and on real
ranks by `mpiexec -n P python -m mpi4py -m pytest --with-mpi`, which runs only those tests.
"""

import io
import math
import os
import shutil
import signal
import sys
import tempfile
import time

import pytest

from refgf.engine import fused
from refgf.machine import threads

THREAD_SIZES = (1, 2, 3, 5)


@pytest.hookimpl(trylast=True)  # after the terminal reporter and pytest-mpi are there
def pytest_configure(config):
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # a shell's job in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)  # what tests start inherits it
    if config.getoption("numprocesses", default=None):  # workers inherit no setting of refgf.launch
        from tests.support.jobs import clean_environment

        for name in os.environ.keys() - clean_environment().keys():
            del os.environ[name]
    if not config.getoption("--with-mpi", default=False):
        for plugin in config.pluginmanager.get_plugins():
            if type(plugin).__name__ == "MPIPlugin":  # skips what lies in a folder of the name mpi
                config.pluginmanager.unregister(plugin)
    if config.getoption("--with-mpi", default=False):
        import refgf.launch  # noqa: F401  must come before MPI starts

        rank = refgf.launch.job.rank
        config.option.basetemp = tempfile.mkdtemp(prefix=f"refgf-rank{rank}-")  # one for each rank
        if rank > 0:
            config.pluginmanager.register(Quiet(config), "quiet")


def pytest_unconfigure(config):
    """Remove the folders of ranks and the shared memory of jobs that tests have killed."""
    from refgf.launch import leftovers

    if config.getoption("--with-mpi", default=False):
        wait_for_others(2)
        shutil.rmtree(config.option.basetemp, ignore_errors=True)
    else:
        if leftovers.candidates(now_s=math.inf):  # the last test's are too young to be removed
            time.sleep(leftovers.MIN_AGE_S)
        leftovers.remove()


def wait_for_others(seconds: float) -> None:
    """Wait for all ranks, which may still read this one's folder; not for ever: one may fail."""
    from mpi4py import MPI

    barrier, end = MPI.COMM_WORLD.Ibarrier(), time.monotonic() + seconds
    while not barrier.Test() and time.monotonic() < end:
        time.sleep(0.01)


class Quiet:
    """Ranks above 0 print their report only if something fails."""

    def __init__(self, config):
        self.terminal = config.pluginmanager.getplugin("terminalreporter")._tw
        self.terminal._file = io.StringIO()

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self, config):
        text = self.terminal._file.getvalue()
        if " failed" in text or " error" in text:
            sys.stderr.write(text)
            sys.stderr.flush()


def pytest_ignore_collect(collection_path, config):
    """Under mpiexec every rank would import every file, and the golden cases, for nothing."""
    if config.getoption("--with-mpi", default=False) and collection_path.suffix == ".py":
        return "on_ranks" not in collection_path.read_text(encoding="utf-8") or None
    return None


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--with-mpi", default=False):
        return
    for item in items:
        if "on_ranks" in item.fixturenames:
            item.add_marker(pytest.mark.mpi)
    chosen = [item for item in items if "on_ranks" in item.fixturenames]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen


@pytest.fixture(autouse=True)
def numba_as_it_was():
    """A lesson with --quick in this process switches Numba's compiler off, also for later tests."""
    before = os.environ.get("NUMBA_DISABLE_JIT")
    yield
    if os.environ.get("NUMBA_DISABLE_JIT") != before:
        del os.environ["NUMBA_DISABLE_JIT"]
        fused._compiled = None


@pytest.fixture
def on_ranks(request):
    """on_ranks(function, *args) calls function(comm, *args) on several ranks and returns a list of
    [result per rank], one list per number of ranks (under mpiexec there is one, and only the own
    rank's result)."""
    if not request.config.getoption("--with-mpi", default=False):
        return lambda function, *args, sizes=THREAD_SIZES: [
            threads.run(p, function, *args) for p in sizes
        ]
    from mpi4py import MPI

    def run(function, *args, sizes=THREAD_SIZES):
        comm = MPI.COMM_WORLD.Dup()
        try:
            return [[function(comm, *args)]]
        finally:
            comm.Free()

    return run


@pytest.fixture(scope="session")
def test_images():
    """The folder of real images named by REFGF_TEST_IMAGES."""
    folder = os.environ.get("REFGF_TEST_IMAGES")
    if not folder or not os.path.isdir(folder):
        pytest.skip("REFGF_TEST_IMAGES names no folder of real images")
    return folder
