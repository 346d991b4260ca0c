"""A CuPy that computes on the CPU: the GPU's half of the code runs where there is no GPU.

    with installed() as cupy:            # stands in for the module `cupy` within the block
        x = cupy.asarray(numpy_array)

It finds plain mistakes: a NumPy array or a list among device arrays, an array that NumPy would have
to read from the device, a type, a function or an argument that CuPy lacks, and how often the host
waits: `cupy.waits` counts what synchronises. ARGUMENTS has what the code needs of CuPy 14, each
function looked up in its documentation and its source. Where CuPy copies a NumPy array to the
device by itself (as an index, or `cupy.tile`), this refuses it: the copy would be hidden. CUDA
kernels run as C (`fake_cuda_c.py`). A stream's work is done when it is queued, so this finds no
mistake in the order of streams, and says nothing of speed. Two races it does find. `set` returns
before its copy from pinned memory has ended, and CuPy hands freed pinned memory out again. So the
host's next wait refuses memory that was freed or written since. And MPI does not know streams:
with REFGF_CUDA_AWARE=1 MPI gets an array's address, unless its stream was not waited for. Each
thread has a current device, of as many as `cuda.runtime.getDeviceCount` says.
"""

import contextlib
import os
import sys
import threading
import types
import weakref

import numpy as np

from tests.support import fake_cuda_c

VERSION = "14.0.0+standin"  # nothing that was measured with it passes for a GPU's
TYPES = "float16 float32 float64 int32 int64 uint8 uint16 uint32 bool_ inf nan newaxis"
TYPE_CODES = "?bhilqBHILQefdFD"  # of NumPy's types, those that CuPy has
UFUNCS = """
    abs absolute add equal exp greater isfinite isnan log logical_and maximum multiply power sqrt
    subtract true_divide divide negative bitwise_and bitwise_or left_shift right_shift less_equal
    greater_equal less
"""
OF_UFUNCS = "out dtype casting"
ARGUMENTS = {  # by name, besides those that only have a position
    **dict.fromkeys(UFUNCS.split(), OF_UFUNCS),
    "matmul": "axes axis keepdims casting dtype signature order out",
    "arange": "start stop step dtype",
    "empty": "shape dtype order",
    "zeros": "shape dtype order",
    "ones": "shape dtype order",
    "full": "shape fill_value dtype order",
    "empty_like": "prototype dtype order subok shape",
    "zeros_like": "a dtype order subok shape",
    "ones_like": "a dtype order subok shape",
    "concatenate": "axis out dtype casting",
    "stack": "axis out dtype casting",
    "einsum": "dtype optimize",
    "argsort": "a axis kind",
    "count_nonzero": "a axis",
    "flatnonzero": "a",
    "mean": "a axis dtype out keepdims",
    "partition": "a kth axis",
    "repeat": "a repeats axis",
    "sort": "a axis kind",
    "sum": "a axis dtype out keepdims",
    "take": "a indices axis out",
    "tile": "A reps",
    "where": "condition x y",
}
MAKES = "arange empty zeros ones full"  # an array of numbers and shapes
OPERATORS = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift"
COMPARISONS = "eq ne lt le gt ge"
METHODS = {
    "reshape": "order",
    "sum": "axis dtype out keepdims",
    "mean": "axis dtype out keepdims",
    "max": "axis out keepdims",
    "min": "axis out keepdims",
    "argmax": "axis out dtype keepdims",
    "all": "axis out keepdims",
    "any": "axis out keepdims",
    "cumsum": "axis dtype out",
    "astype": "dtype order copy",  # its casting and subok are "not supported yet"
    "transpose": "",
    "swapaxes": "axis1 axis2",
    "view": "dtype",
    "repeat": "repeats axis",
    "ravel": "order",
}
VIEWS = "reshape transpose swapaxes view ravel"  # methods without a kernel


