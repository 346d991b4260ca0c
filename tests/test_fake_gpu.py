"""The GPU's half of the code on a CuPy that computes on the CPU: the CPU's bits, no waiting host.

`fake_cupy.py` refuses what CuPy refuses and counts what makes the host wait. Nothing here runs on a
GPU; tests/gpu is for that.
"""

import ast
import contextlib
import re
from pathlib import Path

import numpy as np
import pytest

from refgf import device, engine
from refgf.comm import direct, ring
from refgf.comm.schedule import collective
from refgf.engine import staging
from refgf.engine.fused_gpu import KERNELS
from refgf.engine.residual import FusedResidual
from refgf.machine import threads
from refgf.oracle.definitions import direct_allreduce, ring_allreduce, same_bits
from tests.support.fake_cuda_c import needs_a_compiler
from tests.support.fake_cupy import ARGUMENTS, installed
from tests.support.gpu_cases import NETWORKS, SETTINGS, one_step, train


@pytest.fixture
def cupy():
    with installed() as module:
        yield module


@needs_a_compiler
@pytest.mark.parametrize("kind, options", NETWORKS, ids=lambda value: str(value))
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("with_engine", [True, False])
def test_a_step_has_the_bits_of_the_cpu_and_the_host_never_waits(
    cupy, kind, options, dtype, with_engine
):
    with contextlib.nullcontext() if with_engine else engine.off():
        wanted, _ = one_step(np, kind, dtype, **options)
        got, waits = one_step(cupy, kind, dtype, **options)
    assert all(same_bits(np.asarray(a), np.asarray(b)) for a, b in zip(got, wanted))
    assert np.isfinite(wanted[1]).all() and wanted[1].any()
    assert waits == 0


def test_a_loss_that_is_read_is_a_wait(cupy):
    """The count can go up: reading the loss inside the step would be seen."""
    with pytest.raises(AssertionError):
        before = cupy.waits
        float(cupy.asarray(np.ones(1)).sum())
        assert cupy.waits == before


# of the MPI: threads read host memory whatever it can
@pytest.mark.parametrize("aware", [False, True])
@pytest.mark.parametrize("wire", [None, "float16"])
@pytest.mark.parametrize(
    "algorithm, definition",
    [(ring.allreduce, ring_allreduce), (direct.allreduce, direct_allreduce)],
)
def test_sums_through_host_memory(cupy, monkeypatch, algorithm, definition, wire, aware):
    monkeypatch.setattr(staging, "cuda_aware", lambda: aware)

    def body(comm):
        for n in (0, 1, 7, 1003):
            xs = [
                np.random.default_rng([n, r]).standard_normal(n).astype(np.float32)
                for r in range(comm.size)
            ]
            x = cupy.asarray(xs[comm.rank])
            collective(comm, algorithm, wire)(x)
            assert same_bits(device.to_host(x), definition(xs, wire)[comm.rank])

    for size in (1, 2, 3, 5):
        threads.run(size, body)


@needs_a_compiler
@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: " ".join(settings))
def test_training_has_the_bits_of_the_cpu(cupy, monkeypatch, settings):
    """Each rank on a GPU of its own."""

    def on_its_own(comm):
        device.select(comm.rank)
        return train(comm, cupy, settings)

    monkeypatch.setattr(cupy.cuda.runtime, "getDeviceCount", lambda: 2)
    assert threads.run(2, on_its_own) == threads.run(2, train, np, settings)


@needs_a_compiler
def test_training_takes_every_kernel(cupy):
    real, made = cupy.ElementwiseKernel, set()

    def counted(*args, **options):
        made.add(args[3])
        return real(*args, **options)

    cupy.ElementwiseKernel = counted
    for settings in {}, {"density": 20, "chunk": 100, "residual": FusedResidual}:
        threads.run(1, train, cupy, settings)
    assert made == set(KERNELS)


ROOT = Path(__file__).resolve().parents[1]
SOURCES = [file for name in ("refgf", "lessons") for file in sorted((ROOT / name).rglob("*.py"))]


