"""What is to be computed and how, as plain values that can be compared, and as the C API's structs."""

import ctypes
import json
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import _capi
from ._errors import UsageError
from ._tensors import DTYPES, dtype_name


def integer(value: Any, name: str) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise UsageError(f"{name} is {value!r} (no integer): pass one") from None


def text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{name} is {value!r} (no text): pass a str")
    return value


def flag(value: Any, name: str) -> bool:
    if value not in (True, False):
        raise UsageError(f"{name} is {value!r} (neither True nor False): pass one")
    return bool(value)


def integers(values: Any, name: str) -> tuple[int, ...]:
    listed = values.tolist() if hasattr(values, "tolist") else values
    if isinstance(listed, str) or not isinstance(listed, Iterable):
        raise UsageError(f"{name} is {values!r} (a list of integers): pass one")
    return tuple(integer(value, f"an entry of {name}") for value in listed)


@dataclass(frozen=True)
class Mask:
    """Which keys a query sees. Lengths of windows as in flash-attn: -1 is unlimited."""

    causal: bool = False
    window: tuple[int, int] = (-1, -1)
    first_keys: int = 0
    cu_seqlens: tuple[int, ...] = ()
    bands: tuple[tuple[int, ...], ...] = ()

    @staticmethod
    def of(causal: Any = False, window_size: Any = (-1, -1), cu_seqlens: Any = None, first_keys: Any = 0,
           bands: Any = None) -> "Mask":
        window = integers(window_size, "window_size")
        if len(window) != 2:
            raise UsageError(f"window_size is {window_size!r} (it has two sides): pass (left, right), -1 for unlimited")
        documents = () if cu_seqlens is None else integers(cu_seqlens, "cu_seqlens")
        if cu_seqlens is not None and not documents:
            raise UsageError("cu_seqlens has no entry (it lists 0, …, seq): pass them, or None")
        listed = () if bands is None else tuple(integers(band, "a band") for band in bands)
        if any(len(band) != 6 for band in listed):
            raise UsageError("a band does not have six numbers (q0, q1, k0, k1, lo, hi): pass them")
        return Mask(flag(causal, "causal"), (window[0], window[1]), integer(first_keys, "first_keys"), documents, listed)


# Keywords that make a score of a product, and their members of distattn_problem, in which 0 is as usual. One more that
# the library computes is a line here, and moves out of the list below.
SCORES = {"softmax_scale": "scale"}
# Keywords that other libraries know. They may be given if they change nothing.
NOT_COMPUTED = ("softcap", "s_aux", "learnable_sink", "alibi_slopes", "dropout_p", "qv", "q_descale", "k_descale",
                "v_descale")


def is_score(keyword: str) -> bool:
    return keyword in SCORES or keyword in NOT_COMPUTED


def scores_of(**given: Any) -> tuple[float, ...]:
    """The numbers of SCORES. Refuses by its name what is not computed, and, as a call does, what is not known."""
    for name, value in given.items():
        if name in NOT_COMPUTED and not (value is None or (isinstance(value, (int, float)) and value == 0)):
            raise UsageError(f"{name} is given (the library does not compute with it): leave it out")
        if not is_score(name):
            raise TypeError(f"unexpected keyword argument {name!r}: leave it out")
    return tuple(_score(name, given.get(name)) for name in SCORES)


def _score(name: str, value: Any) -> float:
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, (int, float)) or (name == "softmax_scale" and value == 0):
        raise UsageError(f"{name} is {value!r} (a number, or None for what is usual): pass one")
    return float(value)