class Array:
    """An array on the device: a NumPy array that no other code may touch."""

    __array_ufunc__ = None  # NumPy's functions refuse it

    def __init__(self, host):
        require_type(host.dtype)
        self._memory, self.device = host, Device()

    @property
    def _host(self):
        """The memory, for a kernel: CuPy refuses it on another device, or only warns."""
        if self.device.id != (current := streams().device):
            raise RuntimeError(f"an array of device {self.device.id}; the current one is {current}")
        return self._memory

    shape, dtype, size, ndim, nbytes, itemsize, strides = (
        property(lambda self, name=name: getattr(self._memory, name))
        for name in ["shape", "dtype", "size", "ndim", "nbytes", "itemsize", "strides"]
    )
    flags = property(lambda self: Flags(self._memory.flags))
    T = property(lambda self: Array(self._host.T))

    @property
    def __cuda_array_interface__(self):
        """What MPI asks for. The address is the host's, so an MPI without CUDA takes it, too."""
        if os.environ.get("REFGF_CUDA_AWARE") != "1":
            raise AttributeError("this MPI is not said to take device pointers")
        if current_stream().queued:
            raise RuntimeError("MPI was given an array whose stream was not waited for")
        return {**self._memory.__array_interface__, "version": 3}

    def __len__(self):
        return len(self._memory)

    def __iter__(self):
        return (Array(row) for row in self._host)

    def __array__(self, *args, **kwargs):
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    def __getitem__(self, index):
        # a number stays an array, as on the device
        return Array(np.asarray(self._host[bare(index)]))

    def __setitem__(self, index, value):
        queue()
        self._host[bare(index)] = operand(value)

    def copy(self):
        queue()
        return Array(self._host.copy())

    def get(self, stream=None, order="C", out=None):
        wait()
        if out is None:
            return self._memory.copy(order)
        require_same("obtained from", self, out)
        if not (out.flags.c_contiguous or out.flags.f_contiguous):
            raise RuntimeError("`out` cannot be specified when copying to non-contiguous ndarray")
        out[...] = self._memory
        return out

    def set(self, host, stream=None):
        require_same("set to", self, host)
        if not (self.flags.c_contiguous or self.flags.f_contiguous):
            raise RuntimeError("Cannot set to non-contiguous array")
        queue()
        self._memory[...] = host
        note_copy(host)

    def item(self):
        wait()
        return self._memory.item()


class Flags:
    """No `writeable`, no `carray`: every array of the device may be written."""

    def __init__(self, flags):
        for name in ("c_contiguous", "f_contiguous", "owndata", "fnc", "forc"):
            setattr(self, name, getattr(flags, name))


def require_type(dtype):
    if dtype.char not in TYPE_CODES or dtype.byteorder == ">":
        raise ValueError(f"Unsupported dtype {dtype}")


def require_same(what, array, host):
    """CuPy's refusals of `get` and `set`: another class or type, another shape."""
    if not isinstance(host, np.ndarray):
        raise TypeError(f"Only numpy.ndarray can be {what} cupy.ndarray, got {type(host)}")
    if host.dtype != array.dtype:
        raise TypeError(f"{host.dtype} array cannot be {what} {array.dtype} array")
    if host.shape != array.shape:
        raise ValueError(f"Shape mismatch: {host.shape} {what} {array.shape}")


def method(name, arguments):
    def call(self, *args, **kwargs):
        require_arguments(name, kwargs, arguments)
        if name not in VIEWS.split():
            queue()
        return Array(np.asarray(getattr(self._host, name)(*bare(args), **bare(kwargs))))

    return call


def operator(name):
    def call(self, *others):
        queue()
        return Array(np.asarray(getattr(self._host, name)(*map(operand, others))))

    return call


def in_place(name):
    def call(self, other):
        queue()
        self._memory = getattr(self._host, name)(operand(other))
        return self

    return call


def on_host(convert):
    def call(self):
        wait()
        return convert(self._memory)

    return call


for _name, _arguments in METHODS.items():
    setattr(Array, _name, method(_name, _arguments))
for _name in f"{OPERATORS} {COMPARISONS} abs neg invert".split():
    setattr(Array, f"__{_name}__", operator(f"__{_name}__"))
for _name in OPERATORS.split():
    setattr(Array, f"__r{_name}__", operator(f"__r{_name}__"))
    setattr(Array, f"__i{_name}__", in_place(f"__i{_name}__"))
Array.__float__, Array.__int__, Array.__bool__ = on_host(float), on_host(int), on_host(bool)
Array.tolist = on_host(np.ndarray.tolist)