def not_on_the_list(cupy, source):
    """Calls of the array library that the stand-in lacks: xp.name(...), array_module(x).name(...).

    Names and keywords; code that no test runs is read too.
    """
    for call in ast.walk(ast.parse(source)):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            library, name = ast.unparse(call.func.value), call.func.attr
            if not re.fullmatch(r"(.*\.)?xp|array_module\([\w.]*\)", library):
                continue
            given = {keyword.arg for keyword in call.keywords}
            known = set(ARGUMENTS.get(name, "dtype order").split())
            if not hasattr(cupy, name) or given - known:
                yield ast.unparse(call)


def test_code_calls_only_what_was_looked_up_in_cupy(cupy):
    sources = [(file, file.read_text()) for file in SOURCES]
    assert not [(file, call) for file, text in sources for call in not_on_the_list(cupy, text)]
    seeded = ["self.xp.add(x, y, where=z)", "array_module(x.a).nanmax(x)", "xp.sum(x, initial=0)"]
    assert list(not_on_the_list(cupy, "\n".join(seeded))) == seeded


REFUSED = {  # of x, a device array of three ones, and host, a NumPy array of three
    "a NumPy array, on the right": lambda cupy, x, host: x + host,
    "a NumPy array, on the left": lambda cupy, x, host: host + x,
    "a NumPy array, in place": lambda cupy, x, host: x.__iadd__(host),
    "a NumPy array, compared": lambda cupy, x, host: x > host,
    "a NumPy array in a function": lambda cupy, x, host: cupy.add(x, host),
    "a NumPy array assigned": lambda cupy, x, host: x.__setitem__(slice(0, 2), host[:2]),
    "a device array in NumPy's function": lambda cupy, x, host: np.add(x, x),
    "a device array read by NumPy": lambda cupy, x, host: np.asarray(x),
    "a list, on the right": lambda cupy, x, host: x + [1.0, 2.0, 3.0],
    "a list, on the left": lambda cupy, x, host: [1.0, 2.0, 3.0] * x,
    "a list, in place": lambda cupy, x, host: x.__imul__([1.0, 2.0, 3.0]),
    "a list, compared": lambda cupy, x, host: x == [1.0, 2.0, 3.0],
    "a list in a ufunc": lambda cupy, x, host: cupy.maximum(x, [1.0, 2.0, 3.0]),
    "a list alone in a ufunc": lambda cupy, x, host: cupy.sqrt([1.0, 2.0]),
    "a list in matmul": lambda cupy, x, host: cupy.matmul(x, [1.0, 2.0, 3.0]),
    "a list in where": lambda cupy, x, host: cupy.where(x > 0, x, [1.0, 2.0, 3.0]),
    "a list in a reduction": lambda cupy, x, host: cupy.sum([1.0, 2.0]),
    "a list in einsum": lambda cupy, x, host: cupy.einsum("i,i->", x, [1.0, 2.0, 3.0]),
    "a list concatenated": lambda cupy, x, host: cupy.concatenate([x, [1.0]]),
    "a list assigned": lambda cupy, x, host: x.__setitem__(slice(0, 2), [1.0, 2.0]),
    "objects": lambda cupy, x, host: cupy.asarray([None, 1]),
    "strings": lambda cupy, x, host: cupy.asarray(["one", "two"]),
    "bytes": lambda cupy, x, host: cupy.asarray(np.array([b"one"])),
    "dates": lambda cupy, x, host: cupy.asarray(np.array(["2026-01-01"], "datetime64[D]")),
    "longer doubles": lambda cupy, x, host: cupy.zeros(3, np.longdouble),
    "numbers in another byte order": lambda cupy, x, host: cupy.asarray(host.astype(">f8")),
    "a cast to objects": lambda cupy, x, host: x.astype(object),
    "an array of objects": lambda cupy, x, host: cupy.zeros(3, object),
    "einsum's out": lambda cupy, x, host: cupy.einsum("i,i->i", x, x, out=x),
    "einsum's order": lambda cupy, x, host: cupy.einsum("i,i->i", x, x, order="C"),
    "einsum's casting": lambda cupy, x, host: cupy.einsum("i,i->i", x, x, casting="unsafe"),
    "a ufunc's where": lambda cupy, x, host: cupy.add(x, x, where=x > 0),
    "a ufunc's order": lambda cupy, x, host: cupy.add(x, x, order="C"),
    "a reduction's initial": lambda cupy, x, host: x.sum(initial=0.0),
    "max with initial": lambda cupy, x, host: x.max(initial=0.0),
    "a cast's casting": lambda cupy, x, host: x.astype(np.float32, casting="unsafe"),
    "get into another type": lambda cupy, x, host: x.get(out=np.empty(3, np.float32)),
    "get into another shape": lambda cupy, x, host: x.get(out=np.empty(2)),
    "get into every other element": lambda cupy, x, host: x.get(out=np.empty(6)[::2]),
    "set from another type": lambda cupy, x, host: x.set(host.astype(np.float32)),
    "set from another shape": lambda cupy, x, host: x.set(host[:2]),
    "set from a list": lambda cupy, x, host: x.set([1.0, 2.0, 3.0]),
    "set of every other element": lambda cupy, x, host: cupy.zeros(6)[::2].set(host),
    "flags of arrays that may not be written": lambda cupy, x, host: x.flags.writeable,
    "NumPy's flag of plain arrays": lambda cupy, x, host: x.flags.carray,
    "a stream that waits for no event": lambda cupy, x, host: cupy.cuda.Stream().wait_event(None),
    "an event on no stream": lambda cupy, x, host: cupy.cuda.Event().record(x),
    "an event between processes with times": lambda cupy, x, host: cupy.cuda.Event(
        interprocess=True
    ),
    "an event's query": lambda cupy, x, host: cupy.cuda.Event().query(),
    "a device that is not there": lambda cupy, x, host: cupy.cuda.Device(1).use(),
    "its properties": lambda cupy, x, host: cupy.cuda.runtime.getDeviceProperties(1),
    "a function that is not on the list": lambda cupy, x, host: cupy.linalg,
}


