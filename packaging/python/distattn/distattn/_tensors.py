"""Arrays of any library as the C API takes them, and results of the same kind.

NumPy's and PyTorch's are read directly, others through DLPack. A result for these lies in memory of the C library's
malloc, which free() gives back: what holds it may live longer than this package, and than the interpreter.
"""

import ctypes
import functools
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from . import _capi
from ._errors import UsageError

Type = tuple[int, int]  # DLPack's type code and bits

TYPES: dict[str, Type] = {"float64": (_capi.FLOAT, 64), "float32": (_capi.FLOAT, 32), "float16": (_capi.FLOAT, 16),
                          "bfloat16": (_capi.BFLOAT, 16)}
NAMES = {kind: name for name, kind in TYPES.items()}
DTYPES = {"float64": _capi.FP64, "float32": _capi.FP32, "bfloat16": _capi.BF16, "float16": _capi.FP16}
_SHORT = {"fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "double": "float64",
          "float": "float32", "half": "float16"}
_ON_HOST = (_capi.HOST, _capi.CUDA_HOST)


def dtype_name(dtype: object, keyword: str = "dtype") -> str:
    """"float32" of np.float32, torch.float32, "fp32" …"""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", None) or str(dtype)
    name = name.removeprefix("torch.")
    name = _SHORT.get(name, name)
    if name not in TYPES:
        raise UsageError(f"{keyword} is {name} (not supported): choose float64, float32, float16 or bfloat16")
    return name


@dataclass(frozen=True, eq=False)
class Layout:
    """Where elements lie from the first one on, and of what type. Those of layout_of() are one object if they are equal.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements
    dtype: str
    device: tuple[int, int]

    @property
    def on_host(self) -> bool:
        return self.device[0] in _ON_HOST

    def struct(self) -> _capi.DLTensor:
        """Without the address."""
        extents = ctypes.c_int64 * len(self.shape)
        code, bits = TYPES[self.dtype]
        return _capi.DLTensor(0, self.device, len(self.shape), (code, bits, 1), extents(*self.shape),
                              extents(*self.strides), 0)


@functools.lru_cache(maxsize=4096)
def layout_of(shape: tuple[int, ...], strides: tuple[int, ...], dtype: str, device: tuple[int, int]) -> Layout:
    return Layout(shape, strides, dtype, device)


class View(NamedTuple):
    """An array in memory. `owner` keeps it there."""

    address: int
    layout: Layout
    owner: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return self.layout.shape

    @property
    def dtype(self) -> str:
        return self.layout.dtype

    def bits(self) -> np.ndarray:
        """The elements as unsigned integers of their size, in place: NumPy has no bfloat16. Host memory only."""
        size = TYPES[self.dtype][1] // 8
        if 0 in self.shape:
            return np.empty(self.shape, f"u{size}")
        return np.asarray(_Memory({"data": (self.address, False), "shape": self.shape, "typestr": f"<u{size}",
                                   "strides": tuple(step * size for step in self.layout.strides), "version": 3}))


@dataclass(frozen=True)
class _Memory:
    __array_interface__: dict[str, Any]


def is_torch(array: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def view(array: Any, name: str) -> View:
    """How an argument of that name lies in memory. Raises UsageError for what is no array of floating point."""
    if isinstance(array, np.ndarray):
        found = _view_numpy(array, name)
    elif is_torch(array):
        found = _view_torch(array, name)
    elif hasattr(array, "__dlpack__"):
        found = _view_dlpack(array, name)
    else:
        raise UsageError(f"{name} is a {type(array).__name__} (no array): pass one of NumPy, PyTorch, or with DLPack")
    if found.address * 8 % TYPES[found.dtype][1]:
        raise UsageError(f"{name} begins between two boundaries of its {found.dtype} elements (kernels read whole ones): "
                         f"pass a copy of it")
    return found


_LEGACY_STREAM = 1  # cudaStreamLegacy: the default stream, which DLPack and PyTorch mean unless they name another one


def stream_of(array: Any, layout: Layout) -> int:
    """The stream on which a caller works with an array in CUDA memory; 0: it lies in host memory."""
    if layout.on_host:
        return 0
    stream = sys.modules["torch"].cuda.current_stream(array.device).cuda_stream if is_torch(array) else 0
    return int(stream) or _LEGACY_STREAM


def _refuse_dtype(name: str, dtype: object) -> UsageError:
    return UsageError(f"{name} has dtype {dtype} (not supported): pass float64, float32, float16 or bfloat16")


_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype, _capsule_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class _ArrayStruct(ctypes.Structure):
    """NumPy's PyArrayInterface. To make the dictionary of __array_interface__ takes longer than the rest of a call."""

    _fields_ = [("two", ctypes.c_int), ("nd", ctypes.c_int), ("typekind", ctypes.c_char), ("itemsize", ctypes.c_int),
                ("flags", ctypes.c_int), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                ("data", ctypes.c_void_p), ("descr", ctypes.c_void_p)]