def operand(value):
    """What NumPy computes with, of what a kernel takes: a device array or a number."""
    if isinstance(value, Array):
        return value._host
    if isinstance(value, np.generic):
        require_type(value.dtype)
    elif not isinstance(value, bool | int | float | complex):
        raise TypeError(f"Unsupported type {type(value)}")
    return value


def bare(value):
    """The same of any argument: shapes, axes, types and indices too, but no NumPy array."""
    if isinstance(value, Array):
        return value._host
    if isinstance(value, np.ndarray):
        got = f"a NumPy array {value.shape} {value.dtype}"
        raise TypeError(f"Unsupported type: got {got} among device arrays")
    if isinstance(value, tuple | list):
        return type(value)(bare(one) for one in value)
    if isinstance(value, dict):
        return {name: bare(one) for name, one in value.items()}
    return value


def array_of(value):
    """The same of a device array only."""
    if not isinstance(value, Array):
        raise TypeError(f"Unsupported type {type(value)}: wanted an array of the device")
    return value._host


def queue():
    """What this thread computes is queued on its stream."""
    current_stream().queued = True


def wait():
    sys.modules["cupy"].waits += 1
    current_stream().done, current_stream().queued = True, False
    copies, streams().copies = streams().copies, []
    for memory, where, sent in copies:
        if memory() is None:
            raise RuntimeError("pinned memory was freed before the copy from it had ended")
        if bytes(memory()[where]) != sent:
            raise RuntimeError("pinned memory was written before the copy from it had ended")


class PinnedMemory(bytearray):
    """Of the host; CuPy copies from it after `set` has returned."""


def note_copy(host):
    """What a queued copy reads must be there until this thread waits."""
    memory = host
    while isinstance(memory, np.ndarray | memoryview):
        memory = memory.base if isinstance(memory, np.ndarray) else memory.obj
    if isinstance(memory, PinnedMemory):
        start = host.ctypes.data - np.frombuffer(memory, np.uint8).ctypes.data
        where = slice(start, start + host.nbytes)
        streams().copies.append((weakref.ref(memory), where, bytes(memory[where])))


def require_arguments(name, kwargs, known):
    if unknown := kwargs.keys() - set(known.split()):
        raise TypeError(f"{name}: Wrong arguments {sorted(unknown)}")


class Function:
    """A function of NumPy on device arrays."""

    def __init__(self, name):
        self.name, self.function = name, getattr(np, name)

    def __call__(self, *args, **kwargs):
        require_arguments(self.name, kwargs, ARGUMENTS[self.name])
        if not self.name.startswith("empty"):
            queue()
        result = self.function(*self.taken(*args), **bare(kwargs))
        return kwargs["out"] if kwargs.get("out") is not None else Array(np.asarray(result))

    def taken(self, *args):
        """The arguments as NumPy's, of those that CuPy takes."""
        if isinstance(self.function, np.ufunc) or self.name == "where":
            return [operand(x) for x in args]
        if self.name in ("concatenate", "stack"):
            return [[array_of(x) for x in args[0]], *bare(args[1:])]
        if self.name == "einsum":
            return [args[0], *(array_of(x) for x in args[1:])]
        if self.name in MAKES.split():
            return bare(args)
        return [*(array_of(x) for x in args[:1]), *bare(args[1:])]


_thread = threading.local()  # the current device and stream belong to a thread


def streams():
    """This thread's device and stream, those of its `with` blocks, copies that may be queued."""
    if not hasattr(_thread, "current"):
        _thread.current, _thread.stack, _thread.copies = Stream.null, [Stream.null], []
        _thread.device = 0
    return _thread


def current_stream():
    return streams().current


class Event:
    """Whatever it was recorded after is done."""

    ptr, done = 1, True  # `done` asks CUDA (cudaEventQuery); CuPy has no `query`

    def __init__(self, block=False, disable_timing=False, interprocess=False):
        if interprocess and not disable_timing:
            raise ValueError("Timing must be disabled for interprocess events")
        self.block, self.disable_timing = block, disable_timing

    def record(self, stream=None):
        require_handle(current_stream() if stream is None else stream)

    def synchronize(self):
        wait()


