"""A CuPy that computes on the CPU: the GPU's half of the code runs where there is no GPU.

    with installed() as cupy:            # stands in for the module `cupy` within the block
        x = cupy.asarray(numpy_array)

It finds plain mistakes: a NumPy array among device arrays, an array that NumPy would have to read
from the device, a function that CuPy lacks (only those in FUNCTIONS are there, each looked up in
CuPy's documentation), and how often the host waits: `cupy.waits` counts what synchronises. CUDA
kernels run as C (`fake_cuda_c.py`). It finds no mistake in the order of streams, and says nothing
of speed.
"""

import contextlib
import sys
import types

import fake_cuda_c
import numpy as np

FUNCTIONS = """
    abs absolute add arange argsort concatenate count_nonzero einsum empty empty_like equal exp
    flatnonzero full greater isfinite isnan log logical_and maximum mean multiply ones ones_like
    partition power repeat sort sqrt subtract sum take tile true_divide where zeros zeros_like
    matmul divide negative bitwise_and bitwise_or left_shift right_shift less_equal
    greater_equal less
"""  # of CuPy 14
TYPES = "float16 float32 float64 int32 int64 uint8 uint16 uint32 bool_ inf nan newaxis"
OPERATORS = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift"
COMPARISONS = "eq ne lt le gt ge"
METHODS = """
    reshape sum mean max min astype transpose swapaxes view all any argmax repeat ravel
    cumsum
"""


class Array:
    """An array on the device: a NumPy array that no other code may touch."""

    __array_ufunc__ = None  # NumPy's functions refuse it

    def __init__(self, host):
        self._host = host

    shape, dtype, size, ndim, nbytes, itemsize, flags, strides = (
        property(lambda self, name=name: getattr(self._host, name))
        for name in ["shape", "dtype", "size", "ndim", "nbytes", "itemsize", "flags", "strides"]
    )
    T = property(lambda self: Array(self._host.T))
    device = property(lambda self: cuda.Device(0))

    def __len__(self):
        return len(self._host)

    def __iter__(self):
        return (Array(row) for row in self._host)

    def __array__(self, *args, **kwargs):
        raise TypeError("implicit conversion to a NumPy array is not allowed")

    def __getitem__(self, index):
        # a number stays an array, as on the device
        return Array(np.asarray(self._host[bare(index)]))

    def __setitem__(self, index, value):
        self._host[bare(index)] = bare(value)

    def copy(self):
        return Array(self._host.copy())

    def get(self, out=None):
        wait()
        if out is None:
            return self._host.copy()
        if out.shape != self.shape or out.dtype != self.dtype or not out.flags.c_contiguous:
            got = f"get: got {out.shape} {out.dtype}"
            raise ValueError(f"{got}; wanted a contiguous {self.shape} {self.dtype}")
        out[...] = self._host
        return out

    def set(self, host):
        if type(host) is not np.ndarray or host.shape != self.shape or host.dtype != self.dtype:
            got = f"set: got {type(host)} {host.shape} {host.dtype}"
            raise TypeError(f"{got}; wanted {self.shape} {self.dtype}")
        self._host[...] = host

    def item(self):
        wait()
        return self._host.item()


def method(name):
    def call(self, *args, **kwargs):
        return Array(np.asarray(getattr(self._host, name)(*bare(args), **bare(kwargs))))

    return call


def in_place(name):
    def call(self, other):
        self._host = getattr(self._host, name)(bare(other))
        return self

    return call


def on_host(convert):
    def call(self):
        wait()
        return convert(self._host)

    return call


for _name in METHODS.split():
    setattr(Array, _name, method(_name))
for _name in f"{OPERATORS} {COMPARISONS} neg invert".split():
    setattr(Array, f"__{_name}__", method(f"__{_name}__"))
for _name in OPERATORS.split():
    setattr(Array, f"__r{_name}__", method(f"__r{_name}__"))
    setattr(Array, f"__i{_name}__", in_place(f"__i{_name}__"))
Array.__float__, Array.__int__, Array.__bool__ = on_host(float), on_host(int), on_host(bool)
Array.tolist = on_host(np.ndarray.tolist)


def bare(value):
    """What NumPy computes with: device arrays and numbers, but no NumPy array."""
    if isinstance(value, Array):
        return value._host
    if isinstance(value, np.ndarray):
        got = f"a NumPy array {value.shape} {value.dtype}"
        raise TypeError(f"unsupported type: got {got} among device arrays")
    if isinstance(value, tuple | list):
        return type(value)(bare(one) for one in value)
    if isinstance(value, dict):
        return {name: bare(one) for name, one in value.items()}
    return value


def wait():
    sys.modules["cupy"].waits += 1


class Function:
    """A function of NumPy on device arrays."""

    def __init__(self, name):
        self.name, self.function = name, getattr(np, name)

    def __call__(self, *args, **kwargs):
        if self.name == "einsum" and "out" in kwargs:
            raise TypeError("einsum: CuPy has no out")
        result = self.function(*bare(args), **bare(kwargs))
        return kwargs["out"] if kwargs.get("out") is not None else Array(np.asarray(result))


class Event:
    def __init__(self, block=False, disable_timing=False):
        self.block, self.disable_timing = block, disable_timing

    def synchronize(self):
        wait()


class Stream:
    def __init__(self, non_blocking=False):
        self.non_blocking = non_blocking

    def use(self):
        return self

    def synchronize(self):
        wait()

    def record(self, event=None):
        return event or Event()


class Device:
    def __init__(self, number=0):
        self.id = number

    def use(self):
        return self


cuda = types.SimpleNamespace(
    Device=Device,
    Event=Event,
    Stream=Stream,
    get_current_stream=Stream,
    alloc_pinned_memory=bytearray,
    runtime=types.SimpleNamespace(getDeviceCount=lambda: 1),
)


def asarray(value, dtype=None, order=None):
    """From the host or the device: the way in."""
    if isinstance(value, Array) and dtype in (None, value.dtype):
        return value
    return Array(np.array(getattr(value, "_host", value), dtype=dtype, order="C"))


def asnumpy(array):
    return array.get()


def as_strided(x, shape, strides):
    return Array(np.lib.stride_tricks.as_strided(bare(x), shape, strides))


class ElementwiseKernel(fake_cuda_c.ElementwiseKernel):
    def __call__(self, *args):
        super().__call__(*bare(args))


def module() -> types.ModuleType:
    cupy = types.ModuleType("cupy")
    cupy.waits, cupy.ndarray, cupy.cuda, cupy.asnumpy = 0, Array, cuda, asnumpy
    cupy.asarray = cupy.array = cupy.ascontiguousarray = asarray
    cupy.ElementwiseKernel = ElementwiseKernel
    views = types.SimpleNamespace(as_strided=as_strided)
    cupy.lib = types.SimpleNamespace(stride_tricks=views)
    for name in FUNCTIONS.split():
        setattr(cupy, name, Function(name))
    for name in TYPES.split():
        setattr(cupy, name, getattr(np, name))
    return cupy


@contextlib.contextmanager
def installed():
    before = sys.modules.get("cupy")
    sys.modules["cupy"] = cupy = module()
    try:
        yield cupy
    finally:
        del sys.modules["cupy"]
        if before is not None:
            sys.modules["cupy"] = before