@dataclass(frozen=True)
class Problem:
    """One exact attention; shapes are those of the whole sequence."""

    batch: int
    seq_q: int
    seq_kv: int
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    dtype: str
    scores: tuple[float, ...]  # as scores_of() lists them
    mask: Mask

    @staticmethod
    def of(*, seq: Any, heads: Any, head_dim: Any, seq_kv: Any = None, kv_heads: Any = None, value_dim: Any = None,
           batch: Any = 1, dtype: Any = "float32", scores: tuple[float, ...] | None = None, **mask: Any) -> "Problem":
        queries = integer(seq, "seq")
        query_heads = integer(heads, "heads")
        return Problem(integer(batch, "batch"), queries, queries if seq_kv is None else integer(seq_kv, "seq_kv"),
                       query_heads, query_heads if kv_heads is None else integer(kv_heads, "kv_heads"),
                       integer(head_dim, "head_dim"), 0 if value_dim is None else integer(value_dim, "value_dim"),
                       dtype_name(dtype), scores_of() if scores is None else scores, Mask.of(**mask))

    def struct(self) -> _capi.Problem:
        """Keeps the lists that it points to."""
        documents = (ctypes.c_int64 * len(self.mask.cu_seqlens))(*self.mask.cu_seqlens)
        bands = (_capi.Band * len(self.mask.bands))(*(_capi.Band(*band) for band in self.mask.bands))
        problem = _capi.Problem(batch=self.batch, seq_q=self.seq_q, seq_kv=self.seq_kv, heads=_int32(self.heads),
                                kv_heads=_int32(self.kv_heads), head_dim=_int32(self.head_dim),
                                value_dim=_int32(self.value_dim), dtype=DTYPES[self.dtype],
                                wire=_capi.FP64 if self.dtype == "float64" else _capi.FP32,
                                causal=self.mask.causal, window_left=self.mask.window[0],
                                window_right=self.mask.window[1], sinks=self.mask.first_keys,
                                **dict(zip(SCORES.values(), self.scores, strict=True)))
        if self.mask.cu_seqlens:
            problem.cu_seqlens, problem.cu_seqlens_count = documents, len(documents)
        if self.mask.bands:
            problem.bands, problem.bands_count = bands, len(bands)
        return problem


def _int32(value: int) -> int:
    """ctypes would cut it off without a word."""
    if not -2**31 <= value < 2**31:
        raise UsageError(f"{value} heads or dimensions (more than the library counts): pass fewer")
    return value


@dataclass(frozen=True)
class Request:
    """How it is computed."""

    schedule: str = "auto"
    backward: bool = False
    backend: str | None = None
    threads: int = 0
    deterministic: bool = False
    machine: str | None = None
    memory_bytes: int = 0
    cuda_stream: int = 0
    balance_tokens: float | None = None
    layout: str | None = None

    @staticmethod
    def of(problem: Problem, **given: Any) -> "Request":
        """Of a caller's keywords. float64 is what the reference backend alone computes."""
        request = Request(**given)
        for name in ("schedule", "backend", "machine", "layout"):
            if getattr(request, name) is not None:
                text(getattr(request, name), name)
        integer(request.threads, "threads")
        integer(request.memory_bytes, "memory_bytes")
        if problem.dtype == "float64" and request.backend is None:
            return Request(**{**given, "backend": "reference"})
        return request

    def struct(self) -> _capi.Options:
        return _capi.Options(schedule=self.schedule.encode(), backward=self.backward, backend=_bytes(self.backend),
                             threads=_int32(self.threads), deterministic=self.deterministic,
                             machine=_bytes(self.machine), memory_bytes=self.memory_bytes,
                             cuda_stream=self.cuda_stream or None,
                             balance_tokens=-1.0 if self.balance_tokens is None else float(self.balance_tokens),
                             layout=_bytes(self.layout))


def _bytes(value: str | None) -> bytes | None:
    return None if value is None else value.encode()


def layout_text(layout: str | Mapping[str, Any] | None) -> str | None:
    """Who owns which tokens, as the library takes it, of the same or of what distattn.layout() returns."""
    if layout is None or isinstance(layout, str):
        return layout
    if not isinstance(layout, Mapping):
        raise UsageError(f"layout is a {type(layout).__name__} (a dict, or its JSON): pass what distattn.layout() returns")
    return json.dumps(layout)


def schedules_of(schedule: str | Sequence[str]) -> list[str]:
    """The schedules of "auto,ring" or ["auto", "ring"]."""
    listed = schedule.split(",") if isinstance(schedule, str) else schedule
    return [text(name, "schedule") for name in listed]
