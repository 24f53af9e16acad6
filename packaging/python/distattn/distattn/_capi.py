"""distattn.h for ctypes: structs member by member, functions with their types.

ctypes needs no build for each Python, torch or CUDA, and its calls release the GIL.
"""

import ctypes
import importlib.util
import os
from ctypes import (CFUNCTYPE, POINTER, Structure, byref, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_uint8,
                    c_uint16, c_uint64, c_void_p)
from typing import Any

from ._errors import UnavailableError, error_of

LIBRARY = "DISTATTN_LIBRARY"  # the file to load instead of libdistattn's

OK, USAGE = 0, 2
QUERIES, KEYS = 0, 1
FP64, FP32, BF16, FP16 = range(4)
HOST, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13  # DLPack's devices
FLOAT, BFLOAT = 2, 4  # DLPack's type codes


class DLDevice(Structure):
    _fields_ = [("device_type", c_int32), ("device_id", c_int32)]


class DLDataType(Structure):
    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]


class DLTensor(Structure):
    _fields_ = [("data", c_void_p), ("device", DLDevice), ("ndim", c_int32), ("dtype", DLDataType),
                ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)), ("byte_offset", c_uint64)]


class DLManagedTensor(Structure):
    _fields_ = [("dl_tensor", DLTensor), ("manager_ctx", c_void_p), ("deleter", c_void_p)]


class DLManagedTensorVersioned(Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("manager_ctx", c_void_p), ("deleter", c_void_p),
                ("flags", c_uint64), ("dl_tensor", DLTensor)]


class Sized(Structure):
    """A struct that begins with its size, which says to the library which members it has."""

    def __init__(self, **members: Any) -> None:
        super().__init__(struct_size=ctypes.sizeof(self), **members)


class Band(Structure):
    _fields_ = [(name, c_int64) for name in ("q0", "q1", "k0", "k1", "lo", "hi")]


class TreeNode(Structure):
    _fields_ = [("length", c_int64), ("parent", c_int64)]


class Problem(Sized):
    _fields_ = [("struct_size", c_size_t), ("batch", c_int64), ("seq_q", c_int64), ("seq_kv", c_int64),
                ("heads", c_int32), ("kv_heads", c_int32), ("head_dim", c_int32), ("value_dim", c_int32),
                ("dtype", c_int32), ("wire", c_int32), ("scale", c_double), ("causal", c_int32),
                ("window_left", c_int64), ("window_right", c_int64), ("sinks", c_int64),
                ("cu_seqlens", POINTER(c_int64)), ("cu_seqlens_count", c_size_t), ("bands", POINTER(Band)),
                ("bands_count", c_size_t), ("softcap", c_double), ("sink_logits", c_int32), ("max_logit", c_int32),
                ("alibi_slopes", POINTER(c_double)), ("alibi_slopes_count", c_size_t), ("dropout", c_double),
                ("shared_kv", c_int32), ("reserved", c_int32)]


class Options(Sized):
    _fields_ = [("struct_size", c_size_t), ("schedule", c_char_p), ("mode", c_int32), ("node_size", c_int32),
                ("ahead", c_int32), ("backward", c_int32), ("backend", c_char_p), ("threads", c_int32),
                ("local_ranks", c_int32), ("allocate", c_void_p), ("release", c_void_p), ("user", c_void_p),
                ("local_rank", c_int32), ("cuda_stream", c_void_p), ("deterministic", c_int32), ("reserved", c_int32),
                ("machine", c_char_p), ("memory_bytes", c_int64), ("balance_tokens", c_double), ("layout", c_char_p)]

    def __init__(self, **members: Any) -> None:
        super().__init__(**{"local_rank": -1, "balance_tokens": -1.0, **members})


class Launch(Sized):
    _fields_ = [("struct_size", c_size_t), ("bootstrap", c_char_p), ("transport", c_char_p), ("ranks", c_int32),
                ("timeout_s", c_double)]


Exchange = CFUNCTYPE(c_int, c_void_p, c_int32, c_void_p, c_size_t, c_void_p, c_size_t)


class Callbacks(Sized):
    _fields_ = [("struct_size", c_size_t), ("rank", c_int32), ("size", c_int32), ("user", c_void_p),
                ("exchange", Exchange), ("abort", c_void_p), ("reaches_cuda", c_int32), ("reserved", c_int32)]


class Tensors(Sized):
    NAMES = ("q", "k", "v", "o", "lse", "d_o", "dq", "dk", "dv", "lse_low", "sink_logits", "dsink_logits", "max_logit")
    _fields_ = [("struct_size", c_size_t), *((name, POINTER(DLTensor)) for name in NAMES), ("dropout_seed", c_uint64),
                ("dropout_offset", c_uint64)]


Body = CFUNCTYPE(c_int, c_void_p, c_void_p)
_OUT = POINTER(c_void_p)