class Stream:
    null = None  # the default stream
    ptr, done = 1, True  # a test may say that it is busy: it is until the host waits
    queued = False  # was a kernel or a copy queued since the host last waited?

    def __init__(self, null=False, non_blocking=False, ptds=False, priority=None):
        self.non_blocking, self.device_id = non_blocking, -1 if null else streams().device

    def use(self):
        if self.device_id not in (-1, streams().device):  # -1: each device has a default stream
            raise RuntimeError(f"a stream of device {self.device_id}, which is not the current one")
        streams().current = self
        return self

    def __enter__(self):
        streams().stack.append(self)
        return self.use()

    def __exit__(self, *error):
        """Back to the block around this one, not to a stream that `use` chose before it."""
        streams().stack.pop()
        streams().stack[-1].use()

    def synchronize(self):
        wait()
        self.done, self.queued = True, False

    def record(self, event=None):
        event = Event() if event is None else event
        require_handle(event)
        return event

    def wait_event(self, event):
        require_handle(event)


Stream.null = Stream(null=True)


def require_handle(thing):
    """AttributeError of what is no stream and no event: CuPy reads its handle."""
    return thing.ptr


class Device:
    def __init__(self, device=None):
        self.id = streams().device if device is None else int(device)

    def use(self):
        require_device(self.id)
        if streams().device != self.id:
            streams().device, streams().current = self.id, Stream.null
        return self


def require_device(number):
    if not 0 <= number < runtime.getDeviceCount():
        raise RuntimeError("cudaErrorInvalidDevice: invalid device ordinal")


def device_properties(number):
    require_device(number)
    return {"name": b"a stand-in on the CPU", "major": 8, "minor": 0, "totalGlobalMem": 1 << 34}


runtime = types.SimpleNamespace(
    getDeviceCount=lambda: 1,
    getDeviceProperties=device_properties,
    driverGetVersion=lambda: 12040,  # 12.4
    runtimeGetVersion=lambda: 12040,
)
cuda = types.SimpleNamespace(
    Device=Device,
    Event=Event,
    Stream=Stream,
    get_current_stream=current_stream,
    alloc_pinned_memory=PinnedMemory,
    runtime=runtime,
)


def asarray(value, dtype=None, order=None):
    """From the host or the device: the way in."""
    if isinstance(value, Array):
        host = np.asarray(value._host, dtype, order=order)
        if host is value._host:
            return value
    else:
        host = np.array(value, dtype, order="C")
    queue()
    return Array(host)


def array(value, dtype=None):
    """A copy, from the host or the device."""
    queue()
    return Array(np.array(getattr(value, "_host", value), dtype))


def ascontiguousarray(value, dtype=None):
    return asarray(value, dtype, "C")


def asnumpy(array, stream=None, order="C", out=None):
    return array.get(stream, order, out)


def as_strided(x, shape=None, strides=None):
    return Array(np.lib.stride_tricks.as_strided(array_of(x), shape, strides))


class ElementwiseKernel(fake_cuda_c.ElementwiseKernel):
    def __call__(self, *args):
        queue()
        super().__call__(*map(operand, args))


def module() -> types.ModuleType:
    cupy = types.ModuleType("cupy")
    cupy.__version__, cupy.waits, cupy.ndarray, cupy.cuda = VERSION, 0, Array, cuda
    cupy.asarray, cupy.array, cupy.ascontiguousarray = asarray, array, ascontiguousarray
    cupy.asnumpy, cupy.ElementwiseKernel = asnumpy, ElementwiseKernel
    views = types.SimpleNamespace(as_strided=as_strided)
    cupy.lib = types.SimpleNamespace(stride_tricks=views)
    for name in ARGUMENTS:
        setattr(cupy, name, Function(name))
    for name in TYPES.split():
        setattr(cupy, name, getattr(np, name))
    return cupy


@contextlib.contextmanager
def installed():
    before, streams().device = sys.modules.get("cupy"), 0
    sys.modules["cupy"] = cupy = module()
    try:
        yield cupy
    finally:
        del sys.modules["cupy"]
        if before is not None:
            sys.modules["cupy"] = before