def _address(array: np.ndarray) -> int:
    return _ArrayStruct.from_address(_capsule_pointer(array.__array_struct__, None)).data


@functools.lru_cache(maxsize=4096)
def _numpy_layout(shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype) -> Layout | None:
    """None: elements that the library has no type for, or that do not lie at whole distances."""
    size = dtype.itemsize
    if dtype.name not in TYPES or not dtype.isnative or any(step % size for step in strides):
        return None
    return layout_of(shape, tuple(step // size for step in strides), dtype.name, (_capi.HOST, 0))


def _view_numpy(array: np.ndarray, name: str) -> View:
    if isinstance(array, np.ma.MaskedArray):
        raise UsageError(f"{name} is a masked array (its mask would be lost): pass plain arrays, and documents or windows")
    layout = _numpy_layout(array.shape, array.strides, array.dtype)
    if layout is None and (array.dtype.name not in TYPES or not array.dtype.isnative):
        raise _refuse_dtype(name, array.dtype)
    if layout is None:
        raise UsageError(f"{name} has strides of {array.strides} bytes (elements have {array.itemsize}): pass a copy of "
                         f"it")
    return View(_address(array), layout, array)


@functools.lru_cache(maxsize=4096)
def _torch_layout(shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any, device: Any, layout: Any) -> Layout | None:
    torch = sys.modules["torch"]
    if layout != torch.strided or device.type not in ("cpu", "cuda") or str(dtype)[6:] not in TYPES:
        return None
    place = (_capi.CUDA, device.index or 0) if device.type == "cuda" else (_capi.HOST, 0)
    return layout_of(tuple(shape), strides, str(dtype)[6:], place)


def _view_torch(tensor: Any, name: str) -> View:
    if tensor.requires_grad and sys.modules["torch"].is_grad_enabled():
        raise UsageError(f"{name} requires grad (no gradient is recorded here): call distattn.torch.attention, or "
                         f"detach it")
    if tensor.is_nested:
        raise UsageError(f"{name} is a nested tensor (not supported): pass a dense one, and documents as cu_seqlens")
    strides = tensor.stride() if tensor.layout is sys.modules["torch"].strided else ()
    layout = _torch_layout(tensor.shape, strides, tensor.dtype, tensor.device, tensor.layout)
    if layout is None and str(tensor.dtype)[6:] not in TYPES:
        raise _refuse_dtype(name, tensor.dtype)
    if layout is None or tensor.is_neg():
        raise UsageError(f"{name} is a {tensor.layout} tensor on {tensor.device} (not supported): pass a dense one in "
                         f"host or CUDA memory")
    return View(tensor.data_ptr(), layout, tensor)


_capsule_name = ctypes.pythonapi.PyCapsule_GetName
_capsule_name.restype, _capsule_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
_capsule_new = ctypes.pythonapi.PyCapsule_New
_capsule_new.restype = ctypes.py_object
_capsule_new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


_CAPSULES: dict[bytes, Any] = {b"dltensor": _capi.DLManagedTensor, b"dltensor_versioned": _capi.DLManagedTensorVersioned}


def _capsule_of(array: Any) -> Any:
    """Of the version that can say that an array is read-only, which inputs may be, if the array's library knows it."""
    try:
        return array.__dlpack__(max_version=(1, 0))
    except TypeError:
        return array.__dlpack__()


def _view_dlpack(array: Any, name: str) -> View:
    try:
        capsule = _capsule_of(array)
        kind = _capsule_name(capsule)
        tensor = _CAPSULES[kind].from_address(_capsule_pointer(capsule, kind)).dl_tensor
    except Exception as error:  # whatever an array library raises
        why = (str(error) or type(error).__name__).splitlines()[0]
        raise UsageError(f"{name} is a {type(array).__name__} that DLPack does not take ({why}): pass another array") \
            from error
    dtype = NAMES.get((tensor.dtype.code, tensor.dtype.bits))
    if dtype is None or tensor.dtype.lanes != 1:
        raise _refuse_dtype(name, getattr(array, "dtype", "unknown"))
    shape = tuple(tensor.shape[:tensor.ndim])
    strides = tuple(tensor.strides[:tensor.ndim]) if tensor.strides else dense_strides(shape)
    layout = layout_of(shape, strides, dtype, (tensor.device.device_type, tensor.device.device_id))
    return View((tensor.data or 0) + tensor.byte_offset, layout, (array, capsule))


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(shape[axis + 1:]) for axis in range(len(shape)))


def dense_view(array: np.ndarray, dtype: str) -> View:
    """A dense array of bits as one of `dtype`."""
    return View(_address(array), layout_of(array.shape, dense_strides(array.shape), dtype, (_capi.HOST, 0)), array)


def new_array(like: Any, shape: tuple[int, ...], dtype: str, device: tuple[int, int]) -> Any:
    """An array of the kind of `like` to be written: NumPy's, PyTorch's, or a Block, of which finished() makes one."""
    if isinstance(like, np.ndarray):
        return np.empty(shape, like.dtype if dtype == "bfloat16" else dtype)
    if is_torch(like):
        torch = sys.modules["torch"]
        return torch.empty(shape, dtype=getattr(torch, dtype), device=like.device)
    if device[0] in _ON_HOST:
        return Block(shape, dtype)
    raise UsageError(f"a {type(like).__name__} lies on DLPack device {device[0]} (results are made in host memory, or by "
                     f"PyTorch): pass tensors of PyTorch")


def view_of_new(array: Any) -> View:
    return array.view if isinstance(array, Block) else view(array, "result")


def finished(array: Any, like: Any) -> Any:
    """A written array as the library of `like` has it."""
    return _from_dlpack(like, array) if isinstance(array, Block) else array


_libc = ctypes.CDLL(None)
_libc.malloc.restype, _libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
_libc.free.restype, _libc.free.argtypes = None, [ctypes.c_void_p]


class Block:
    """One piece of malloc's memory: DLPack's description of a tensor, its extents, its elements. The deleter is free().
    """

    ALIGNMENT = 64

    def __init__(self, shape: tuple[int, ...], dtype: str) -> None:
        code, bits = TYPES[dtype]
        rank, head = len(shape), ctypes.sizeof(_capi.DLManagedTensor)
        begin = head + 2 * 8 * rank
        self._address = _libc.malloc(begin + math.prod(shape) * bits // 8 + self.ALIGNMENT)
        if not self._address:
            raise MemoryError(f"no memory for a result of {shape}")
        extents = (ctypes.c_int64 * (2 * rank)).from_address(self._address + head)
        extents[:] = [*shape, *dense_strides(shape)]
        data = -(-(self._address + begin) // self.ALIGNMENT) * self.ALIGNMENT
        managed = _capi.DLManagedTensor.from_address(self._address)
        managed.dl_tensor.data, managed.dl_tensor.ndim, managed.dl_tensor.byte_offset = data, rank, 0
        managed.dl_tensor.device, managed.dl_tensor.dtype = (_capi.HOST, 0), (code, bits, 1)
        ctypes.c_void_p.from_buffer(managed.dl_tensor, _capi.DLTensor.shape.offset).value = self._address + head
        ctypes.c_void_p.from_buffer(managed.dl_tensor, _capi.DLTensor.strides.offset).value = \
            self._address + head + 8 * rank
        managed.manager_ctx = None
        managed.deleter = ctypes.cast(_libc.free, ctypes.c_void_p).value
        layout = layout_of(shape, dense_strides(shape), dtype, (_capi.HOST, 0))
        self.view = View(data, layout, None)  # this block is what holds it

    def __dlpack__(self, **_: Any) -> Any:
        capsule = _capsule_new(self._address, b"dltensor", None)
        self._address = 0  # from here on it is the consumer's
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (_capi.HOST, 0)

    def __del__(self) -> None:
        if getattr(self, "_address", 0):
            _libc.free(self._address)


def _from_dlpack(like: Any, block: Block) -> Any:
    """An array of the library that `like` is of."""
    if hasattr(like, "__array_namespace__"):
        return like.__array_namespace__().from_dlpack(block)
    package = sys.modules[type(like).__module__.partition(".")[0]]
    take = getattr(package, "from_dlpack", None) or getattr(getattr(package, "dlpack", None), "from_dlpack", None)
    if take is None:
        raise UsageError(f"{package.__name__} has no from_dlpack (a result is made with it): pass arrays of NumPy")
    return take(block)