# Functions that return a status.
_FALLIBLE: dict[str, list[Any]] = {
    "info_json": [_OUT],
    "tree_mask": [POINTER(TreeNode), c_size_t, POINTER(Band), POINTER(c_size_t), c_void_p],
    "schedule_json": [c_void_p, c_int32, _OUT],
    "plan_json": [POINTER(Problem), POINTER(Options), c_int32, c_char_p, _OUT],
    "plan_layout": [POINTER(Problem), POINTER(Options), c_int32, c_char_p, _OUT],
    "planned_positions": [POINTER(Problem), POINTER(Options), c_int32, c_int32, c_int32, c_void_p, POINTER(c_int64)],
    "comm_from_launcher": [POINTER(Launch), _OUT],
    "comm_from_callbacks": [POINTER(Callbacks), _OUT],
    "comm_subgroup": [c_void_p, POINTER(c_int32), c_size_t, _OUT],
    "comm_all_gather": [c_void_p, c_void_p, POINTER(c_size_t), c_void_p],
    "comm_abort": [c_void_p, c_char_p],
    "run_ranks": [c_int32, Body, c_void_p],
    "attention_create": [POINTER(Problem), POINTER(Options), c_void_p, _OUT],
    "attention_positions": [c_void_p, c_int32, c_void_p],
    "forward": [c_void_p, POINTER(Tensors)],
    "backward": [c_void_p, POINTER(Tensors)],
    "forward_async": [c_void_p, POINTER(Tensors), c_void_p, _OUT],
    "backward_async": [c_void_p, POINTER(Tensors), c_void_p, _OUT],
    "attention_check": [c_void_p],
    "attention_wait": [c_void_p],
}
# The others: what they return, what they take.
_PLAIN: dict[str, tuple[Any, list[Any]]] = {
    "version": (c_char_p, []),
    "message": (c_char_p, []),
    "text_free": (None, [c_void_p]),
    "comm_rank": (c_int32, [c_void_p]),
    "comm_size": (c_int32, [c_void_p]),
    "comm_free": (None, [c_void_p]),
    "attention_tokens": (c_int64, [c_void_p, c_int32]),
    "attention_free": (None, [c_void_p]),
}


def load_what_wheels_brought() -> None:
    """A process has one NCCL and one cuDNN. PyTorch's cannot do with an older one of the system's, so that theirs come
    first, whoever is imported first."""
    for package, file in (("nvidia.nccl", "libnccl.so.2"), ("nvidia.cudnn", "libcudnn.so.9")):
        try:
            found = importlib.util.find_spec(package)
        except ModuleNotFoundError:
            continue
        for folder in (found.submodule_search_locations or () if found else ()):
            try:
                ctypes.CDLL(os.path.join(folder, "lib", file), mode=ctypes.RTLD_LOCAL)
            except OSError:
                continue  # the library looks for the system's


def _open() -> ctypes.CDLL:
    named = os.environ.get(LIBRARY)
    if os.path.exists("/dev/nvidiactl"):
        load_what_wheels_brought()
    try:
        if named:
            return ctypes.CDLL(named, mode=ctypes.RTLD_LOCAL)
        import libdistattn

        return libdistattn.load_library()
    except ImportError as error:
        raise UnavailableError(f"libdistattn is not installed ({error}): pip install it, or set {LIBRARY} to the file of "
                               f"a shared library") from None
    except OSError as error:
        raise UnavailableError(f"{named or 'libdistattn'} cannot be loaded ({error}): set {LIBRARY} to the file of a "
                               f"shared library that can") from None


class _Library:
    """Functions of distattn.h without their prefix."""

    def __init__(self) -> None:
        loaded = _open()
        for name, arguments in _FALLIBLE.items():
            self._declare(loaded, name, c_int, arguments)
        for name, (result, arguments) in _PLAIN.items():
            self._declare(loaded, name, result, arguments)

    def _declare(self, loaded: ctypes.CDLL, name: str, result: Any, arguments: list[Any]) -> None:
        try:
            function = getattr(loaded, f"distattn_{name}")
        except AttributeError:
            raise UnavailableError(f"the loaded libdistattn has no distattn_{name} (an older version): install the "
                                   f"libdistattn of this package's version") from None
        function.restype, function.argtypes = result, arguments
        setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:  # for type checkers: members are set above
        raise AttributeError(name)


lib = _Library()


def check(status: int) -> None:
    """Raises what a status other than OK stands for, with the library's message."""
    if status != OK:
        raise error_of(status, lib.message().decode(errors="replace"))


def made(function: Any, *arguments: Any) -> int:
    """The address of the handle that a function makes."""
    handle = c_void_p()
    check(function(*arguments, byref(handle)))
    assert handle.value is not None
    return handle.value


def text_of(function: Any, *arguments: Any) -> str:
    """The text that a function makes."""
    address = made(function, *arguments)
    try:
        return ctypes.string_at(address).decode()
    finally:
        lib.text_free(address)