@pytest.mark.parametrize("mistake", REFUSED.values(), ids=REFUSED)
def test_what_cupy_refuses_is_refused(cupy, mistake):
    x = cupy.asarray(np.ones(3))
    with pytest.raises((TypeError, ValueError, AttributeError, RuntimeError)):
        mistake(cupy, x, np.ones(3))
    assert x.tolist() == [1, 1, 1]


@pytest.mark.parametrize("change", ["none", "freed", "written", "waited, then written"])
def test_pinned_memory_stays_until_the_copy_from_it_has_ended(cupy, change):
    """`set` only queues the copy, and the next owner of freed memory writes into it."""
    x, memory = cupy.zeros(3), cupy.cuda.alloc_pinned_memory(48)
    host = np.frombuffer(memory, np.float64, 6)[2:5]
    host[:] = 1, 2, 3
    x.set(host)
    if change == "waited, then written":
        cupy.cuda.get_current_stream().synchronize()
    if change == "freed":
        del host, memory
    elif change != "none":
        host[1] = 7
    refused = change in ("freed", "written")
    with pytest.raises(RuntimeError, match=change) if refused else contextlib.nullcontext():
        assert x.get().tolist() == [1, 2, 3]


def test_a_hidden_copy_is_refused(cupy):
    """CuPy copies the first to the device, and gives the second back to NumPy."""
    host = np.ones(3)
    for hidden in (lambda: cupy.asarray(host)[np.arange(2)], lambda: cupy.sum(host)):
        with pytest.raises(TypeError):
            hidden()


def test_what_cupy_takes_is_taken(cupy):
    """Numbers of Python and NumPy, lists as shapes, axes and indices; copies where CuPy copies."""
    x = cupy.asarray(np.arange(6.0).reshape(2, 3))
    assert cupy.add(x, 1).tolist() == (x + np.float64(1)).tolist() == (1.0 + x).tolist()
    assert cupy.zeros([2, 3]).shape == (2, 3) and x[[1]].tolist() == [[3, 4, 5]]
    assert x.sum((0, 1)).item() == 15 and cupy.sum(x, axis=[0, 1][0]).tolist() == [3, 5, 7]
    assert cupy.concatenate([x, x], axis=0).shape == (4, 3)
    assert cupy.einsum("ij->i", x, dtype=np.complex128).dtype == np.complex128
    assert cupy.asarray(x) is x and cupy.array(x) is not x
    assert cupy.asarray(x.T, order="C").flags.c_contiguous
    assert x.get(out=np.empty((2, 3))).tolist() == x.tolist()


def test_a_stream_is_current_in_its_block_and_in_its_thread(cupy):
    """A block ends on the stream of the block around it, not on one that `use` chose before."""
    current, default = cupy.cuda.get_current_stream, cupy.cuda.Stream.null
    first, second = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream()
    assert current() is default
    with first as entered:
        assert entered is first is current()
        with second:
            assert current() is second
            assert threads.run(1, lambda comm: current() is second) == [False]
        assert current() is first
    assert current() is default
    assert first.use() is first is current()
    with second:
        pass
    assert current() is default


def test_an_array_and_a_stream_belong_to_a_device_and_it_to_a_thread(cupy, monkeypatch):
    monkeypatch.setattr(cupy.cuda.runtime, "getDeviceCount", lambda: 2)
    first, stream = cupy.ones(3), cupy.cuda.Stream()
    assert device.select(1) == 1 and cupy.cuda.Device().id == cupy.ones(3).device.id == 1
    assert threads.run(1, lambda comm: cupy.ones(3).device.id) == [0]
    uses = (
        lambda: first + 1,
        lambda: cupy.add(cupy.ones(3), first),
        lambda: first.__iadd__(1),
        lambda: first[:2],
        lambda: first.__setitem__(0, 1),
    )
    for use in uses:
        with pytest.raises(RuntimeError, match="of device 0; the current one is 1"):
            use()
    with pytest.raises(RuntimeError, match="a stream of device 0"):
        stream.use()
    assert first.get().tolist() == [1, 1, 1]
    first.device.use()
    assert stream.use() is stream and (first + 1).tolist() == [2, 2, 2]
    cupy.cuda.Stream.null.use()


@pytest.mark.parametrize("aware", ["0", "1"])
def test_mpi_gets_an_address_where_it_takes_one_and_nothing_is_queued(cupy, monkeypatch, aware):
    monkeypatch.setenv("REFGF_CUDA_AWARE", aware)
    x = cupy.ones(3)
    x += 1
    asked = pytest.raises(RuntimeError, match="whose stream was not waited for")
    with asked if aware == "1" else pytest.raises(AttributeError):
        x.__cuda_array_interface__  # noqa: B018
    device.synchronize(x)
    assert hasattr(x, "__cuda_array_interface__") == (aware == "1")


def test_events_are_recorded_asked_and_waited_for(cupy):
    stream, event = cupy.cuda.Stream(), cupy.cuda.Event(block=True, disable_timing=True)
    assert stream.record(event) is event and isinstance(stream.record(), cupy.cuda.Event)
    event.record()
    event.record(stream)
    stream.wait_event(event)
    before = cupy.waits
    assert event.done and stream.done
    assert cupy.waits == before  # a question does not wait
    for waits in (event, stream):
        waits.synchronize()
    assert cupy.waits == before + 2


def test_the_device_says_what_it_is(cupy):
    runtime = cupy.cuda.runtime
    assert runtime.getDeviceProperties(0)["name"] == b"a stand-in on the CPU"
    assert runtime.driverGetVersion() // 1000 == runtime.runtimeGetVersion() // 1000 == 12
    assert cupy.__version__.endswith("+standin")
